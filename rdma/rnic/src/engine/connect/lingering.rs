//! Ports of connections that have no owner any more, kept as long as TCP may still have to send
//! from them.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_tcp::{ConnId, Instant};

use crate::model::LocalPort;

/// How long a port is kept after its connection closed, so that TCP answers a repeated FIN
/// (TIME-WAIT).
const LINGER: Duration = Duration::from_secs(10);
/// Largest number of ports that the engines of an RNIC keep. Each is a file descriptor of the
/// process, whose limit is often 1024. A FIN is repeated within milliseconds. A client loses an
/// answer only if 256 more connections end within that time, and then the kernel's RST answers the
/// FIN.
const MAX_PORTS: usize = 256;

/// A port, the connection that has had it, and when it is freed, if the connection has ended by
/// then.
struct Kept {
    until: Instant,
    conn: ConnId,
    port: Arc<LocalPort>,
}

/// The oldest first.
type Queue = VecDeque<Kept>;

/// Ports of connections that have ended.
pub(in crate::engine) struct Lingering {
    /// Largest length of `own`.
    most: usize,
    /// Ports that no listener shares.
    own: Queue,
    /// Ports that a listener had when their connections ended.
    shared: Queue,
}

impl Lingering {
    /// No ports yet, for one of `engines` engines.
    pub(in crate::engine) fn of_one_of(engines: usize) -> Self {
        Self {
            most: (MAX_PORTS / engines).max(1),
            own: Queue::new(),
            shared: Queue::new(),
        }
    }

    /// Frees all ports.
    pub(in crate::engine) fn clear(&mut self) {
        self.own.clear();
        self.shared.clear();
    }

    pub(in crate::engine) fn keep(&mut self, conn: ConnId, port: Arc<LocalPort>, now: Instant) {
        let until = now + LINGER;
        let is_shared = Arc::strong_count(&port) > 1;
        let kept = Kept { until, conn, port };
        if is_shared {
            self.shared.push_back(kept);
            return;
        }
        self.own.push_back(kept);
        if self.own.len() > self.most {
            self.own.pop_front();
        }
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }

    /// Frees the ports whose time has passed. A connection that is still open keeps its port: it
    /// may repeat its last bytes, or be reset. A switch carries no frame from a port that is free,
    /// and the kernel answers the peer's ACK to such a port by a RST.
    pub(in crate::engine) fn expire(&mut self, now: Instant, is_open: impl Fn(ConnId) -> bool) {
        for queue in [&mut self.own, &mut self.shared] {
            while queue.front().is_some_and(|kept| kept.until <= now)
                && let Some(mut kept) = queue.pop_front()
            {
                if is_open(kept.conn) {
                    kept.until = now + LINGER;
                    queue.push_back(kept);
                }
            }
        }
    }

    /// When the next port is freed.
    pub(in crate::engine) fn next(&self) -> Option<Instant> {
        let fronts = [self.own.front(), self.shared.front()];
        fronts.into_iter().flatten().map(|kept| kept.until).min()
    }

    /// Frees the ports of an address that the host has lost.
    pub(in crate::engine) fn withdraw(&mut self, address: IpAddr) {
        for queue in [&mut self.own, &mut self.shared] {
            queue.retain(|kept| kept.port.local().ip() != address);
        }
    }
}

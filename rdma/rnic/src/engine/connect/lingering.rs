//! Ports of connections that have ended: kept for as long as TCP may still have to answer on them.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_tcp::Instant;

use crate::model::LocalPort;

/// How long a port stays ours after its connection closed: TCP still answers a repeated FIN
/// (TIME-WAIT).
const LINGER: Duration = Duration::from_secs(10);
/// Ports that the engines of an RNIC keep at most. Each is a descriptor of the process, which often
/// has 1024. What is repeated, is so after milliseconds. A client needs 256 connections within
/// these to lose an answer, and the kernel's RST is one as well.
const MAX_PORTS: usize = 256;

/// The oldest first.
type Queue = VecDeque<(Instant, Arc<LocalPort>)>;

/// See the module.
pub(in crate::engine) struct Lingering {
    /// How many of our own are kept at most.
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

    /// Forgets all.
    pub(in crate::engine) fn clear(&mut self) {
        self.own.clear();
        self.shared.clear();
    }

    pub(in crate::engine) fn keep(&mut self, port: Arc<LocalPort>, now: Instant) {
        let until = now + LINGER;
        if Arc::strong_count(&port) > 1 {
            self.shared.push_back((until, port));
            return;
        }
        self.own.push_back((until, port));
        if self.own.len() > self.most {
            self.own.pop_front();
        }
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }

    pub(in crate::engine) fn expire(&mut self, now: Instant) {
        for queue in [&mut self.own, &mut self.shared] {
            while queue.front().is_some_and(|(until, _)| *until <= now) {
                queue.pop_front();
            }
        }
    }

    /// When the next one goes.
    pub(in crate::engine) fn next(&self) -> Option<Instant> {
        let fronts = [self.own.front(), self.shared.front()];
        fronts.into_iter().flatten().map(|(until, _)| *until).min()
    }

    /// Nothing will be answered from this address.
    pub(in crate::engine) fn withdraw(&mut self, address: IpAddr) {
        for queue in [&mut self.own, &mut self.shared] {
            queue.retain(|(_, port)| port.local().ip() != address);
        }
    }
}

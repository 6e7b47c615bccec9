//! Source port of a connection that is being made: if the answers arrive at another engine, another
//! port is tried.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use xwarp_tcp::{ConnId, Instant};

use super::device::RdmaDevice;
use crate::model::{HostError, LocalPort};

/// How long other ports are tried. Each costs a round trip, which to a distant peer would delay the
/// connection too long.
const TRYING: Duration = Duration::from_millis(500);
/// Largest part of an attempt's timeout for trying ports: one in this number.
const PART: u32 = 4;

/// The current source port of a connection, and those that were tried before.
pub(crate) struct SourcePort {
    port: Arc<LocalPort>,
    /// Kept until the connection is made or cancelled, so that the host returns none of them again.
    tried: Vec<Arc<LocalPort>>,
    /// Number of further ports that may be tried.
    left: usize,
    /// Deadline for trying ports.
    until: Instant,
    /// The application reads the port's number here, if it needs it.
    shown: Option<Arc<AtomicU16>>,
}

impl SourcePort {
    /// A port that the host has chosen, for an attempt that began at this time with `timeout`.
    pub(crate) fn new(
        port: LocalPort,
        shown: Option<Arc<AtomicU16>>,
        began: Instant,
        timeout: Duration,
        device: &RdmaDevice,
    ) -> Self {
        Self {
            port: Arc::new(port),
            tried: Vec::new(),
            left: device.other_ports,
            until: began + TRYING.min(timeout / PART),
            shown,
        }
    }

    /// Keeps the port, as the application has named it.
    pub(crate) fn keep(&mut self) {
        self.left = 0;
    }

    /// The port of an incoming connection.
    pub(crate) fn of_listener(port: Arc<LocalPort>) -> Self {
        Self {
            port,
            tried: Vec::new(),
            left: 0,
            until: Instant::ORIGIN,
            shown: None,
        }
    }

    pub(crate) fn get(&self) -> &Arc<LocalPort> {
        &self.port
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.port.local()
    }

    /// TCP has sent a SYN. If other ports may be tried, the answer must arrive at this engine.
    pub(crate) fn begun(&self, conn: ConnId, device: &mut RdmaDevice) {
        if self.left > 0 && device.now < self.until {
            device.stack.refuse_stray_answer(conn);
        }
    }

    /// Sets another port for the connection. Returns the former one.
    pub(super) fn replace(&mut self, port: LocalPort) -> Arc<LocalPort> {
        if let Some(shown) = &self.shown {
            shown.store(port.local().port(), Ordering::Relaxed);
        }
        std::mem::replace(&mut self.port, Arc::new(port))
    }

    /// Restarts a connection whose answer arrived at another engine and was refused, from the port
    /// that the host returned, or from its own port if the host has none.
    pub(crate) fn begin_anew(
        &mut self,
        conn: ConnId,
        answer: Result<LocalPort, HostError>,
        device: &mut RdmaDevice,
    ) {
        let now = device.now;
        let given = answer.inspect_err(|error| log::debug!("no other port: {error}"));
        let given = given
            .ok()
            .filter(|port| device.stack.open_anew(conn, port.local(), now));
        if let Some(port) = given {
            let former = self.replace(port);
            self.tried.push(former);
            self.left -= 1;
        } else {
            self.left = 0;
            device.stack.open_anew(conn, self.local(), now);
        }
        self.begun(conn, device);
    }

    /// Releases the other ports once the connection is made.
    pub(crate) fn settle(&mut self) {
        self.tried.clear();
    }
}

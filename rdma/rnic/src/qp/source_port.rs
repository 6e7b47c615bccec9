//! Source port of a connection that is being made: another one is tried where answers come to
//! another engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use xwarp_tcp::{ConnId, Instant};

use super::device::RdmaDevice;
use crate::model::{HostError, LocalPort};

/// How long other ports are tried. Each takes a round trip, and to a far peer that would delay the
/// connection too long.
const TRYING: Duration = Duration::from_millis(500);
/// The part of an attempt's time that is taken for it at most.
const PART: u32 = 4;

/// The port that a connection comes from, and those that were tried before it.
pub(crate) struct SourcePort {
    port: Arc<LocalPort>,
    /// Kept until the connection is made or given up, so that the host gives none of them again.
    tried: Vec<Arc<LocalPort>>,
    /// How many further ports may be tried.
    left: usize,
    /// Until when.
    until: Instant,
    /// Where the application reads the port's number, if it does.
    shown: Option<Arc<AtomicU16>>,
}

impl SourcePort {
    /// A port that the host has chosen, for an attempt that began at this time and may take until
    /// `timeout`.
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

    /// The application has named the port: no further one is tried.
    pub(crate) fn keep(&mut self) {
        self.left = 0;
    }

    /// The port of a connection that has come in.
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

    /// TCP has sent a SYN. Other ports may be tried, so the answer has to arrive at this engine.
    pub(crate) fn begun(&self, conn: ConnId, device: &mut RdmaDevice) {
        if self.left > 0 && device.now < self.until {
            device.stack.refuse_stray_answer(conn);
        }
    }

    /// The connection comes from another port from now on; the one before.
    pub(super) fn replace(&mut self, port: LocalPort) -> Arc<LocalPort> {
        if let Some(shown) = &self.shown {
            shown.store(port.local().port(), Ordering::Relaxed);
        }
        std::mem::replace(&mut self.port, Arc::new(port))
    }

    /// The answer had come to another engine, and was refused. The connection begins anew from the
    /// port that the host gives, or from its own, if the host has none.
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

    /// The connection is made: the host gets the other ports back.
    pub(crate) fn settle(&mut self) {
        self.tried.clear();
    }
}

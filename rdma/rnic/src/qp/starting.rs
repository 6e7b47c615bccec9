//! Initiator's start-up of a connection (RFC 5044 §7.1.3): the next hop, TCP, MPA Request, MPA
//! Reply.
//!
//! If revision 1 may have to be tried on a second TCP connection, the application's thread reserves
//! two ports in advance: that takes system calls, and the engine makes none. The second port is
//! freed when the Reply arrives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use xwarp_driver::net::PortError;
use xwarp_iwarp::mpa::{Initiator, InitiatorStep, StartupError, StartupParams, encode_request};
use xwarp_tcp::{ConnId, Instant, Path, RouteMetrics, Stack};

use super::device::{ConnChange, RdmaDevice};
use super::source_port::SourcePort;
use crate::model::{ConnectError, HostError, LocalPort, QpId};
use crate::queues::Inbox;
use crate::tables::SearchId;

/// Private data of the peer's answer, or an error.
pub(crate) type Outcome = Result<Vec<u8>, ConnectError>;

/// Request of a verb to connect a queue pair.
pub struct StartConnect {
    /// The queue pair, in Idle.
    pub qp: QpId,
    /// The local port.
    pub port: LocalPort,
    /// Whether the application has named the port, so that no other port may be used.
    pub port_is_named: bool,
    /// The application reads the port's number here when it changes.
    pub shown_port: Arc<AtomicU16>,
    /// Port of a second TCP connection, if the peer supports MPA revision 1 only.
    pub spare: Option<LocalPort>,
    /// Address and port of the listener.
    pub remote: SocketAddr,
    /// Metrics of the route to the listener.
    pub metrics: RouteMetrics,
    /// MPA start-up parameters.
    pub params: StartupParams,
    /// Whether a CRC is requested on a connection without TCP checksums, too.
    pub crc_on_host: bool,
    /// Private data of the Request.
    pub private_data: Vec<u8>,
    /// Time limit of the whole attempt, including the search for the next hop.
    pub timeout: Duration,
    /// Inbox of the result: the private data of the Reply.
    pub outcome: Arc<Inbox<Outcome>>,
}

impl StartConnect {
    /// Reports the failure of the attempt.
    pub(crate) fn refuse(&self, error: ConnectError) {
        // The application may have cancelled the attempt.
        let _ = self.outcome.put(Err(error));
    }
}

/// An outgoing connection that waits for its next hop. The search has its own timeout.
pub(super) struct Searching {
    search: SearchId,
    order: StartConnect,
    began: Instant,
}

impl Searching {
    /// Starts to wait for the search.
    pub(super) fn new(search: SearchId, order: StartConnect, now: Instant) -> Self {
        Self {
            search,
            order,
            began: now,
        }
    }

    /// Whether this is the attempt with this outcome.
    pub(super) fn has_outcome(&self, outcome: &Arc<Inbox<Outcome>>) -> bool {
        Arc::ptr_eq(&self.order.outcome, outcome)
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.order.remote
    }

    /// The search has ended: TCP connects, within the remaining time.
    pub(super) fn connect(self, next_hop: [u8; 6], device: &mut RdmaDevice) -> Option<Starting> {
        Starting::begin(self.order, next_hop, self.began, device)
    }

    /// Ends the attempt without a connection.
    pub(super) fn refuse(&self, error: ConnectError, device: &mut RdmaDevice) {
        device.searches.end(self.search);
        self.order.refuse(error);
    }
}

/// An outgoing connection in start-up.
pub(super) struct Starting {
    conn: ConnId,
    port: SourcePort,
    spare: Option<LocalPort>,
    remote: SocketAddr,
    next_hop: [u8; 6],
    metrics: RouteMetrics,
    params: StartupParams,
    private_data: Vec<u8>,
    began: Instant,
    until: Instant,
    /// Whether TCP is established and the Request sent.
    requested: bool,
    /// Whether bytes have arrived.
    answered: bool,
    /// Whether this is the second try, after the peer has closed the first connection.
    retried: bool,
    outcome: Arc<Inbox<Outcome>>,
}

impl Starting {
    /// TCP begins to connect, for an attempt that began at this time. `None` if it cannot; the
    /// application then receives an error.
    pub(super) fn begin(
        order: StartConnect,
        next_hop: [u8; 6],
        began: Instant,
        device: &mut RdmaDevice,
    ) -> Option<Self> {
        let path = Path {
            local: order.port.local(),
            remote: order.remote,
            next_hop,
            metrics: order.metrics,
        };
        let until = began + order.timeout;
        let left = until - device.now;
        // A named port may be in use by another engine's connection, which would lose its segments.
        // Any other port is free.
        let connected = if order.port_is_named {
            device.stack.connect_alone(path, left, device.now)
        } else {
            device.stack.connect_within(path, left, device.now)
        };
        match connected {
            Err(error) => {
                order.refuse(refusal(error));
                None
            }
            Ok(conn) => {
                device.note(ConnChange::Made(conn));
                Some(Self::new(conn, order, next_hop, began, device))
            }
        }
    }

    fn new(
        conn: ConnId,
        order: StartConnect,
        next_hop: [u8; 6],
        began: Instant,
        device: &mut RdmaDevice,
    ) -> Self {
        let shown = Some(order.shown_port);
        let mut port = SourcePort::new(order.port, shown, began, order.timeout, device);
        if order.port_is_named {
            port.keep();
        }
        port.begun(conn, device);
        let mut params = order.params;
        params.crc &= order.crc_on_host || device.is_summed(conn);
        Self {
            conn,
            port,
            spare: order.spare,
            remote: order.remote,
            next_hop,
            metrics: order.metrics,
            params,
            private_data: order.private_data,
            began,
            until: began + order.timeout,
            requested: false,
            answered: false,
            retried: false,
            outcome: order.outcome,
        }
    }

    /// Whether this is the attempt with this outcome.
    pub(super) fn has_outcome(&self, outcome: &Arc<Inbox<Outcome>>) -> bool {
        Arc::ptr_eq(&self.outcome, outcome)
    }

    /// Deadline of start-up.
    pub(super) fn deadline(&self) -> Instant {
        self.until
    }

    pub(super) fn conn(&self) -> ConnId {
        self.conn
    }

    pub(super) fn port(&self) -> &Arc<LocalPort> {
        self.port.get()
    }

    /// Restarts from the port that the host returned, as the answer to the SYN arrived at another
    /// engine.
    pub(super) fn begin_anew(
        &mut self,
        conn: ConnId,
        answer: Result<LocalPort, HostError>,
        device: &mut RdmaDevice,
    ) {
        if self.conn == conn {
            self.port.begin_anew(conn, answer, device);
        }
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Whether the peer has answered on this connection or the one before, so that an end is no
    /// refusal.
    pub(super) fn has_met_peer(&self) -> bool {
        self.requested || self.retried
    }

    /// TCP is established: sends the Request. If the peer's window has no room for it, TCP's flow
    /// control waits; that does not extend the deadline.
    pub(super) fn send_request(&mut self, device: &mut RdmaDevice) -> Result<(), ConnectError> {
        self.requested = true;
        self.port.settle();
        let frame = encode_request(self.params, &self.private_data).map_err(|too_long| {
            let (len, limit) = (too_long.len, too_long.limit);
            ConnectError::PrivateDataTooLong { len, limit }
        })?;
        if device.stack.send_all(self.conn, &frame, device.now) {
            return Ok(());
        }
        let reason = format!("TCP took no Request for {}", self.remote);
        Err(ConnectError::Resources(reason))
    }

    /// The content of the Reply, if it has arrived completely. Bytes of the first FPDUs may follow
    /// it.
    pub(super) fn read_reply(
        &mut self,
        stack: &mut Stack,
    ) -> Option<Result<InitiatorStep, StartupError>> {
        let initiator = Initiator::new(self.params);
        let mut tcp = stack.conn_mut(self.conn)?;
        let mut want = 1;
        loop {
            if tcp.readable_len() < want {
                return None;
            }
            self.answered = true;
            match initiator.on_bytes(tcp.readable(want)) {
                Ok(InitiatorStep::NeedBytes(n)) => want = n.max(want + 1),
                step => return Some(step),
            }
        }
    }

    /// The peer closed without an answer, as a peer does that supports MPA revision 1 only. If
    /// revision 2 is not required, tries revision 1 once on a new TCP connection (R6581-10-5). The
    /// deadline does not change.
    pub(super) fn retry(&mut self, device: &mut RdmaDevice) -> bool {
        if self.answered {
            return false;
        }
        let Some(params) = Initiator::new(self.params).retry() else {
            return false;
        };
        let Some(port) = self.spare.take() else {
            return false;
        };
        let path = Path {
            local: port.local(),
            remote: self.remote,
            next_hop: self.next_hop,
            metrics: self.metrics,
        };
        let remote = self.remote;
        let conn = match self.connect_again(path, device) {
            Ok(conn) => conn,
            Err(error) => {
                log::info!("no second try with {remote}: {error}");
                return false;
            }
        };
        log::info!("{remote} closed upon MPA revision 2; trying revision 1");
        self.params = params;
        for change in self.move_to(conn, port) {
            device.note(change);
        }
        self.port.begun(conn, device);
        true
    }

    /// Opens the second connection. If it has the same, named port, the first connection, which the
    /// peer has closed, is ended before.
    fn connect_again(
        &self,
        path: Path,
        device: &mut RdmaDevice,
    ) -> Result<ConnId, xwarp_tcp::ConnectError> {
        let left = self.until - device.now;
        if path.local != self.port.local() {
            return device.stack.connect_within(path, left, device.now);
        }
        device.stack.abort(self.conn, device.now);
        device.stack.connect_alone(path, left, device.now)
    }

    /// Continues with the second connection.
    fn move_to(&mut self, conn: ConnId, port: LocalPort) -> [ConnChange; 2] {
        let old_conn = std::mem::replace(&mut self.conn, conn);
        let old_port = self.port.replace(port);
        self.requested = false;
        self.retried = true;
        [
            ConnChange::Abandoned(old_conn, old_port),
            ConnChange::Made(conn),
        ]
    }

    /// The error for the application when the deadline has passed.
    pub(super) fn timed_out(&self, now: Instant) -> ConnectError {
        let stage = if self.requested {
            "TCP is connected, but no MPA Reply came"
        } else {
            "no answer to the TCP SYN"
        };
        ConnectError::TimedOut {
            peer: self.remote,
            timeout: now - self.began,
            stage,
        }
    }

    /// Reports the outcome of start-up to the application.
    pub(super) fn finish(&self, outcome: Outcome) {
        // The application may have cancelled the attempt.
        let _ = self.outcome.put(outcome);
    }
}

/// Why TCP does not connect. Another connection can have the flow only if the application named the
/// port.
fn refusal(error: xwarp_tcp::ConnectError) -> ConnectError {
    match error {
        xwarp_tcp::ConnectError::FlowExists { local, .. } => {
            let (addr, port) = (local.ip(), local.port());
            ConnectError::Host(PortError::InUse { addr, port }.into())
        }
        error => ConnectError::Resources(error.to_string()),
    }
}

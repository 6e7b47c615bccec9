//! Initiator's start-up of a connection (RFC 5044 §7.1.3): TCP, MPA Request, MPA Reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_iwarp::mpa::{Initiator, InitiatorStep, StartupError, StartupParams, encode_request};
use xwarp_tcp::{ConnId, Instant, Path, Stack};

use super::device::{ConnChange, Device};
use crate::model::{ConnectError, LocalPort, QpId};
use crate::queues::Inbox;

/// The private data of the peer's answer.
pub(crate) type Outcome = Result<Vec<u8>, ConnectError>;

/// A verb: connect this queue pair.
pub struct ConnectOrder {
    /// The queue pair, in Idle.
    pub qp: QpId,
    /// The local port.
    pub port: LocalPort,
    /// For a second TCP connection, should the peer know MPA revision 1 only.
    pub spare: Option<LocalPort>,
    /// The listener.
    pub remote: SocketAddr,
    /// The Ethernet address that leads there.
    pub next_hop: [u8; 6],
    /// MPA start-up parameters.
    pub params: StartupParams,
    /// Private data of the Request.
    pub private_data: Vec<u8>,
    /// How long start-up may take.
    pub limit: Duration,
    /// Where the result goes: the private data of the Reply.
    pub outcome: Arc<Inbox<Outcome>>,
}

impl ConnectOrder {
    pub(crate) fn path(&self) -> Path {
        Path {
            local: self.port.local(),
            remote: self.remote,
            next_hop: self.next_hop,
        }
    }

    /// The queue pair is not connected.
    pub(crate) fn refuse(&self, error: ConnectError) {
        // Whoever asked may no longer wait.
        let _ = self.outcome.put(Err(error));
    }
}

/// A connection of ours that is being made.
pub(super) struct Starting {
    conn: ConnId,
    port: Arc<LocalPort>,
    spare: Option<LocalPort>,
    remote: SocketAddr,
    next_hop: [u8; 6],
    params: StartupParams,
    private_data: Vec<u8>,
    began: Instant,
    until: Instant,
    /// TCP is established and the Request sent.
    requested: bool,
    /// Something has come upon it.
    answered: bool,
    /// This is the second try: the peer was there, and has closed.
    retried: bool,
    outcome: Arc<Inbox<Outcome>>,
}

impl Starting {
    /// TCP is connecting.
    pub(super) fn new(conn: ConnId, order: ConnectOrder, now: Instant) -> Self {
        Self {
            conn,
            port: Arc::new(order.port),
            spare: order.spare,
            remote: order.remote,
            next_hop: order.next_hop,
            params: order.params,
            private_data: order.private_data,
            began: now,
            until: now + order.limit,
            requested: false,
            answered: false,
            retried: false,
            outcome: order.outcome,
        }
    }

    /// When start-up must be over.
    pub(super) fn deadline(&self) -> Instant {
        self.until
    }

    pub(super) fn conn(&self) -> ConnId {
        self.conn
    }

    pub(super) fn port(&self) -> &Arc<LocalPort> {
        &self.port
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The peer was there on this connection or the one before, so that an end is no refusal.
    pub(super) fn has_met_peer(&self) -> bool {
        self.requested || self.retried
    }

    /// TCP is established: sends the Request. Where the peer's window has no room for it, TCP's flow control waits; the deadline is
    /// not moved by that.
    pub(super) fn send_request(&mut self, device: &mut Device) -> Result<(), ConnectError> {
        self.requested = true;
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

    /// What the Reply says, if it is here wholly. Bytes of the first FPDUs may follow it.
    pub(super) fn read_reply(
        &mut self,
        stack: &mut Stack,
    ) -> Option<Result<InitiatorStep, StartupError>> {
        let initiator = Initiator::new(self.params);
        let mut want = 1;
        loop {
            if stack.readable_len(self.conn) < want {
                return None;
            }
            self.answered = true;
            match initiator.on_bytes(stack.readable(self.conn, want)) {
                Ok(InitiatorStep::NeedBytes(n)) => want = n.max(want + 1),
                step => return Some(step),
            }
        }
    }

    /// The peer closed without a word: that is what one does which knows MPA revision 1 only. Once, and if what revision 2 has
    /// besides is not required, the same is tried with revision 1 on a new TCP connection (R6581-10-5); the deadline stays.
    pub(super) fn retry(&mut self, device: &mut Device) -> bool {
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
        };
        let (left, remote) = (self.until - device.now, self.remote);
        let conn = match device.stack.connect_within(path, left, device.now) {
            Ok(conn) => conn,
            Err(error) => {
                log::info!("no second try with {remote}: {error}");
                return false;
            }
        };
        log::info!("{remote} closed upon MPA revision 2; trying revision 1");
        let old_conn = std::mem::replace(&mut self.conn, conn);
        let old_port = std::mem::replace(&mut self.port, Arc::new(port));
        self.params = params;
        self.requested = false;
        self.retried = true;
        let changes = &mut device.conn_changes;
        changes.push(ConnChange::Abandoned(old_conn, old_port));
        changes.push(ConnChange::Made(conn));
        true
    }

    /// What the application learns when the deadline has passed.
    pub(super) fn timed_out(&self, now: Instant) -> ConnectError {
        let stage = if self.requested {
            "TCP is connected, but no MPA Reply came"
        } else {
            "no answer to the TCP SYN"
        };
        ConnectError::TimedOut {
            peer: self.remote,
            limit: now - self.began,
            stage,
        }
    }

    /// Tells the application how start-up has ended.
    pub(super) fn tell(&self, outcome: Outcome) {
        // Whoever asked may no longer wait.
        let _ = self.outcome.put(outcome);
    }
}

//! The initiator's start-up (RFC 5044 §7.1.3): TCP, MPA Request, MPA Reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use xwarp_iwarp::mpa::{
    Initiator, InitiatorStep, Negotiated, PrivateData, Revision, StartupError, StartupParams,
    encode_request,
};
use xwarp_tcp::{CloseReason, ConnId, Instant, Path};

use super::Engine;
use super::qp::Link;
use super::stream::Stream;
use crate::error::ConnectError;
use crate::host::LocalPort;
use crate::qp::{QpId, QpState};

/// We ask for CRC; with that it is on (RFC 5044 §7.1.1). Revision 1 only.
pub(super) const PARAMS: StartupParams = StartupParams {
    highest: Revision::One,
    ..StartupParams::DEFAULT
};

type Outcome = Result<Vec<u8>, ConnectError>;

/// A verb: connect this queue pair.
pub(crate) struct ConnectOrder {
    qp: QpId,
    port: LocalPort,
    remote: SocketAddr,
    next_hop: [u8; 6],
    private_data: Vec<u8>,
    limit: Duration,
    outcome: Sender<Outcome>,
}

impl ConnectOrder {
    /// The order, and where its outcome will be told.
    pub(crate) fn new(
        qp: QpId,
        port: LocalPort,
        remote: SocketAddr,
        next_hop: [u8; 6],
        private_data: Vec<u8>,
        limit: Duration,
    ) -> (Self, Receiver<Outcome>) {
        let (outcome, receiver) = mpsc::channel();
        let order = Self {
            qp,
            port,
            remote,
            next_hop,
            private_data,
            limit,
            outcome,
        };
        (order, receiver)
    }
}

/// A connection of ours that is being made.
pub(super) struct Starting {
    conn: ConnId,
    port: Arc<LocalPort>,
    remote: SocketAddr,
    private_data: Vec<u8>,
    initiator: Initiator,
    began: Instant,
    /// TCP is established and the Request sent.
    requested: bool,
    outcome: Sender<Outcome>,
}

impl Starting {
    fn tell(&self, outcome: Outcome) {
        // Whoever asked may no longer wait.
        let _ = self.outcome.send(outcome);
    }
}

impl Engine {
    pub(crate) fn connect(&mut self, order: ConnectOrder) {
        let QpId(key) = order.qp;
        let key = key as usize;
        let (state, unconnected) = match self.qps.get(key) {
            Some(qp) => (qp.state(), matches!(qp.link, Link::None)),
            None => (QpState::Error, false),
        };
        if state != QpState::Idle || !unconnected {
            // Whoever asked may no longer wait.
            let _ = order.outcome.send(Err(ConnectError::InvalidState(state)));
            return;
        }
        let path = Path {
            local: order.port.local(),
            remote: order.remote,
            next_hop: order.next_hop,
        };
        match self.stack.connect(path, self.now) {
            Err(error) => {
                let refused = ConnectError::Resources(error.to_string());
                // As above.
                let _ = order.outcome.send(Err(refused));
            }
            Ok(conn) => self.begin_start(key, conn, order),
        }
    }

    fn begin_start(&mut self, key: usize, conn: ConnId, order: ConnectOrder) {
        self.own(conn, key);
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        qp.deadline = Some(self.now + order.limit);
        qp.link = Link::Starting(Box::new(Starting {
            conn,
            port: Arc::new(order.port),
            remote: order.remote,
            private_data: order.private_data,
            initiator: Initiator::new(PARAMS),
            began: self.now,
            requested: false,
            outcome: order.outcome,
        }));
    }

    /// TCP is established: sends the Request.
    pub(super) fn on_connected(&mut self, key: usize) {
        let Some(Link::Starting(starting)) = self.qps.get_mut(key).map(|qp| &mut qp.link) else {
            return;
        };
        starting.requested = true;
        let conn = starting.conn;
        match encode_request(PARAMS, &starting.private_data) {
            Ok(frame) => {
                if !self.send_startup(conn, &frame) {
                    self.fail_start(key, |peer| {
                        ConnectError::Resources(format!("TCP took no Request for {peer}"))
                    });
                }
            }
            Err(too_long) => {
                self.fail_start(key, |_| ConnectError::PrivateDataTooLong(too_long.len));
            }
        }
    }

    /// Sends a start-up frame; a new connection always has room for one.
    pub(super) fn send_startup(&mut self, conn: ConnId, frame: &[u8]) -> bool {
        let Some(place) = self.stack.writable(conn, frame.len()) else {
            return false;
        };
        place.copy_from_slice(frame);
        self.stack.commit(conn, frame.len(), self.now);
        true
    }

    /// Octets of the Reply, and perhaps of the first FPDUs after it.
    pub(super) fn on_reply_octets(&mut self, key: usize) {
        let Some(Link::Starting(starting)) = self.qps.get_mut(key).map(|qp| &mut qp.link) else {
            return;
        };
        let conn = starting.conn;
        let mut want = 1;
        let step = loop {
            let available = self.stack.readable_len(conn);
            if available < want {
                return;
            }
            match starting.initiator.on_bytes(self.stack.readable(conn, want)) {
                Ok(InitiatorStep::NeedBytes(n)) => want = n.max(want + 1),
                step => break step,
            }
        };
        self.on_reply(key, conn, step);
    }

    fn on_reply(&mut self, key: usize, conn: ConnId, step: Result<InitiatorStep, StartupError>) {
        match step {
            Ok(InitiatorStep::NeedBytes(_)) => {}
            Ok(InitiatorStep::Accepted {
                negotiated,
                private_data,
                consumed,
            }) => {
                self.stack.consume(conn, consumed);
                self.enter_rts(key, negotiated, &private_data);
            }
            Ok(InitiatorStep::Rejected { private_data, .. }) => {
                // The peer has left MPA, and TCP is still in order (RFC 5044 §7.1.3): it ends gracefully.
                self.stack.close(conn, self.now);
                self.end_start(key, |peer| ConnectError::Rejected {
                    peer,
                    private_data: private_data.to_vec(),
                });
            }
            Err(source) | Ok(InitiatorStep::Unacceptable { error: source, .. }) => {
                self.counters.drop_startup += 1;
                self.fail_start(key, |peer| ConnectError::NotIwarp { peer, source });
            }
        }
    }

    /// The Reply said yes: full operation.
    fn enter_rts(&mut self, key: usize, negotiated: Negotiated, private_data: &PrivateData) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let Link::Starting(starting) = std::mem::replace(&mut qp.link, Link::None) else {
            return;
        };
        let depths = (qp.ird, qp.ord);
        let port = Arc::clone(&starting.port);
        let stream = Stream::new(
            starting.conn,
            negotiated,
            false,
            depths,
            qp.extensions,
            port,
        );
        qp.enter_rts(stream);
        starting.tell(Ok(private_data.to_vec()));
        // The first FPDUs may have come along with the Reply, and work may have been posted in Idle.
        self.receive_fpdus(key);
    }

    /// TCP ended before the Reply was here.
    pub(super) fn on_start_failed(&mut self, key: usize, reason: CloseReason) {
        let Some(Link::Starting(starting)) = self.qps.get(key).map(|qp| &qp.link) else {
            return;
        };
        if reason == CloseReason::TimedOut {
            self.on_start_timeout(key);
        } else if starting.requested {
            self.fail_start(key, ConnectError::PeerClosed);
        } else {
            self.fail_start(key, ConnectError::Refused);
        }
    }

    /// The peer closed before the Reply was here.
    pub(super) fn on_start_closed(&mut self, key: usize) {
        self.fail_start(key, ConnectError::PeerClosed);
    }

    pub(super) fn on_start_timeout(&mut self, key: usize) {
        let Some(Link::Starting(starting)) = self.qps.get(key).map(|qp| &qp.link) else {
            return;
        };
        let stage = if starting.requested {
            "TCP is connected, but no MPA Reply came"
        } else {
            "no answer to the TCP SYN"
        };
        let limit = self.now - starting.began;
        self.fail_start(key, |peer| ConnectError::TimedOut { peer, limit, stage });
    }

    /// The application gives up a connection that is being made.
    pub(super) fn lose_start(&mut self, key: usize) {
        self.fail_start(key, ConnectError::PeerClosed);
    }

    /// Ends a start-up by a reset.
    fn fail_start(&mut self, key: usize, error: impl FnOnce(SocketAddr) -> ConnectError) {
        if let Some(Link::Starting(starting)) = self.qps.get(key).map(|qp| &qp.link) {
            self.stack.abort(starting.conn, self.now);
            self.end_start(key, error);
        }
    }

    /// Ends a start-up whose connection is ended already; the queue pair stays Idle and can be connected again.
    fn end_start(&mut self, key: usize, error: impl FnOnce(SocketAddr) -> ConnectError) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let Link::Starting(_) = &qp.link else {
            return;
        };
        qp.deadline = None;
        if let Link::Starting(starting) = std::mem::replace(&mut qp.link, Link::None) {
            self.owners.remove(&starting.conn);
            starting.tell(Err(error(starting.remote)));
            self.linger(starting.port);
        }
    }
}

//! The initiator's start-up (RFC 5044 §7.1.3): TCP, MPA Request, MPA Reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_iwarp::mpa::{
    Framer, Initiator, InitiatorStep, Negotiated, PrivateData, StartupError, StartupParams,
    encode_request,
};
use xwarp_tcp::{CloseReason, ConnId, Path};

use super::Engine;
use super::deadlines::Last;
use crate::model::{ConnectError, ConnectionInfo, LocalPort, QpId, QpState};
use crate::qp::{Link, Nudge, Outcome, Starting, Stream, send_ulpdu};
use crate::queues::Inbox;

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

impl Starting {
    fn tell(&self, outcome: Outcome) {
        // Whoever asked may no longer wait.
        let _ = self.outcome.put(outcome);
    }
}

impl Engine {
    /// Begins to connect a queue pair as MPA initiator.
    pub fn connect(&mut self, order: ConnectOrder) {
        if let Some(reason) = self.failure() {
            // Whoever asked may no longer wait.
            let _ = order.outcome.put(Err(ConnectError::Failed(reason)));
            return;
        }
        let key = order.qp.slot();
        let (state, unconnected) = match self.qp(order.qp) {
            Some(qp) => (qp.state(), matches!(qp.link, Link::None)),
            None => (QpState::Error, false),
        };
        if state != QpState::Idle || !unconnected {
            // Whoever asked may no longer wait.
            let _ = order.outcome.put(Err(ConnectError::InvalidState(state)));
            return;
        }
        let path = Path {
            local: order.port.local(),
            remote: order.remote,
            next_hop: order.next_hop,
        };
        match self
            .device
            .stack
            .connect_within(path, order.limit, self.device.now)
        {
            Err(error) => {
                let refused = ConnectError::Resources(error.to_string());
                // As above.
                let _ = order.outcome.put(Err(refused));
            }
            Ok(conn) => self.begin_start(key, conn, order),
        }
    }

    fn begin_start(&mut self, key: usize, conn: ConnId, order: ConnectOrder) {
        self.own(conn, key);
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        qp.deadline = Some(self.device.now + order.limit);
        qp.link = Link::Starting(Box::new(Starting {
            conn,
            port: Arc::new(order.port),
            spare: order.spare,
            remote: order.remote,
            next_hop: order.next_hop,
            params: order.params,
            private_data: order.private_data,
            began: self.device.now,
            requested: false,
            answered: false,
            retried: false,
            outcome: order.outcome,
        }));
        self.watch(key);
    }

    /// TCP is established: sends the Request.
    pub(super) fn on_connected(&mut self, key: usize) {
        let Some(Link::Starting(starting)) = self.qps.get_mut(key).map(|qp| &mut qp.link) else {
            return;
        };
        starting.requested = true;
        let conn = starting.conn;
        match encode_request(starting.params, &starting.private_data) {
            Ok(frame) => {
                if !self.send_startup(conn, &frame) {
                    self.fail_start(key, |peer| {
                        ConnectError::Resources(format!("TCP took no Request for {peer}"))
                    });
                }
            }
            Err(too_long) => {
                let (len, limit) = (too_long.len, too_long.limit);
                self.fail_start(key, |_| ConnectError::PrivateDataTooLong { len, limit });
            }
        }
    }

    /// Sends a start-up frame. Where the peer's window has no room for it, TCP's flow control waits; the deadline of the start-up is not
    /// moved by that. False if the connection has ended.
    pub(super) fn send_startup(&mut self, conn: ConnId, frame: &[u8]) -> bool {
        self.device.stack.send_all(conn, frame, self.device.now)
    }

    /// Bytes of the Reply, and perhaps of the first FPDUs after it.
    pub(super) fn on_reply_bytes(&mut self, key: usize) {
        let Some(Link::Starting(starting)) = self.qps.get_mut(key).map(|qp| &mut qp.link) else {
            return;
        };
        let (conn, initiator) = (starting.conn, Initiator::new(starting.params));
        let mut want = 1;
        let step = loop {
            let available = self.device.stack.readable_len(conn);
            if available < want {
                return;
            }
            starting.answered = true;
            match initiator.on_bytes(self.device.stack.readable(conn, want)) {
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
                self.device.stack.consume(conn, consumed);
                self.enter_rts(key, &negotiated, &private_data);
            }
            Ok(InitiatorStep::Unacceptable {
                negotiated, error, ..
            }) => self.decline(key, conn, &negotiated, error),
            Ok(InitiatorStep::Rejected {
                private_data,
                enhanced,
                ..
            }) => {
                // The peer has left MPA, and TCP is still in order (RFC 5044 §7.1.3): it ends gracefully.
                self.abandon(conn, Last::Frame);
                self.end_start(key, |peer| ConnectError::Rejected {
                    peer,
                    private_data: private_data.to_vec(),
                    enhanced,
                });
            }
            Err(source) => {
                self.device.counters.drop_startup += 1;
                self.fail_start(key, |peer| ConnectError::NotIwarp { peer, source });
            }
        }
    }

    /// The Reply said yes: full operation.
    fn enter_rts(&mut self, key: usize, negotiated: &Negotiated, private_data: &PrivateData) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let Link::Starting(starting) = std::mem::replace(&mut qp.link, Link::None) else {
            return;
        };
        let info = ConnectionInfo::new(negotiated, qp.wishes);
        let port = Arc::clone(&starting.port);
        let conn = starting.conn;
        let mut stream = Stream::new(conn, negotiated, false, &info, qp.extensions, port);
        stream.nudge = Nudge::new(self.mpa.nudge);
        if let Some(rtr) = info.rtr {
            stream.begin_rtr(rtr);
        }
        qp.enter_rts(stream, info);
        starting.tell(Ok(private_data.to_vec()));
        // The first FPDUs may have come along with the Reply, and work may have been posted in Idle.
        self.receive_fpdus(key);
    }

    /// The Reply said yes, on terms that cannot be met: full operation for no more than a Terminate (RFC 6581 §8). The queue pair
    /// stays Idle.
    fn decline(&mut self, key: usize, conn: ConnId, negotiated: &Negotiated, source: StartupError) {
        let mut framer = Framer::new(negotiated.crc, negotiated.send_markers);
        if let Some(terminate) = source.terminate() {
            let ulpdu = terminate.on_version(negotiated.version).ulpdu();
            if send_ulpdu(
                &mut self.device.stack,
                conn,
                &mut framer,
                &ulpdu,
                self.device.now,
            ) {
                self.device.counters.fpdus_out += 1;
                self.device.counters.terminates_out += 1;
            }
        }
        self.device.counters.drop_startup += 1;
        self.abandon(conn, Last::Frame);
        self.end_start(key, |peer| ConnectError::Unacceptable { peer, source });
    }

    /// TCP ended before the Reply was here.
    pub(super) fn on_start_failed(&mut self, key: usize, reason: CloseReason) {
        let Some(Link::Starting(starting)) = self.qps.get(key).map(|qp| &qp.link) else {
            return;
        };
        let own = starting.port.local().ip();
        if reason == CloseReason::AddressLost {
            self.fail_start(key, |_| ConnectError::AddressLost(own));
        } else if reason == CloseReason::TimedOut {
            self.on_start_timeout(key);
        } else if starting.requested || starting.retried {
            self.on_start_closed(key);
        } else {
            self.fail_start(key, ConnectError::Refused);
        }
    }

    /// The peer closed before the Reply was here.
    pub(super) fn on_start_closed(&mut self, key: usize) {
        if !self.retry(key) {
            self.fail_start(key, ConnectError::PeerClosed);
        }
    }

    /// The peer closed without a word: that is what one does which knows MPA revision 1 only. Once, and if what revision 2 has
    /// besides is not required, the same is tried with revision 1 on a new TCP connection (R6581-10-5); the deadline stays.
    fn retry(&mut self, key: usize) -> bool {
        let Some(qp) = self.qps.get_mut(key) else {
            return false;
        };
        let left = qp
            .deadline
            .map_or(Duration::ZERO, |end| end - self.device.now);
        let Link::Starting(starting) = &mut qp.link else {
            return false;
        };
        if starting.answered {
            return false;
        }
        let Some(params) = Initiator::new(starting.params).retry() else {
            return false;
        };
        let Some(port) = starting.spare.take() else {
            return false;
        };
        let path = Path {
            local: port.local(),
            remote: starting.remote,
            next_hop: starting.next_hop,
        };
        let conn = match self
            .device
            .stack
            .connect_within(path, left, self.device.now)
        {
            Ok(conn) => conn,
            Err(error) => {
                log::info!("no second try with {}: {error}", starting.remote);
                return false;
            }
        };
        log::info!(
            "{} closed upon MPA revision 2; trying revision 1",
            starting.remote
        );
        let old_conn = std::mem::replace(&mut starting.conn, conn);
        let old_port = std::mem::replace(&mut starting.port, Arc::new(port));
        starting.params = params;
        starting.requested = false;
        starting.retried = true;
        self.owners.remove(&old_conn);
        self.abandon(old_conn, Last::Frame);
        self.linger(old_port);
        self.own(conn, key);
        true
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
        let limit = self.device.now - starting.began;
        self.fail_start(key, |peer| ConnectError::TimedOut { peer, limit, stage });
    }

    /// The application gives up a connection that is being made.
    pub(super) fn lose_start(&mut self, key: usize) {
        self.fail_start(key, ConnectError::PeerClosed);
    }

    /// Ends a start-up by a reset.
    pub(super) fn fail_start(
        &mut self,
        key: usize,
        error: impl FnOnce(SocketAddr) -> ConnectError,
    ) {
        if let Some(Link::Starting(starting)) = self.qps.get(key).map(|qp| &qp.link) {
            self.device.stack.abort(starting.conn, self.device.now);
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

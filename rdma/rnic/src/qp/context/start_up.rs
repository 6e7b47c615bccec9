//! Ways into RTS: start-up as initiator, as responder, and the handover of a stream (verbs draft
//! §6.2.1; RFC 5044 §7.1).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_iwarp::ddp::VERSION_IETF;
use xwarp_iwarp::mpa::{Framer, InitiatorStep, Negotiated, PrivateData, StartupError};
use xwarp_iwarp::rdmap::Terminate;
use xwarp_tcp::{CloseReason, ConnId};

use super::{ConnStage, Connection, Phase, QpContext, RdmaDevice};
use crate::model::{
    ConnectError, ConnectionInfo, Framing, HostError, LocalPort, NextHop, StartUpParameters,
};
use crate::qp::device::ConnChange;
use crate::qp::first_fpdu_retry::FirstFpduRetry;
use crate::qp::new_qp::DoneWhen;
use crate::qp::starting::{Outcome, Searching, StartConnect, Starting};
use crate::qp::stream::{Extensions, send_ulpdu};
use crate::queues::Inbox;
use crate::tables::Searcher;

/// Longest time until the peer's window has room for the Reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

impl QpContext {
    /// Begins full operation on a connection. Returns the former stage.
    fn enter_rts(&mut self, connection: Connection, phase: Phase) -> ConnStage {
        self.terminate = None;
        self.unreported = false;
        self.shared.set_connection(connection.info());
        // Without ORD no Read may ask the peer.
        let may_ask = connection.info().ord > 0;
        let wants_to = self.done_when == DoneWhen::Handled;
        self.work.set_confirms(wants_to && may_ask);
        self.enter(ConnStage::Connected(Box::new(connection), phase))
    }

    /// Parameters of its next start-up.
    pub(crate) fn start_up(&self) -> StartUpParameters {
        self.start_up
    }

    /// What the next stream has besides the messages of RFC 5040.
    fn extensions(&self) -> Extensions {
        Extensions {
            rfc7306: self.extensions,
            send_immediates: self.shared.has_send_immediates(),
        }
    }

    /// The application has accepted a Request on this connection, and TCP has the Reply.
    pub(crate) fn accept(
        &mut self,
        conn: ConnId,
        port: Arc<LocalPort>,
        negotiated: &Negotiated,
        device: &mut RdmaDevice,
    ) {
        let info = ConnectionInfo::new(negotiated, self.start_up);
        let summed = device.computes_sums(conn);
        let extensions = self.extensions();
        let connection = Connection::new(conn, negotiated, true, info, extensions, port, summed);
        let waits = device.has_unsent(conn);
        let reply_due = waits.then(|| device.now + REPLY_TIMEOUT);
        self.enter_rts(connection, Phase::Open { reply_due });
        // Memory work that was posted in Idle takes effect before the peer's first FPDU.
        self.activate(device);
    }

    /// Idle to RTS: the queue pair takes the stream over, sends the message, and receives the
    /// peer's unread bytes.
    pub(crate) fn hand_over(
        &mut self,
        conn: ConnId,
        port: Arc<LocalPort>,
        framing: Framing,
        message: Option<Vec<u8>>,
        device: &mut RdmaDevice,
    ) {
        let negotiated = Negotiated {
            crc: framing.crc,
            send_markers: framing.send_markers,
            receive_markers: framing.receive_markers,
            revision: 0,
            version: VERSION_IETF,
            enhanced: None,
        };
        let info = ConnectionInfo::new(&negotiated, self.start_up);
        let extensions = self.extensions();
        let summed = device.computes_sums(conn);
        let mut connection =
            Connection::new(conn, &negotiated, false, info, extensions, port, summed);
        if let Some(message) = message {
            connection.stream_mut().begin_with(VecDeque::from(message));
        }
        self.enter_rts(connection, Phase::Open { reply_due: None });
        self.receive_fpdus(device);
    }
}

/// The initiator.
impl QpContext {
    /// Begins to connect. If the next hop is unknown, waits for the search.
    pub(crate) fn connect(
        &mut self,
        order: StartConnect,
        next_hop: NextHop,
        device: &mut RdmaDevice,
    ) {
        let next_hop = match next_hop {
            NextHop::Known(next_hop) => next_hop,
            NextHop::ThisHost => device.stack.mac(),
            NextHop::Searching(search) => {
                let search = (device.searches).begin(search, Searcher::Qp(self.id.slot()));
                let searching = Searching::new(search, order, device.now);
                self.enter(ConnStage::Searching(Box::new(searching)));
                return;
            }
        };
        let starting = Starting::begin(order, next_hop, device.now, device);
        self.enter(ConnStage::of_start(starting));
    }

    /// Handles the result of the search for the next hop.
    pub(crate) fn handle_next_hop(
        &mut self,
        next_hop: Result<[u8; 6], ConnectError>,
        device: &mut RdmaDevice,
    ) {
        match next_hop {
            Ok(next_hop) => self.pass_on(|stage| match stage {
                ConnStage::Searching(searching) => {
                    ConnStage::of_start(searching.connect(next_hop, device))
                }
                stage => stage,
            }),
            Err(error) => self.fail_start(error, device),
        }
    }

    /// Connects from the port that the host returned, as the answer to the SYN arrived at another
    /// engine.
    pub(crate) fn begin_anew(
        &mut self,
        conn: ConnId,
        answer: Result<LocalPort, HostError>,
        device: &mut RdmaDevice,
    ) {
        if let ConnStage::Starting(starting) = &mut self.stage {
            starting.begin_anew(conn, answer, device);
        }
    }

    /// TCP is established: sends the Request.
    pub(crate) fn handle_connected(&mut self, device: &mut RdmaDevice) {
        let ConnStage::Starting(starting) = &mut self.stage else {
            return;
        };
        if let Err(error) = starting.send_request(device) {
            self.fail_start(error, device);
        }
    }

    /// Handles bytes of the Reply, which the first FPDUs may follow.
    pub(super) fn on_reply_bytes(&mut self, device: &mut RdmaDevice) {
        let ConnStage::Starting(starting) = &mut self.stage else {
            return;
        };
        let peer = starting.remote();
        if let Some(step) = starting.read_reply(&mut device.stack) {
            self.on_reply(peer, step, device);
        }
    }

    fn on_reply(
        &mut self,
        peer: SocketAddr,
        step: Result<InitiatorStep, StartupError>,
        device: &mut RdmaDevice,
    ) {
        match step {
            Ok(InitiatorStep::NeedBytes(_)) => {}
            Ok(InitiatorStep::Accepted {
                negotiated,
                private_data,
                consumed,
            }) => {
                self.on_accepted(&negotiated, &private_data, consumed, device);
            }
            Ok(InitiatorStep::Unacceptable {
                negotiated, error, ..
            }) => self.decline(&negotiated, error, device),
            Ok(InitiatorStep::Rejected {
                private_data,
                enhanced,
                ..
            }) => {
                // The peer has left MPA, and TCP is still in sync (RFC 5044 §7.1.3): closes
                // gracefully.
                let rejected = ConnectError::Rejected {
                    peer,
                    private_data: private_data.to_vec(),
                    enhanced,
                };
                self.end_start(rejected, ConnChange::Abandoned, device);
            }
            Err(source) => {
                device.counters.drop_startup += 1;
                self.fail_start(ConnectError::NotIwarp { peer, source }, device);
            }
        }
    }

    /// The Reply accepts: begins full operation.
    fn on_accepted(
        &mut self,
        negotiated: &Negotiated,
        private_data: &PrivateData,
        consumed: usize,
        device: &mut RdmaDevice,
    ) {
        let ConnStage::Starting(starting) = &self.stage else {
            return;
        };
        let (conn, port) = (starting.conn(), Arc::clone(starting.port()));
        if let Some(mut tcp) = device.stack.conn_mut(conn) {
            tcp.consume(consumed);
        }
        let info = ConnectionInfo::new(negotiated, self.start_up);
        let (extensions, summed) = (self.extensions(), device.computes_sums(conn));
        let mut connection =
            Connection::new(conn, negotiated, false, info, extensions, port, summed);
        let retry = FirstFpduRetry::new(device.first_fpdu_retry);
        connection.stream_mut().begin_as_initiator(retry, info.rtr);
        let phase = Phase::Open { reply_due: None };
        let former = self.enter_rts(connection, phase);
        if let ConnStage::Starting(starting) = former {
            starting.finish(Ok(private_data.to_vec()));
        }
        // The first FPDUs may have arrived with the Reply, and work may have been posted in Idle.
        self.receive_fpdus(device);
    }

    /// The Reply accepts on terms that cannot be met: full operation begins only to send a
    /// Terminate (RFC 6581 §8). The queue pair stays Idle.
    fn decline(&mut self, negotiated: &Negotiated, source: StartupError, device: &mut RdmaDevice) {
        let ConnStage::Starting(starting) = &self.stage else {
            return;
        };
        let (conn, peer) = (starting.conn(), starting.remote());
        let mut framer = Framer::new(negotiated.crc, negotiated.send_markers);
        if let Some(code) = source.term_code() {
            let ulpdu = Terminate::with_code(code)
                .on_version(negotiated.version)
                .ulpdu();
            let tcp = device.stack.conn_mut(conn);
            if tcp.is_some_and(|mut tcp| send_ulpdu(&mut tcp, &mut framer, &ulpdu, device.now)) {
                device.counters.fpdus_out += 1;
                device.counters.terminates_out += 1;
            }
        }
        device.counters.drop_startup += 1;
        let unacceptable = ConnectError::Unacceptable { peer, source };
        self.end_start(unacceptable, ConnChange::Abandoned, device);
    }

    /// TCP ended before the whole Reply arrived.
    pub(super) fn on_start_failed(&mut self, reason: CloseReason, device: &mut RdmaDevice) {
        let ConnStage::Starting(starting) = &self.stage else {
            return;
        };
        let (own, peer) = (starting.port().local().ip(), starting.remote());
        if reason == CloseReason::AddressLost {
            self.fail_start(ConnectError::AddressLost(own), device);
        } else if reason == CloseReason::TimedOut {
            self.on_start_timeout(device);
        } else if starting.has_met_peer() {
            self.on_start_closed(device);
        } else {
            self.fail_start(ConnectError::Refused(peer), device);
        }
    }

    /// The peer closed before the whole Reply arrived.
    pub(super) fn on_start_closed(&mut self, device: &mut RdmaDevice) {
        if let ConnStage::Starting(starting) = &mut self.stage
            && !starting.retry(device)
        {
            self.cancel_start(device);
        }
    }

    /// The deadline of start-up has passed.
    pub(super) fn on_start_timeout(&mut self, device: &mut RdmaDevice) {
        if let ConnStage::Starting(starting) = &self.stage {
            let error = starting.timed_out(device.now);
            self.fail_start(error, device);
        }
    }

    /// Cancels a start-up on the application's or the peer's behalf.
    pub(super) fn cancel_start(&mut self, device: &mut RdmaDevice) {
        let remote = match &self.stage {
            ConnStage::Searching(searching) => searching.remote(),
            ConnStage::Starting(starting) => starting.remote(),
            ConnStage::None | ConnStage::Connected(..) | ConnStage::Failed => return,
        };
        self.fail_start(ConnectError::PeerClosed(remote), device);
    }

    /// Cancels the attempt with this outcome for the application.
    pub(crate) fn give_up_start(&mut self, outcome: &Arc<Inbox<Outcome>>, device: &mut RdmaDevice) {
        let is_this = match &self.stage {
            ConnStage::Searching(searching) => searching.has_outcome(outcome),
            ConnStage::Starting(starting) => starting.has_outcome(outcome),
            ConnStage::None | ConnStage::Connected(..) | ConnStage::Failed => false,
        };
        if is_this {
            self.cancel_start(device);
        }
    }

    /// Ends a start-up, if there is one, with an error: cancels the search, or resets TCP.
    pub(crate) fn fail_start(&mut self, error: ConnectError, device: &mut RdmaDevice) {
        match &self.stage {
            ConnStage::Searching(_) => {
                if let ConnStage::Searching(searching) = self.enter(ConnStage::None) {
                    searching.refuse(error, device);
                }
            }
            ConnStage::Starting(starting) => {
                device.stack.abort(starting.conn(), device.now);
                self.end_start(error, ConnChange::Released, device);
            }
            ConnStage::None | ConnStage::Connected(..) | ConnStage::Failed => {}
        }
    }

    /// Ends a start-up; the queue pair stays Idle and can be connected again.
    fn end_start(
        &mut self,
        error: ConnectError,
        release: fn(ConnId, Arc<LocalPort>) -> ConnChange,
        device: &mut RdmaDevice,
    ) {
        if let ConnStage::Starting(starting) = self.enter(ConnStage::None) {
            let change = release(starting.conn(), Arc::clone(starting.port()));
            device.note(change);
            starting.finish(Err(error));
        }
    }
}

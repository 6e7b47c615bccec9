//! Ways out of RTS: graceful close, Terminate, faults and resets (verbs draft §6.2; verbs.md
//! §12.4).
//!
//! Data from the peer is handled by the queue pair's phase:
//!
//! | phase | an FPDU | a Terminate | a FIN |
//! |---|---|---|---|
//! | open, draining | is handled | leads to Terminate | begins a graceful close, unless work is cut off |
//! | Closing, this side has sent its FIN | is handled, except requests | leads to Error | flushes the receives |
//! | Closing by Modify QP | leads to Error | leads to Error, and is kept | is awaited |
//! | Terminate | is dropped | is dropped | is awaited |
//!
//! `disconnect` is the close of RFC 5041 §6.2.1: posted work is sent, then the FIN, and messages of
//! the peer are placed until its own FIN. Only a Read Request, which can no longer be answered,
//! resets the connection. The queue pair is in Closing from the beginning. If it fails while it
//! still sends, it goes to Terminate, a transition that the verbs draft does not have. The draft's
//! own close (§6.2.5) is Modify QP to Closing: unfinished work or any byte from the peer resets the
//! connection.

use xwarp_iwarp::{
    InvalidateError, ReceivedTerminate, TermCode, Terminate, Violation, ViolationCause,
};
use xwarp_tcp::CloseReason;

use super::close_timer::{CLOSE_TIMEOUT, CloseTimer, Missing};
use super::{ConnStage, Ends, Phase, QpContext, RdmaDevice};
use crate::model::{
    AsyncEvent, AsyncEventKind, CompletionStatus, ConnectionEnd, EventResource, InboundError,
    QpAccess, QpState, TerminateInfo,
};
use crate::qp::fault::{CqOverflow, Inconsistency, ReceiveFault, SendFault, Unavailable};
use crate::qp::stream::{READY_TIMEOUT, Stream};

/// Reason of a bad close whose send queue has work.
const POSTED_IN_CLOSING: &str = "work was posted during the close";

/// Reason of a bad close for which a message of the peer has waited too long.
const BEHIND_A_MESSAGE: &str = "the peer closed behind a message that finds no receive buffer";
/// Why a close ends without the peer.
const NO_BUFFERS: &str = "the peer has no receive buffers for what was sent before the close";

/// RDMAP remote operation: catastrophic error, localized to the stream (RFC 5040 §4.8).
const CATASTROPHIC_STREAM: TermCode = TermCode::rdmap_operation(7);
/// RDMAP remote operation: catastrophic error, global (RFC 5040 §4.8).
const CATASTROPHIC_GLOBAL: TermCode = TermCode::rdmap_operation(8);

/// Events of TCP.
impl QpContext {
    /// The peer has closed its side; all earlier bytes were handled.
    pub(crate) fn handle_peer_closed(&mut self, device: &mut RdmaDevice) {
        let ConnStage::Connected(connection, phase) = &mut self.stage else {
            self.on_start_closed(device);
            return;
        };
        let (phase, stream) = (*phase, connection.stream_mut());
        if stream.is_holding() {
            // Earlier bytes are not handled yet.
            stream.hold_close(device.now);
            return;
        }
        stream.set_peer_closed();
        if phase.state() == QpState::Terminate {
            return;
        }
        if device.unread(stream.conn()) > 0 {
            // MPA error 1: the connection ended inside an FPDU (wire.md §4.4).
            self.fail_close("the peer closed inside an FPDU", device);
        } else if stream.mid_message() {
            self.fail_close("the peer closed inside a message", device);
        } else if stream.outstanding_reads() > usize::from(self.work.is_confirming()) {
            self.fail_cut_off("the peer closed while Reads were outstanding", device);
        } else if phase.begins_work() {
            self.confirm_rest(device);
            let disconnected = phase.state() == QpState::Closing;
            self.drain(disconnected, device);
        } else {
            self.note_end(&AsyncEventKind::Closed);
            self.work.flush(&mut device.cqs, None);
        }
    }

    /// TCP has ended the connection. `lost`: the peer has not acknowledged all messages.
    pub(crate) fn handle_closed(
        &mut self,
        reason: CloseReason,
        lost: bool,
        device: &mut RdmaDevice,
    ) {
        if let ConnStage::Starting(_) = &self.stage {
            self.on_start_failed(reason, device);
            return;
        }
        match (self.state(), reason) {
            (QpState::Terminate, CloseReason::Graceful) => self.fail(device),
            (QpState::Terminate, reason) => self.fail_terminating(describe(reason), device),
            (QpState::Idle | QpState::Error, _) => {}
            (QpState::Rts | QpState::Closing, CloseReason::Reset) if self.begins_work() => {
                self.lose(AsyncEventKind::ConnectionReset, lost, device);
            }
            (QpState::Closing, CloseReason::Graceful) if !self.begins_work() => {
                self.finish_close(device);
            }
            (QpState::Rts | QpState::Closing, reason) => {
                let reason = describe(reason);
                self.lose(AsyncEventKind::ConnectionLost { reason }, lost, device);
            }
        }
    }
}

/// Graceful close.
impl QpContext {
    /// Begins a graceful close: posted work is sent, then the FIN. The peer may continue to send
    /// until its own FIN (RFC 5041 §6.2.1). The application can post nothing more.
    pub(crate) fn disconnect(&mut self, device: &mut RdmaDevice) {
        self.cancel_start(device);
        if self.state() != QpState::Rts {
            return;
        }
        self.drain(true, device);
    }

    /// Starts to drain the send queue, after which the FIN is sent.
    fn drain(&mut self, disconnected: bool, device: &mut RdmaDevice) {
        let draining = Phase::Draining {
            timer: self.close_timer(device),
            disconnected,
        };
        self.enter_phase(draining);
        self.activate(device);
    }

    /// Sends the FIN of a graceful close once nothing is left to send and no Read waits for its
    /// response.
    pub(super) fn close_if_drained(&mut self, device: &mut RdmaDevice) {
        let ConnStage::Connected(connection, Phase::Draining { .. }) = &mut self.stage else {
            return;
        };
        let stream = connection.stream_mut();
        if self.work.has_in_flight() || !stream.is_drained(self.work.has_posted()) {
            return;
        }
        let peer_closed = stream.is_peer_closed();
        stream.close(&mut device.stack, device.now);
        let timer = self.close_timer(device);
        self.enter_phase(Phase::Closing { timer });
        if peer_closed {
            self.note_end(&AsyncEventKind::Closed);
            if !self.shared.ends_quietly() {
                self.work.flush(&mut device.cqs, None);
            }
        }
    }

    /// RTS to Closing: TCP closes. Unfinished work makes it a bad close; otherwise the receive
    /// queue is flushed.
    pub(super) fn seal(&mut self, device: &mut RdmaDevice) {
        let timer = self.close_timer(device);
        self.enter_phase(Phase::Sealed { timer });
        let ConnStage::Connected(connection, _) = &mut self.stage else {
            return;
        };
        let stream = connection.stream_mut();
        let has_work = self.work.has_sends();
        let has_bytes = device.unread(stream.conn()) > 0;
        if has_work || stream.in_progress() || has_bytes {
            let reason = "work was outstanding when the close was asked for";
            self.fail_close(reason, device);
            return;
        }
        stream.close(&mut device.stack, device.now);
        self.note_end(&AsyncEventKind::Closed);
        self.work.flush_receives(&mut device.cqs);
    }

    /// Handles work that was posted while the queue pair entered Closing: a receive is flushed, any
    /// other request is an error (verbs draft §6.2.5). As long as the peer of a disconnect may
    /// still send, its receives are needed, and unsent requests are no error. Neither are they if the
    /// end is quiet.
    pub(super) fn check_closing(&mut self, device: &mut RdmaDevice) {
        let ConnStage::Connected(connection, phase) = &self.stage else {
            return;
        };
        let may_come =
            !matches!(phase, Phase::Sealed { .. }) && !connection.stream().is_peer_closed();
        if phase.begins_work() || may_come || self.shared.ends_quietly() {
            return;
        }
        if self.work.has_posted() {
            self.fail_close(POSTED_IN_CLOSING, device);
        } else {
            self.note_end(&AsyncEventKind::Closed);
            self.work.flush_receives(&mut device.cqs);
        }
    }

    /// Both sides have closed. Work that was posted too late to be sent makes it a bad close (verbs
    /// draft §6.2.5), unless the end is quiet.
    fn finish_close(&mut self, device: &mut RdmaDevice) {
        if !self.shared.ends_quietly() {
            if self.work.has_posted() {
                self.fail_close(POSTED_IN_CLOSING, device);
                return;
            }
            self.work.flush_receives(&mut device.cqs);
        }
        self.become_idle(AsyncEventKind::Closed, device);
    }

    /// Closing to Idle. Reports the event before the state becomes Idle (verbs draft §6.2.5,
    /// verbs.md A31).
    fn become_idle(&mut self, kind: AsyncEventKind, device: &mut RdmaDevice) {
        self.note_end(&kind);
        let event = AsyncEvent {
            resource: EventResource::Qp(self.id),
            kind,
        };
        let mut former = ConnStage::None;
        (device.events).report_before(event, || former = self.enter(ConnStage::None));
        former.release(device);
    }

    /// The deadline for the peer has passed.
    pub(super) fn on_deadline(&mut self, device: &mut RdmaDevice) {
        match &mut self.stage {
            ConnStage::Starting(_) => self.on_start_timeout(device),
            ConnStage::Connected(_, Phase::Terminate { .. }) => {
                self.fail_terminating("the peer did not close its side", device);
            }
            ConnStage::Connected(connection, _)
                if (connection.stream().held_close_due()).is_some_and(|due| due <= device.now) =>
            {
                self.fail_close(BEHIND_A_MESSAGE, device);
            }
            ConnStage::Connected(connection, Phase::Open { reply_due }) => {
                if connection.stream().awaits_room(device) {
                    self.fail_without_reply(device);
                } else {
                    *reply_due = None;
                }
            }
            ConnStage::Connected(
                connection,
                Phase::Draining { timer, .. } | Phase::Closing { timer } | Phase::Sealed { timer },
            ) => {
                let conn = connection.stream().conn();
                let limit = if connection.stream().awaits_room(device) {
                    CLOSE_TIMEOUT // for the MPA Reply
                } else {
                    READY_TIMEOUT
                };
                let without_room = device.lacks_window(conn).then_some(limit);
                let unacked = device.unacked(conn);
                if let Some(missing) = timer.check(device.now, unacked, without_room) {
                    self.on_close_timeout(missing, device);
                }
            }
            ConnStage::None | ConnStage::Searching(_) | ConnStage::Failed => {}
        }
    }
}

/// Terminate and Error.
impl QpContext {
    /// Resets the connection: the peer's window has no room for the MPA Reply.
    fn fail_without_reply(&mut self, device: &mut RdmaDevice) {
        device.counters.drop_startup_timeout += 1;
        self.fail_lost("the peer had no room for the MPA Reply", device);
    }

    /// Ends a close that the peer does not let end.
    fn on_close_timeout(&mut self, missing: Missing, device: &mut RdmaDevice) {
        let stream = self.stream();
        match missing {
            Missing::Room if stream.is_some_and(|stream| stream.awaits_room(device)) => {
                self.fail_without_reply(device);
            }
            Missing::Room => self.fail_lost(NO_BUFFERS, device),
            Missing::Answer if self.begins_work() => {
                self.fail_cut_off("the peer did not answer a Read before the close", device);
            }
            Missing::Answer => self.fail_lost("the peer did not close its side", device),
        }
    }

    /// To Terminate, from RTS or from a disconnect that still sends. Nothing is received or begun
    /// any longer. The Terminate, if there is one, is sent next. All work is flushed, and TCP
    /// closes.
    fn enter_terminate(
        &mut self,
        terminate: Option<Terminate>,
        culprit: Option<CompletionStatus>,
        device: &mut RdmaDevice,
    ) {
        if let Some(terminate) = &terminate {
            self.keep_terminate(|| TerminateInfo::sent(terminate));
            self.attribute_own(terminate, device);
        }
        if self.state() == QpState::Closing && !self.begins_work() {
            // This side has sent its FIN, so no Terminate can follow (verbs draft §6.2.5).
            self.work.flush(&mut device.cqs, culprit);
            self.reset(device);
            return;
        }
        let since = device.now;
        self.enter_phase(Phase::Terminate { since });
        self.work.flush(&mut device.cqs, culprit);
        let ends = |stream: &mut Stream| stream.end(terminate, device);
        if self.stream_mut().is_some_and(ends) {
            self.activate(device);
        }
    }

    /// The queue pair that is its own peer refuses a message of its own, whose work request ends
    /// with that.
    fn attribute_own(&mut self, terminate: &Terminate, device: &RdmaDevice) {
        if let ConnStage::Connected(connection, _) = &self.stage
            && device.loops_back(connection.stream().conn())
        {
            let terminate = ReceivedTerminate::of(terminate);
            self.work.attribute(&terminate, connection.stream());
        }
    }

    /// Keeps a Terminate unless there was an earlier one: the first failure counts (verbs.md A34).
    pub(super) fn keep_terminate(&mut self, terminate: impl FnOnce() -> TerminateInfo) {
        self.terminate.get_or_insert_with(|| Box::new(terminate()));
    }

    /// To Error from any state at the application's request: resets and flushes (verbs draft
    /// §6.2.2.4).
    pub(crate) fn abort(&mut self, device: &mut RdmaDevice) {
        self.cancel_start(device);
        let was = self.state();
        self.shared.set_end(ConnectionEnd::Application);
        self.reset(device);
        if matches!(was, QpState::Rts | QpState::Closing) {
            self.report_end(device);
        }
    }

    /// Reports the end of a connection that no other event reports, if the application wants each
    /// end reported.
    fn report_end(&self, device: &RdmaDevice) {
        if self.ends == Ends::Each {
            self.report(AsyncEventKind::Ended, device);
        }
    }

    /// Resets the connection, and enters Error.
    fn reset(&mut self, device: &mut RdmaDevice) {
        if let Some(conn) = self.conn() {
            device.stack.abort(conn, device.now);
        }
        self.fail(device);
    }

    /// Enters Error without a connection: flushes all remaining work.
    fn fail(&mut self, device: &mut RdmaDevice) {
        self.enter(ConnStage::Failed).release(device);
        self.work.flush(&mut device.cqs, None);
    }

    /// The connection is gone: enters Error, or Idle if that is quiet, and reports the event.
    fn lose(&mut self, kind: AsyncEventKind, lost: bool, device: &mut RdmaDevice) {
        if !lost {
            self.confirm_rest(device);
            if self.may_end_quietly() {
                self.end_quietly(kind, device);
                return;
            }
        }
        self.note_end(&kind);
        self.fail(device);
        self.report(kind, device);
    }

    /// Resets the connection, as no graceful close is possible, enters Error, and reports a bad
    /// close (verbs draft §6.2.5).
    pub(crate) fn fail_close(&mut self, reason: &'static str, device: &mut RdmaDevice) {
        let kind = AsyncEventKind::BadClose { reason };
        self.note_end(&kind);
        self.reset(device);
        self.report(kind, device);
    }

    /// Resets the connection because the peer no longer answers.
    fn fail_lost(&mut self, reason: &'static str, device: &mut RdmaDevice) {
        let mut lost = false;
        if let Some(conn) = self.conn() {
            lost = device.unacked(conn) > 0;
            device.stack.abort(conn, device.now);
        }
        self.lose(AsyncEventKind::ConnectionLost { reason }, lost, device);
    }

    /// No response can come any more, and the peer has not refused what was sent: it is confirmed.
    fn confirm_rest(&mut self, device: &mut RdmaDevice) {
        if self.work.is_confirming()
            && let Some(stream) = self.stream_mut()
            && stream.outstanding_reads() == 1
        {
            stream.forget_reads();
            self.work.drop_confirmation();
        }
        if self.work.confirms() {
            self.work.confirm_all(&mut device.cqs);
        }
    }

    /// Whether the connection is lost without harm: no request or message is unfinished.
    fn may_end_quietly(&self) -> bool {
        let is_unfinished = |stream: &Stream| self.work.has_sends() || stream.in_progress();
        let stream = self.stream();
        self.shared.ends_quietly() && stream.is_some_and(|stream| !is_unfinished(stream))
    }

    /// Enters Idle without a connection, and reports the event. Receive buffers stay posted.
    fn end_quietly(&mut self, kind: AsyncEventKind, device: &mut RdmaDevice) {
        let timer = CloseTimer::new(device.now, 0);
        self.enter_phase(Phase::Closing { timer });
        self.become_idle(kind, device);
    }

    /// The connection fails during the close after a Terminate. If no event has reported why the
    /// queue pair fails, this reports a bad close (verbs draft §6.2.3).
    fn fail_terminating(&mut self, reason: &'static str, device: &mut RdmaDevice) {
        if self.unreported {
            self.fail_close(reason, device);
        } else {
            self.reset(device);
        }
    }

    /// Ends the queue pair: outstanding work needs the peer, which has closed its side (wire.md
    /// D21).
    fn fail_cut_off(&mut self, reason: &'static str, device: &mut RdmaDevice) {
        self.terminate_as(AsyncEventKind::BadPeerClose { reason }, device);
    }

    /// To Terminate for an error of this side that concerns only this stream, and reports the
    /// event.
    fn terminate_as(&mut self, kind: AsyncEventKind, device: &mut RdmaDevice) {
        self.note_end(&kind);
        self.enter_terminate(Some(catastrophic()), None, device);
        self.report(kind, device);
    }

    /// Ends the queue pair without an event, because a completion reports the failure (verbs draft
    /// §8.3.2), or the application requested the end. If there is a `culprit`, the newest send in
    /// flight completes with it.
    fn fail_unreported(
        &mut self,
        terminate: Terminate,
        culprit: Option<CompletionStatus>,
        device: &mut RdmaDevice,
    ) {
        self.unreported = true;
        if let Some(status) = culprit {
            self.shared.set_end(ConnectionEnd::WorkFailed(status));
        }
        self.enter_terminate(Some(terminate), culprit, device);
        self.report_end(device);
    }

    /// RTS to Terminate at the application's request. The Terminate has no other cause (verbs draft
    /// §6.2.2.3, figure 12).
    pub(super) fn terminate_for_ulp(&mut self, device: &mut RdmaDevice) {
        self.shared.set_end(ConnectionEnd::Application);
        self.fail_unreported(Terminate::local(), None, device);
    }

    /// Error to Idle. All work was flushed when the queue pair entered Error, except for requests
    /// that were posted at the same time.
    pub(super) fn revive(&mut self, device: &mut RdmaDevice) {
        self.work.flush(&mut device.cqs, None);
        self.terminate = None;
        self.enter(ConnStage::None);
    }

    /// Ends the queue pair because the RNIC has failed, with a Terminate if one may be sent.
    pub(crate) fn end_with_rnic(&mut self, device: &mut RdmaDevice) {
        self.cancel_start(device);
        if !matches!(self.state(), QpState::Rts | QpState::Closing) {
            return;
        }
        self.shared.set_end(ConnectionEnd::Rnic);
        if self.may_send() {
            let terminate = Terminate::with_code(CATASTROPHIC_GLOBAL);
            self.enter_terminate(Some(terminate), None, device);
        } else {
            self.reset(device);
        }
        self.report_end(device);
    }

    /// Destroy QP, even with bound windows. Its connection ends by a reset.
    pub(crate) fn destroy(&mut self, device: &mut RdmaDevice) {
        self.cancel_start(device);
        if let Some(conn) = self.conn() {
            device.stack.abort(conn, device.now);
        }
        self.shared.set_destroyed();
        self.enter(ConnStage::Failed).release(device);
    }

    /// The engine has ended: the queue pair's handles show the state Error.
    pub(crate) fn show_engine_gone(&mut self) {
        self.enter(ConnStage::Failed);
    }

    fn may_send(&self) -> bool {
        self.stream().is_some_and(Stream::is_open)
    }
}

/// Faults while sending.
impl QpContext {
    pub(super) fn on_send_fault(&mut self, fault: SendFault, device: &mut RdmaDevice) {
        match fault {
            SendFault::Request(status) => {
                self.fail_unreported(Terminate::local(), Some(status), device);
            }
            SendFault::Response(terminate) => {
                // The source of the peer's Read is no longer valid.
                let error = InboundError::of_source(terminate.code());
                let reason = "memory that the peer asked for is gone".to_owned();
                self.fail_inbound(terminate, error, reason, device);
            }
            SendFault::Overflow(overflow) => self.fail_overflow(overflow, device),
            SendFault::Inconsistency(broken) => self.fail_broken_send(broken, device),
        }
    }

    /// Local QP Catastrophic Error while the newest work request in flight was processed. Its
    /// completion reports the error.
    fn fail_broken_send(&mut self, Inconsistency(reason): Inconsistency, device: &mut RdmaDevice) {
        log::error!("queue pair {} is broken: {reason}", self.id);
        if self.work.has_in_flight() {
            let culprit = Some(CompletionStatus::LocalCatastrophic);
            self.fail_unreported(catastrophic(), culprit, device);
        } else {
            self.fail_catastrophic(reason, device);
        }
    }

    /// A completion queue is full (verbs draft §8.2.4, verbs.md A3).
    fn fail_overflow(&mut self, overflow: CqOverflow, device: &mut RdmaDevice) {
        device.counters.drop_cq_overflow += 1;
        let kind = match overflow {
            CqOverflow::Send => AsyncEventKind::SendCqError,
            CqOverflow::Receive => AsyncEventKind::RecvCqError,
        };
        self.terminate_as(kind, device);
    }

    fn fail_catastrophic(&mut self, reason: &'static str, device: &mut RdmaDevice) {
        self.terminate_as(AsyncEventKind::QpCatastrophic { reason }, device);
    }
}

/// Faults while receiving.
impl QpContext {
    pub(super) fn on_receive_fault(&mut self, fault: ReceiveFault, device: &mut RdmaDevice) {
        match fault {
            ReceiveFault::NotReady => {}
            ReceiveFault::Mpa(error) => {
                device.counters.drop_bad_fpdu += 1;
                let reason = error.to_string();
                self.fail_inbound(error.terminate(), error.into(), reason, device);
            }
            ReceiveFault::Violation(violation) => self.on_violation(&violation, device),
            ReceiveFault::Buffer(status) => {
                self.complete_receive(status, device);
                self.fail_unreported(Terminate::local(), None, device);
            }
            ReceiveFault::Sink { status, what } => {
                log::debug!("queue pair {}: {what}", self.id);
                self.shared.set_end(ConnectionEnd::WorkFailed(status));
                self.fail_unreported(Terminate::local(), None, device);
            }
            ReceiveFault::Terminated(terminate) => self.on_terminate_received(&terminate, device),
            ReceiveFault::RequestAfterClose => {
                let reason = "the peer asked for a response after this side had closed";
                self.fail_close(reason, device);
            }
            ReceiveFault::Overflow(overflow) => self.fail_overflow(overflow, device),
            ReceiveFault::Inconsistency(broken) => self.fail_broken_receive(broken, device),
        }
    }

    fn on_terminate_received(&mut self, terminate: &ReceivedTerminate, device: &mut RdmaDevice) {
        device.counters.terminates_in += 1;
        self.keep_terminate(|| TerminateInfo::received(terminate));
        if let ConnStage::Connected(connection, _) = &self.stage {
            self.work.attribute(terminate, connection.stream());
        }
        let kind = AsyncEventKind::TerminateReceived(terminate.code);
        self.note_end(&kind);
        self.enter_terminate(None, None, device);
        self.report(kind, device);
    }

    fn on_violation(&mut self, violation: &Violation, device: &mut RdmaDevice) {
        if let ViolationCause::NoReceive { .. } = violation.cause()
            && let Some(why) = self.work.receive_mut().take_unavailable()
        {
            self.fail_source(why, device);
            return;
        }
        device.counters.drop_refused_segment += 1;
        let (cause, terminate) = (violation.cause(), violation.terminate());
        let Some(status) = receive_status(cause) else {
            let may_write = self.user.has(QpAccess::INBOUND_WRITE);
            let error = InboundError::of(cause, may_write);
            self.fail_inbound(terminate, error, cause.to_string(), device);
            return;
        };
        // The completion of the receive reports the error; no event does.
        self.complete_receive(status, device);
        if self.may_send() {
            self.fail_unreported(terminate, None, device);
        } else {
            let reason = "the peer sent what cannot be received after this side had closed";
            self.fail_close(reason, device);
        }
    }

    /// The peer has violated the protocol: sends a Terminate, and reports an event with the error.
    fn fail_inbound(
        &mut self,
        terminate: Terminate,
        error: InboundError,
        reason: String,
        device: &mut RdmaDevice,
    ) {
        let kind = AsyncEventKind::Terminated {
            error,
            code: terminate.code(),
            reason,
        };
        self.note_end(&kind);
        if self.may_send() {
            self.enter_terminate(Some(terminate), None, device);
        } else {
            // Resets the connection: no FPDU may be sent before one was received (wire.md D1), nor
            // after the FIN.
            self.reset(device);
        }
        self.report(kind, device);
    }

    /// A message has found no buffer, which is not the peer's fault.
    fn fail_source(&mut self, why: Unavailable, device: &mut RdmaDevice) {
        match why {
            Unavailable::Malformed(broken) => self.fail_broken_receive(broken, device),
            Unavailable::SrqFailed => {
                self.terminate_as(AsyncEventKind::SrqError, device);
            }
        }
    }

    /// Local QP Catastrophic Error while a message was received. The completion of the receive
    /// reports the error, if there is one.
    fn fail_broken_receive(
        &mut self,
        Inconsistency(reason): Inconsistency,
        device: &mut RdmaDevice,
    ) {
        log::error!("queue pair {} is broken: {reason}", self.id);
        if self.work.receive().current().is_some() {
            self.complete_receive(CompletionStatus::LocalCatastrophic, device);
            self.fail_unreported(catastrophic(), None, device);
        } else {
            self.fail_catastrophic(reason, device);
        }
    }

    fn complete_receive(&mut self, status: CompletionStatus, device: &mut RdmaDevice) {
        self.shared.set_end(ConnectionEnd::WorkFailed(status));
        let completed = (self.work).complete_receive(&mut device.cqs, |completion| {
            completion.status = status;
        });
        if completed.is_err() {
            device.counters.drop_cq_overflow += 1;
        }
    }
}

impl ConnStage {
    /// Releases the connection, if there is one.
    fn release(self, device: &mut RdmaDevice) {
        match self {
            Self::Connected(connection, _) => connection.release(device),
            Self::Searching(_) | Self::Starting(_) | Self::None | Self::Failed => {}
        }
    }
}

/// The Terminate for an error of this side that concerns only this stream.
fn catastrophic() -> Terminate {
    Terminate::with_code(CATASTROPHIC_STREAM)
}

fn describe(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Graceful => "the connection was closed",
        CloseReason::Refused => "the connection was refused",
        CloseReason::Reset => "the peer reset the connection",
        CloseReason::AddressLost => "this host has lost the connection's address",
        CloseReason::TimedOut => "the peer no longer answers",
        CloseReason::Aborted => "the connection was reset by this side",
    }
}

/// Status of the current receive after a violation. A refused Send ends it: the message is too long
/// (verbs.md A7), or requests an invalidation that is not allowed (verbs.md A9). Any other
/// violation is no fault of the receive.
fn receive_status(cause: ViolationCause) -> Option<CompletionStatus> {
    if let ViolationCause::MessageTooLong { opcode, .. } = cause {
        return opcode.is_send().then_some(CompletionStatus::BaseBounds);
    }
    let ViolationCause::Invalidate { cause, .. } = cause else {
        return None;
    };
    Some(match cause {
        InvalidateError::InvalidStag => CompletionStatus::InvalidStag,
        InvalidateError::NotAssociated | InvalidateError::Rights | InvalidateError::Forbidden => {
            CompletionStatus::InvalidateRefused
        }
    })
}

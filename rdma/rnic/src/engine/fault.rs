//! Errors: what ends a stream, what the peer and the application are told, and how the queue pair ends (verbs draft §6.2; verbs.md
//! §12.4).

use std::time::Duration;

use xwarp_iwarp::{
    InvalidateError, ReceivedTerminate, TermCode, Terminate, Violation, ViolationCause,
};

use super::Engine;
use crate::model::{
    Ability, AsyncEventKind, CompletionStatus, EventResource, InboundError, QpState, TerminateInfo,
};
use crate::qp::{CqOverflow, Gate, Link, ReceiveFault};

/// How long a Terminate and the close after it may take before the connection is reset.
pub(super) const TERMINATE_LIMIT: Duration = Duration::from_secs(3);

/// RDMAP remote operation: catastrophic error, localized to the stream (RFC 5040 §4.8).
pub(super) const CATASTROPHIC_STREAM: TermCode = TermCode::rdmap_operation(7);

impl Engine {
    pub(super) fn on_receive_fault(&mut self, key: usize, fault: ReceiveFault) {
        match fault {
            ReceiveFault::Mpa(error) => {
                self.device.counters.drop_bad_fpdu += 1;
                self.fail_inbound(key, error.terminate(), error.into(), error.to_string());
            }
            ReceiveFault::Violation(violation) => self.on_violation(key, &violation),
            ReceiveFault::Buffer(status) => {
                self.complete_receive(key, status);
                self.fail_unreported(key, Terminate::local(), None);
            }
            ReceiveFault::Sink(what) => {
                log::debug!("queue pair {key}: {what}");
                self.fail_unreported(key, Terminate::local(), None);
            }
            ReceiveFault::Terminated(terminate) => {
                self.device.counters.terminates_in += 1;
                self.on_terminate_received(key, &terminate);
            }
            ReceiveFault::RequestAfterClose => {
                self.lose(
                    key,
                    "the peer asked for a response after this side had closed",
                );
            }
            ReceiveFault::Overflow(overflow) => self.fail_overflow(key, overflow),
            ReceiveFault::Broken(broken) => self.fail_broken_receive(key, broken),
        }
    }

    fn on_violation(&mut self, key: usize, violation: &Violation) {
        if let ViolationCause::NoReceive { .. } = violation.cause()
            && self.fail_source(key)
        {
            return;
        }
        self.device.counters.drop_refused_segment += 1;
        let (cause, terminate) = (violation.cause(), violation.terminate());
        let Some(status) = receive_status(cause) else {
            let may_write =
                (self.qps.get(key)).is_some_and(|qp| qp.user.can(Ability::INBOUND_WRITE));
            let error = InboundError::of(cause, may_write);
            self.fail_inbound(key, terminate, error, cause.to_string());
            return;
        };
        // The completion of the receive tells of it, and no event.
        self.complete_receive(key, status);
        if self.may_send(key) {
            self.fail_unreported(key, terminate, None);
        } else {
            self.lose(
                key,
                "the peer sent what cannot be received after this side had closed",
            );
        }
    }

    /// The peer has broken a rule: Terminate, and an event that says which.
    fn fail_inbound(
        &mut self,
        key: usize,
        terminate: Terminate,
        error: InboundError,
        reason: String,
    ) {
        let code = terminate.code();
        if self.may_send(key) {
            self.enter_terminate(key, Some(terminate), None);
        } else {
            // The connection just ends: no FPDU may be sent before one was received (wire.md D1), nor after the FIN.
            self.lose_silently(key);
        }
        let kind = AsyncEventKind::Terminated {
            error,
            code,
            reason,
        };
        self.report_for(key, kind);
    }

    /// The queue pair fails, and no event says so: a completion does (verbs draft §8.3.2), if `culprit` says so that of the newest begun
    /// send, or the application has asked for it.
    pub(super) fn fail_unreported(
        &mut self,
        key: usize,
        terminate: Terminate,
        culprit: Option<CompletionStatus>,
    ) {
        if let Some(qp) = self.qps.get_mut(key) {
            qp.unreported = true;
        }
        self.enter_terminate(key, Some(terminate), culprit);
    }

    /// Memory that the peer reads is no longer there.
    pub(super) fn fail_response(&mut self, key: usize, terminate: Terminate) {
        let error = InboundError::of_source(terminate.code());
        let reason = "memory that the peer asked for is gone".to_owned();
        self.fail_inbound(key, terminate, error, reason);
    }

    /// A completion queue of ours is full (verbs draft §8.2.4, verbs.md A3).
    pub(super) fn fail_overflow(&mut self, key: usize, overflow: CqOverflow) {
        self.device.counters.drop_cq_overflow += 1;
        self.enter_terminate(key, Some(Terminate::with_code(CATASTROPHIC_STREAM)), None);
        let kind = match overflow {
            CqOverflow::Send => AsyncEventKind::SendCqError,
            CqOverflow::Receive => AsyncEventKind::RecvCqError,
        };
        self.report_for(key, kind);
    }

    fn on_terminate_received(&mut self, key: usize, terminate: &ReceivedTerminate) {
        if let Some(qp) = self.qps.get_mut(key) {
            qp.keep_terminate(|| TerminateInfo::received(terminate));
            qp.blame(terminate);
        }
        self.enter_terminate(key, None, None);
        self.report_for(key, AsyncEventKind::TerminateReceived(terminate.code));
    }

    /// Work is left that the peer, which has closed its side, can no longer complete (wire.md D21).
    pub(super) fn fail_cut_off(&mut self, key: usize, reason: &'static str) {
        self.enter_terminate(key, Some(Terminate::with_code(CATASTROPHIC_STREAM)), None);
        self.report_for(key, AsyncEventKind::BadPeerClose { reason });
    }

    /// RTS to Terminate: nothing more is received or begun; the Terminate, if one is to be sent, goes out next; everything is
    /// flushed; then TCP closes.
    pub(super) fn enter_terminate(
        &mut self,
        key: usize,
        terminate: Option<Terminate>,
        culprit: Option<CompletionStatus>,
    ) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        if let Some(terminate) = &terminate {
            qp.keep_terminate(|| TerminateInfo::sent(terminate));
        }
        if qp.state() == QpState::Closing {
            // This side has sent its FIN: nobody can be told any more (verbs draft §6.2.5).
            qp.flush(&mut self.device.cqs, culprit);
            self.lose_silently(key);
            return;
        }
        qp.set_state(QpState::Terminate);
        qp.flush(&mut self.device.cqs, culprit);
        qp.deadline = Some(self.device.now + TERMINATE_LIMIT);
        let Link::Stream(stream) = &mut qp.link else {
            return;
        };
        stream.outgoing = None;
        stream.responses.clear();
        let conn = stream.conn;
        let rest = self.device.stack.readable_len(conn);
        self.device.counters.drop_after_failure += rest as u64;
        if terminate.is_some() && stream.gate == Gate::Open {
            self.device.counters.terminates_out += 1;
            let version = stream.version;
            stream.terminate = terminate.map(|terminate| terminate.on_version(version));
            self.activate(key);
        } else {
            stream.gate = Gate::Shut;
            self.device.stack.close(conn, self.device.now);
        }
        self.device.stack.consume(conn, rest);
    }

    /// Resets the connection and fails the queue pair; then says so (verbs draft §6.2.5).
    pub(super) fn lose(&mut self, key: usize, reason: &'static str) {
        self.lose_silently(key);
        self.report_for(key, AsyncEventKind::BadClose { reason });
    }

    /// The connection fails while it is closed after a Terminate. Where no event has said why the queue pair fails, this one says
    /// that its end was no orderly one (verbs draft §6.2.3).
    pub(super) fn lose_terminating(&mut self, key: usize, reason: &'static str) {
        if self.qps.get(key).is_some_and(|qp| qp.unreported) {
            self.lose(key, reason);
        } else {
            self.lose_silently(key);
        }
    }

    pub(super) fn lose_silently(&mut self, key: usize) {
        let Some(qp) = self.qps.get(key) else {
            return;
        };
        if let Link::Stream(stream) = &qp.link {
            let conn = stream.conn;
            self.owners.remove(&conn);
            self.device.stack.abort(conn, self.device.now);
        }
        self.enter_error(key);
    }

    /// The connection is gone: flushes what is left.
    pub(super) fn enter_error(&mut self, key: usize) {
        self.detach(key);
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        qp.deadline = None;
        qp.set_state(QpState::Error);
        qp.flush(&mut self.device.cqs, None);
    }

    pub(super) fn may_send(&mut self, key: usize) -> bool {
        let stream = self.qps.get_mut(key).and_then(|qp| qp.stream());
        stream.is_some_and(|stream| stream.gate == Gate::Open)
    }

    pub(super) fn report_for(&self, key: usize, kind: AsyncEventKind) {
        if let Some(qp) = self.qps.get(key) {
            self.device.report(EventResource::Qp(qp.id), kind);
        }
    }

    pub(super) fn complete_receive(&mut self, key: usize, status: CompletionStatus) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let completed = qp.complete_receive(&mut self.device.cqs, |completion| {
            completion.status = status;
        });
        if completed.is_err() {
            self.device.counters.drop_cq_overflow += 1;
        }
    }
}

/// A Send that is refused ends the receive it has taken: too long for it (verbs.md A7), or asking for an invalidation that is not
/// allowed (verbs.md A9). Any other violation is no fault of the receive that is being filled.
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

//! Errors: what ends a stream, what the peer and the application are told, and how the queue pair ends (verbs draft §6.2, digest
//! 12.4).

use std::time::Duration;

use xwarp_iwarp::{InvalidateError, TermCode, Terminate, ViolationCause};

use super::Engine;
use super::qp::{CqOverflow, Link};
use super::receive::ReceiveFault;
use super::stream::Gate;
use crate::completion::CompletionStatus;
use crate::event::AsyncEventKind;
use crate::qp::QpState;

/// How long a Terminate and the close after it may take before the connection is reset.
pub(super) const TERMINATE_LIMIT: Duration = Duration::from_secs(3);

/// RDMAP remote operation: catastrophic error, localized to the stream (RFC 5040 §4.8).
const CATASTROPHIC_STREAM: TermCode = TermCode::rdmap_operation(7);

impl Engine {
    pub(super) fn on_receive_fault(&mut self, key: usize, fault: ReceiveFault) {
        match fault {
            ReceiveFault::Mpa(error) => {
                self.counters.drop_bad_fpdu += 1;
                self.fail_inbound(key, error.terminate(), error.to_string());
            }
            ReceiveFault::Violation(violation) => {
                self.counters.drop_refused_segment += 1;
                if let Some(status) = receive_status(violation.cause()) {
                    self.complete_receive(key, status);
                }
                self.fail_inbound(key, violation.terminate(), violation.cause().to_string());
            }
            ReceiveFault::Buffer(status) => {
                self.complete_receive(key, status);
                self.fail_local(
                    key,
                    Terminate::local(),
                    None,
                    "a receive buffer cannot be used",
                );
            }
            ReceiveFault::Sink(what) => {
                log::debug!("queue pair {key}: {what}");
                self.enter_terminate(key, Some(Terminate::local()), None);
            }
            ReceiveFault::Terminated(terminate) => {
                self.counters.terminates_in += 1;
                self.on_terminate_received(key, terminate.code);
            }
            ReceiveFault::RequestAfterClose => {
                self.lose(
                    key,
                    "the peer asked for a response after this side had closed",
                );
            }
            ReceiveFault::Overflow(overflow) => self.fail_overflow(key, overflow),
        }
    }

    /// The peer has broken a rule: Terminate, and an event that says which.
    fn fail_inbound(&mut self, key: usize, terminate: Terminate, reason: String) {
        let kind = AsyncEventKind::Terminated {
            code: terminate.code(),
            reason,
        };
        let may_send = self.may_send(key);
        self.report_for(key, kind);
        if may_send {
            self.enter_terminate(key, Some(terminate), None);
        } else {
            // The connection just ends: no FPDU may be sent before one was received (digest D1), nor after the FIN.
            self.lose_silently(key);
        }
    }

    /// A work request or buffer of our own is at fault; its completion says so (verbs draft §8.3.2).
    pub(super) fn fail_local(
        &mut self,
        key: usize,
        terminate: Terminate,
        culprit: Option<CompletionStatus>,
        what: &'static str,
    ) {
        log::debug!("queue pair {key}: {what}");
        if culprit.is_none() {
            self.report_for(
                key,
                AsyncEventKind::Terminated {
                    code: terminate.code(),
                    reason: what.to_owned(),
                },
            );
        }
        self.enter_terminate(key, Some(terminate), culprit);
    }

    /// A completion queue of ours is full (verbs draft §8.2.4, digest A3).
    pub(super) fn fail_overflow(&mut self, key: usize, overflow: CqOverflow) {
        self.counters.drop_cq_overflow += 1;
        let kind = match overflow {
            CqOverflow::Send => AsyncEventKind::SendCqError,
            CqOverflow::Receive => AsyncEventKind::RecvCqError,
        };
        self.report_for(key, kind);
        self.enter_terminate(key, Some(Terminate::with_code(CATASTROPHIC_STREAM)), None);
    }

    fn on_terminate_received(&mut self, key: usize, code: TermCode) {
        self.report_for(key, AsyncEventKind::TerminateReceived(code));
        self.enter_terminate(key, None, None);
    }

    /// Work is left that the peer, which has closed its side, can no longer complete (digest D21).
    pub(super) fn fail_cut_off(&mut self, key: usize, reason: &'static str) {
        self.report_for(key, AsyncEventKind::BadClose { reason });
        self.enter_terminate(key, Some(Terminate::with_code(CATASTROPHIC_STREAM)), None);
    }

    /// RTS to Terminate: nothing more is received or begun; the Terminate, if one is to be sent, goes out next; everything is
    /// flushed; then TCP closes.
    fn enter_terminate(
        &mut self,
        key: usize,
        terminate: Option<Terminate>,
        culprit: Option<CompletionStatus>,
    ) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        qp.set_state(QpState::Terminate);
        qp.flush(&mut self.cqs, culprit);
        qp.deadline = Some(self.now + TERMINATE_LIMIT);
        let Link::Stream(stream) = &mut qp.link else {
            return;
        };
        stream.outgoing = None;
        stream.responses.clear();
        let conn = stream.conn;
        let rest = self.stack.readable_len(conn);
        self.counters.drop_after_failure += rest as u64;
        if terminate.is_some() && stream.gate == Gate::Open {
            self.counters.terminates_out += 1;
            let version = stream.version;
            stream.terminate = terminate.map(|terminate| terminate.on_version(version));
            self.activate(key);
        } else {
            stream.gate = Gate::Shut;
            self.stack.close(conn, self.now);
        }
        self.stack.consume(conn, rest);
    }

    /// Resets the connection and fails the queue pair.
    pub(super) fn lose(&mut self, key: usize, reason: &'static str) {
        self.report_for(key, AsyncEventKind::BadClose { reason });
        self.lose_silently(key);
    }

    pub(super) fn lose_silently(&mut self, key: usize) {
        let Some(qp) = self.qps.get(key) else {
            return;
        };
        if let Link::Stream(stream) = &qp.link {
            let conn = stream.conn;
            self.owners.remove(&conn);
            self.stack.abort(conn, self.now);
        }
        self.enter_error(key);
    }

    /// The connection is gone: flushes what is left.
    pub(super) fn enter_error(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        qp.set_state(QpState::Error);
        qp.flush(&mut self.cqs, None);
        qp.deadline = None;
        self.detach(key);
    }

    fn may_send(&mut self, key: usize) -> bool {
        let stream = self.qps.get_mut(key).and_then(|qp| qp.stream());
        stream.is_some_and(|stream| stream.gate == Gate::Open)
    }

    pub(super) fn report_for(&self, key: usize, kind: AsyncEventKind) {
        self.report(self.qps.get(key).map(|qp| qp.id), kind);
    }

    fn complete_receive(&mut self, key: usize, status: CompletionStatus) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let completed = qp.complete_receive(&mut self.cqs, |completion| completion.status = status);
        if completed.is_err() {
            self.counters.drop_cq_overflow += 1;
        }
    }
}

/// A Send that is refused ends the receive it has taken: too long for it (digest A7), or asking for an invalidation that is not
/// allowed (digest A9). Any other violation is no fault of the receive that is being filled.
fn receive_status(cause: ViolationCause) -> Option<CompletionStatus> {
    if let ViolationCause::MessageTooLong { opcode, .. } = cause {
        return opcode.is_send().then_some(CompletionStatus::BaseBounds);
    }
    let ViolationCause::Invalidate { cause, .. } = cause else {
        return None;
    };
    Some(match cause {
        InvalidateError::InvalidStag => CompletionStatus::InvalidStag,
        InvalidateError::NotAssociated | InvalidateError::Forbidden => {
            CompletionStatus::InvalidateRefused
        }
    })
}

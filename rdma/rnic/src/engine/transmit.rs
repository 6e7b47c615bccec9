//! Sending: work requests, responses and the Terminate, one FPDU per TCP segment.

use xwarp_iwarp::Terminate;
use xwarp_iwarp::mpa::Framer;
use xwarp_tcp::Stack;

use super::begin::{Next, begin_message};
use super::outgoing::Outgoing;
use super::qp::{CqOverflow, Link, QpContext};
use super::stream::{Gate, Stream, Turn, send_ulpdu};
use super::{Broken, Engine, TX_BUDGET};
use crate::model::{CompletionStatus, QpState};
use crate::stags::StagTable;

/// What one attempt to send came to.
enum Sent {
    /// An FPDU was handed to TCP.
    Fpdu,
    /// A whole message was: the work request or response is done.
    Message(Turn),
    /// A work request was done that sends nothing.
    Work,
    /// TCP takes nothing now; it will say when it does.
    Blocked,
    /// There is nothing to send.
    Nothing,
}

/// Why sending cannot go on.
pub(super) enum SendFault {
    /// The current work request is at fault.
    Request(CompletionStatus),
    /// Memory that the peer asked for is no longer there.
    Response(Terminate),
    /// A completion queue was full.
    Overflow(CqOverflow),
    /// The queue pair is not as it must be.
    Broken(Broken),
}

impl From<Broken> for SendFault {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<CqOverflow> for SendFault {
    fn from(overflow: CqOverflow) -> Self {
        Self::Overflow(overflow)
    }
}

impl Engine {
    /// One queue pair's turn; how many FPDUs were sent.
    pub(super) fn send_some(&mut self, key: usize) -> usize {
        let Some(qp) = self.qps.get_mut(key) else {
            return 0;
        };
        match qp.state() {
            QpState::Idle | QpState::Rts | QpState::Terminate => {}
            QpState::Closing => self.check_closing(key),
            QpState::Error => {
                // Posted just before the queue pair failed.
                qp.flush(&mut self.cqs, None);
                return 0;
            }
        }
        for sent in 0..TX_BUDGET {
            match self.send_one(key) {
                Ok(Sent::Fpdu | Sent::Message(_)) => {
                    self.renew_patience(key);
                    if !self.note_sent(key) {
                        self.close_if_drained(key);
                        return sent + 1;
                    }
                }
                Ok(Sent::Work) => {}
                Ok(Sent::Blocked) => return sent,
                Ok(Sent::Nothing) => {
                    self.close_if_drained(key);
                    return sent;
                }
                Err(fault) => {
                    self.on_send_fault(key, fault);
                    return sent + 1;
                }
            }
        }
        self.activate(key);
        TX_BUDGET
    }

    /// Notes that an FPDU was handed to TCP; false if nothing is to follow it.
    fn note_sent(&mut self, key: usize) -> bool {
        self.counters.fpdus_out += 1;
        let Some(qp) = self.qps.get_mut(key) else {
            return false;
        };
        let requests_wait = !qp.sq.is_empty();
        let Some(stream) = qp.stream() else {
            return false;
        };
        stream.nudge.sent(self.now);
        requests_wait || stream.has_more()
    }

    /// Wakes a peer that has sent nothing since our first FPDU. Between the segments of a message there is no place for that, and no
    /// need: more comes.
    pub(super) fn nudge(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let in_rts = qp.state() == QpState::Rts;
        let Some(stream) = qp.stream() else {
            return;
        };
        stream.nudge.passed(self.now);
        if !in_rts || stream.gate != Gate::Open || stream.outgoing.is_some() {
            return;
        }
        let ulpdu = stream.wake_up();
        let (conn, framer) = (stream.conn, &mut stream.framer);
        if send_ulpdu(&mut self.stack, conn, framer, &ulpdu, self.now) {
            self.counters.fpdus_out += 1;
            self.counters.nudges_out += 1;
        }
    }

    fn send_one(&mut self, key: usize) -> Result<Sent, SendFault> {
        let Some(qp) = self.qps.get_mut(key) else {
            return Ok(Sent::Nothing);
        };
        let Link::Stream(stream) = &mut qp.link else {
            return Ok(Sent::Nothing);
        };
        match stream.gate {
            Gate::Open | Gate::Fenced => {}
            Gate::Shut => return Ok(Sent::Nothing),
            Gate::Prefaced { .. } => {
                let is_done = stream.send_preface(&mut self.stack, self.now);
                return Ok(if is_done { Sent::Work } else { Sent::Blocked });
            }
        }
        if let Some(terminate) = &stream.terminate {
            let ulpdu = terminate.ulpdu();
            return Ok(send_terminate(&mut self.stack, stream, &ulpdu, self.now));
        }
        if qp.state() != QpState::Rts {
            return Ok(Sent::Nothing);
        }
        match begin_message(qp, &mut self.stags)? {
            Next::Message => {}
            Next::Done => {
                qp.complete_sends(&mut self.cqs)?;
                return Ok(Sent::Work);
            }
            Next::Nothing => return Ok(Sent::Nothing),
        }
        let sent = send_segment(&mut self.stack, &self.stags, qp, self.now)?;
        if let Sent::Message(whose) = sent {
            finish_message(qp, whose);
            qp.complete_sends(&mut self.cqs)?;
        }
        Ok(sent)
    }

    fn on_send_fault(&mut self, key: usize, fault: SendFault) {
        match fault {
            SendFault::Request(status) => {
                self.fail_unreported(key, Terminate::local(), Some(status));
            }
            SendFault::Response(terminate) => self.fail_response(key, terminate),
            SendFault::Overflow(overflow) => self.fail_overflow(key, overflow),
            SendFault::Broken(broken) => self.fail_broken_send(key, broken),
        }
    }
}

/// Sends the Terminate, the last FPDU of its stream (RFC 5040 §5.4).
fn send_terminate(
    stack: &mut Stack,
    stream: &mut Stream,
    ulpdu: &[u8],
    now: xwarp_tcp::Instant,
) -> Sent {
    if !send_ulpdu(stack, stream.conn, &mut stream.framer, ulpdu, now) {
        return Sent::Blocked;
    }
    stack.close(stream.conn, now);
    stream.terminate = None;
    stream.gate = Gate::Shut;
    Sent::Fpdu
}

/// Sends the next segment of the current message.
fn send_segment(
    stack: &mut Stack,
    stags: &StagTable,
    qp: &mut QpContext,
    now: xwarp_tcp::Instant,
) -> Result<Sent, SendFault> {
    let user = qp.user;
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(Sent::Nothing);
    };
    let Some(mut outgoing) = stream.outgoing.take() else {
        return Err(Broken("a message that was begun is gone").into());
    };
    let mulpdu = stream.framer.mulpdu(stack.emss(stream.conn));
    let Some(ulpdu_len) = outgoing.next_len(mulpdu) else {
        return Ok(Sent::Message(outgoing.whose()));
    };
    let len = stream.framer.fpdu_len(ulpdu_len);
    let Some(fpdu) = stack.writable(stream.conn, len) else {
        stream.outgoing = Some(outgoing);
        return Ok(Sent::Blocked);
    };
    let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
    outgoing.write_segment(ulpdu, mulpdu, stags, user)?;
    stream.framer.seal(fpdu, ulpdu_len);
    stack.commit(stream.conn, len, now);
    Ok(after_segment(stream, outgoing))
}

/// What is left of a message after one of its segments was handed to TCP.
fn after_segment(stream: &mut Stream, outgoing: Outgoing) -> Sent {
    stream.outgoing = match outgoing {
        outgoing if !outgoing.is_done() => Some(outgoing),
        // No other message comes between a Write and its Immediate Data.
        Outgoing::Request {
            then: Some((data, solicited)),
            ..
        } => Some(Outgoing::header_only(
            stream.sender.immediate(data, solicited),
        )),
        outgoing => return Sent::Message(outgoing.whose()),
    };
    Sent::Fpdu
}

/// A message has been handed to TCP wholly. What the peer does not answer is complete with that (RFC 5040 §5.5, verbs.md A22); a
/// Read or an Atomic Operation waits for its response.
fn finish_message(qp: &mut QpContext, whose: Turn) {
    match whose {
        Turn::Response => {
            if let Some(stream) = qp.stream() {
                stream.receiver.response_sent();
            }
        }
        Turn::Request => {
            if let Some(begun) = qp.begun.back_mut()
                && !begun.awaits_response
            {
                begun.outcome = Some(CompletionStatus::Success);
            }
        }
    }
}

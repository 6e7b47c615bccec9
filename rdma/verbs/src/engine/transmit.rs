//! Sending: work requests, Read Responses and the Terminate, one FPDU per TCP segment.

use xwarp_iwarp::mpa::Framer;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{ReadRequest, Stag, Terminate};
use xwarp_tcp::Stack;

use super::cq_table::CqOverflow;
use super::outgoing::{Outgoing, Source};
use super::qp::{Begun, Link, QpContext, opcode_of};
use super::stream::{Gate, Stream, Turn, send_ulpdu};
use super::{Engine, TX_BUDGET};
use crate::completion::CompletionStatus;
use crate::memory::StagTable;
use crate::qp::QpState;
use crate::work::{Operation, SendRequest, Sgl};

/// What one attempt to send came to.
enum Sent {
    /// An FPDU was handed to TCP.
    Fpdu,
    /// A whole message was: the work request or response is done.
    Message(Source),
    /// TCP takes nothing now; it will say when it does.
    Blocked,
    /// There is nothing to send.
    Nothing,
}

/// Why sending cannot go on.
enum SendFault {
    /// The current work request is at fault.
    Request(CompletionStatus),
    /// Memory that the peer reads is no longer there.
    Response(Terminate),
    /// A completion queue was full.
    Overflow,
}

impl From<CqOverflow> for SendFault {
    fn from(_: CqOverflow) -> Self {
        Self::Overflow
    }
}

impl Engine {
    /// One queue pair's turn; how many FPDUs were sent.
    pub(super) fn send_some(&mut self, key: usize) -> usize {
        let Some(qp) = self.qps.get_mut(key) else {
            return 0;
        };
        if qp.state() == QpState::Error {
            // Posted just before the queue pair failed.
            qp.flush(&mut self.cqs, None);
            return 0;
        }
        for sent in 0..TX_BUDGET {
            match self.send_one(key) {
                Ok(Sent::Fpdu | Sent::Message(_)) => {
                    self.counters.fpdus_out += 1;
                    self.renew_patience(key);
                }
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

    fn send_one(&mut self, key: usize) -> Result<Sent, SendFault> {
        let Some(qp) = self.qps.get_mut(key) else {
            return Ok(Sent::Nothing);
        };
        let Link::Stream(stream) = &mut qp.link else {
            return Ok(Sent::Nothing);
        };
        if stream.gate != Gate::Open {
            return Ok(Sent::Nothing);
        }
        if let Some(terminate) = &stream.terminate {
            let ulpdu = terminate.ulpdu();
            return Ok(send_terminate(&mut self.stack, stream, &ulpdu, self.now));
        }
        if qp.state() != QpState::Rts || !begin_message(qp)? {
            return Ok(Sent::Nothing);
        }
        let sent = send_segment(&mut self.stack, &self.stags, qp, self.now)?;
        if let Sent::Message(source) = &sent {
            finish_message(qp, source);
            qp.complete_sends(&mut self.cqs)?;
        }
        Ok(sent)
    }

    fn on_send_fault(&mut self, key: usize, fault: SendFault) {
        match fault {
            SendFault::Request(status) => {
                self.fail_local(
                    key,
                    Terminate::local(),
                    Some(status),
                    "a local work request failed",
                );
            }
            SendFault::Response(terminate) => {
                self.fail_local(
                    key,
                    terminate,
                    None,
                    "memory that the peer was reading is gone",
                );
            }
            SendFault::Overflow => self.fail_overflow(key),
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

/// Makes sure that a message is being sent: goes on with the current one, or begins a Read Response or the next work request,
/// in turn where both wait. False when there is none.
fn begin_message(qp: &mut QpContext) -> Result<bool, SendFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    if stream.outgoing.is_some() {
        return Ok(true);
    }
    let request_waits = !qp.sq.is_empty();
    if (stream.turn == Turn::Response || !request_waits)
        && let Some(read) = stream.responses.pop_front()
    {
        stream.turn = Turn::Request;
        begin_response(stream, read);
        return Ok(true);
    }
    stream.turn = Turn::Response;
    if begin_request(qp)? {
        return Ok(true);
    }
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    let Some(read) = stream.responses.pop_front() else {
        return Ok(false);
    };
    begin_response(stream, read);
    Ok(true)
}

fn begin_response(stream: &mut Stream, read: xwarp_iwarp::InboundRead) {
    stream.outgoing = Some(Outgoing {
        message: stream.sender.read_response(&read.request),
        source: Source::Response(read),
    });
}

/// Begins the next work request unless the send queue is empty, or stalls: for a Read Fence, or because ORD Reads are
/// outstanding (verbs draft §6.5, §8.2.2).
fn begin_request(qp: &mut QpContext) -> Result<bool, SendFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    let Ok(next) = qp.sq.peek() else {
        return Ok(false);
    };
    let reads = stream.receiver.outstanding_reads();
    let is_read = matches!(next.operation, Operation::Read { .. });
    let ord = usize::from(qp.ord);
    if next.read_fence && reads > 0 || is_read && ord > 0 && reads >= ord {
        return Ok(false);
    }
    let Ok(request) = qp.sq.pop() else {
        return Ok(false);
    };
    qp.begun.push_back(Begun {
        wr_id: request.wr_id,
        opcode: opcode_of(&request),
        signaled: request.signaled,
        byte_len: request.operation.len().unwrap_or(u32::MAX),
        done: false,
    });
    if is_read && ord == 0 {
        return Err(SendFault::Request(CompletionStatus::ZeroReadResources));
    }
    if names_stag_zero(&request.operation) {
        return Err(SendFault::Request(CompletionStatus::InvalidStag));
    }
    stream.outgoing = Some(outgoing(stream, request));
    Ok(true)
}

/// True if the request has the peer access `STag` 0, which names no region at all (verbs draft §7.10.6). With no octets nothing is
/// accessed.
fn names_stag_zero(operation: &Operation) -> bool {
    let zero = Stag(0);
    operation.len() != Some(0)
        && match operation {
            Operation::Send { .. } => false,
            Operation::Write { remote, .. } => remote.stag == zero,
            Operation::Read { sink, remote } => sink.stag == zero || remote.stag == zero,
        }
}

/// The message of a work request.
fn outgoing(stream: &mut Stream, request: SendRequest) -> Outgoing {
    let len = request.operation.len().unwrap_or(u32::MAX);
    match request.operation {
        Operation::Send {
            sgl,
            solicited,
            invalidate,
        } => {
            let kind = SendKind {
                solicited,
                invalidate,
            };
            Outgoing {
                message: stream.sender.send(kind, len),
                source: Source::Request(sgl),
            }
        }
        Operation::Write { sgl, remote } => Outgoing {
            message: stream.sender.write(remote.stag, remote.to, len),
            source: Source::Request(sgl),
        },
        Operation::Read { sink, remote } => {
            let read = ReadRequest {
                sink: sink.stag,
                sink_to: sink.to,
                len,
                source: remote.stag,
                source_to: remote.to,
            };
            stream.receiver.expect_read(read);
            Outgoing {
                message: stream.sender.read_request(&read),
                source: Source::Request(Sgl::new()),
            }
        }
    }
}

/// Sends the next segment of the current message.
fn send_segment(
    stack: &mut Stack,
    stags: &StagTable,
    qp: &mut QpContext,
    now: xwarp_tcp::Instant,
) -> Result<Sent, SendFault> {
    let pd = qp.pd;
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(Sent::Nothing);
    };
    let Some(mut outgoing) = stream.outgoing.take() else {
        return Ok(Sent::Nothing);
    };
    let mulpdu = stream.framer.mulpdu(stack.emss(stream.conn));
    let Some(ulpdu_len) = outgoing.message.next_len(mulpdu) else {
        return Ok(Sent::Message(outgoing.source));
    };
    let len = stream.framer.fpdu_len(ulpdu_len);
    let Some(fpdu) = stack.writable(stream.conn, len) else {
        stream.outgoing = Some(outgoing);
        return Ok(Sent::Blocked);
    };
    write_segment(fpdu, ulpdu_len, &mut outgoing, stags, pd, mulpdu)?;
    stream.framer.seal(fpdu, ulpdu_len);
    stack.commit(stream.conn, len, now);
    if outgoing.message.is_done() {
        return Ok(Sent::Message(outgoing.source));
    }
    stream.outgoing = Some(outgoing);
    Ok(Sent::Fpdu)
}

/// Writes the next segment's header and payload into the FPDU.
fn write_segment(
    fpdu: &mut [u8],
    ulpdu_len: usize,
    outgoing: &mut Outgoing,
    stags: &StagTable,
    pd: crate::pd::PdId,
    mulpdu: usize,
) -> Result<(), SendFault> {
    let sent_before = outgoing.message.offset();
    let Some(segment) = outgoing.message.next_segment(mulpdu) else {
        return Ok(());
    };
    let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
    let (header, payload) = ulpdu.split_at_mut(segment.header.len());
    header.copy_from_slice(&segment.header);
    outgoing
        .source
        .gather(stags, pd, segment.payload, payload)
        .map_err(|error| match &outgoing.source {
            Source::Request(_) => SendFault::Request(error.status()),
            Source::Response(read) => {
                SendFault::Response(Terminate::read_aborted(read, sent_before, error.0))
            }
        })
}

/// A message has been handed to TCP wholly. A Send or Write is complete with that (RFC 5040 §5.5, digest A22); a Read waits for its
/// response.
fn finish_message(qp: &mut QpContext, source: &Source) {
    match source {
        Source::Response(_) => {
            if let Some(stream) = qp.stream() {
                stream.receiver.response_sent();
            }
        }
        Source::Request(_) => {
            if let Some(begun) = qp.begun.back_mut()
                && begun.opcode != crate::completion::Opcode::Read
            {
                begun.done = true;
            }
        }
    }
}

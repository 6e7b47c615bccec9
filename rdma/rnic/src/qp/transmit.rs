//! Sending: work requests, responses and the Terminate, one FPDU per TCP segment.

use xwarp_iwarp::mpa::Framer;
use xwarp_tcp::Stack;

use super::context::{Link, QpContext};
use super::fault::{Broken, SendFault};
use super::stream::{Gate, Stream, send_ulpdu};
use super::tx_message::{Outgoing, Turn};
use crate::model::CompletionStatus;
use crate::stags::StagTable;

/// What one attempt to send came to.
pub(crate) enum Sent {
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

/// Sends the Terminate, the last FPDU of its stream (RFC 5040 §5.4).
pub(crate) fn send_terminate(
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
pub(crate) fn send_segment(
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
pub(crate) fn finish_message(qp: &mut QpContext, whose: Turn) {
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

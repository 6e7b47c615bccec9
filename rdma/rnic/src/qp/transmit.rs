//! Sending: work requests, responses and the Terminate, one FPDU per TCP segment.

use xwarp_iwarp::mpa::Framer;

use super::begin::Next;
use super::device::Device;
use super::fault::{Broken, SendFault};
use super::full_operation::FullOperation;
use super::stream::{Ahead, Stream};
use super::tx_message::{Turn, TxMessage};
use crate::model::QpState;

/// What one attempt to send came to.
pub(super) enum Sent {
    /// An FPDU was handed to TCP, after which there is more to send.
    Fpdu,
    /// An FPDU was, and there is nothing more to send now.
    LastFpdu,
    /// A work request was done that sends nothing.
    Work,
    /// TCP takes nothing now; it will say when it does.
    Blocked,
    /// There is nothing to send.
    Nothing,
}

impl FullOperation<'_> {
    /// Sends one FPDU, if there is one to send and TCP takes it.
    pub(super) fn send_one(&mut self, device: &mut Device) -> Result<Sent, SendFault> {
        match self.stream.send_ahead(&mut device.stack, self.now) {
            Ahead::Nothing => {}
            Ahead::Message => return Ok(Sent::Work),
            Ahead::Terminate => return Ok(self.after_fpdu(device)),
            Ahead::Blocked => return Ok(Sent::Blocked),
            Ahead::Closed => return Ok(Sent::Nothing),
        }
        if self.state != QpState::Rts {
            return Ok(Sent::Nothing);
        }
        match self.begin_message(&mut device.stags)? {
            Next::Message => self.send_segment(device),
            Next::Done => {
                self.work.complete_sends(&mut device.cqs)?;
                Ok(Sent::Work)
            }
            Next::Nothing => Ok(Sent::Nothing),
        }
    }

    /// Sends the next segment of the current message.
    fn send_segment(&mut self, device: &mut Device) -> Result<Sent, SendFault> {
        let (stack, stream) = (&mut device.stack, &mut *self.stream);
        let Some(mut outgoing) = stream.outgoing.take() else {
            return Err(Broken("a message that was begun is gone").into());
        };
        let mulpdu = stream.framer.mulpdu(stack.emss(stream.conn()));
        let Some(ulpdu_len) = outgoing.next_len(mulpdu) else {
            return Err(Broken("a message that was begun has no segment").into());
        };
        let len = stream.framer.fpdu_len(ulpdu_len);
        let Some(fpdu) = stack.writable(stream.conn(), len) else {
            stream.outgoing = Some(outgoing);
            return Ok(Sent::Blocked);
        };
        let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
        outgoing.write_segment(ulpdu, mulpdu, &device.stags, self.user)?;
        stream.framer.seal(fpdu, ulpdu_len);
        stack.commit(stream.conn(), len, self.now);
        if let Some(whose) = after_segment(stream, outgoing) {
            self.finish_message(whose);
            self.work.complete_sends(&mut device.cqs)?;
        }
        Ok(self.after_fpdu(device))
    }

    /// A message has been handed to TCP wholly.
    fn finish_message(&mut self, whose: Turn) {
        match whose {
            Turn::Response => self.stream.receiver.response_sent(),
            Turn::Request => self.work.newest_sent(),
        }
    }

    /// An FPDU was handed to TCP: is another to follow?
    fn after_fpdu(&mut self, device: &mut Device) -> Sent {
        device.counters.fpdus_out += 1;
        self.stream.note_sent(self.now);
        if self.work.has_posted() || self.stream.has_more() {
            Sent::Fpdu
        } else {
            Sent::LastFpdu
        }
    }
}

/// Keeps what is left of a message after one of its segments was handed to TCP; whose it was if nothing is left.
fn after_segment(stream: &mut Stream, outgoing: TxMessage) -> Option<Turn> {
    stream.outgoing = match outgoing {
        outgoing if !outgoing.is_done() => Some(outgoing),
        // No other message comes between a Write and its Immediate Data.
        TxMessage::Request {
            then: Some((data, solicited)),
            ..
        } => Some(TxMessage::header_only(
            stream.sender.immediate(data, solicited),
        )),
        outgoing => return Some(outgoing.whose()),
    };
    None
}

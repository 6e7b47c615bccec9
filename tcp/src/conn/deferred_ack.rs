//! Deferred ACK: an acknowledgment that came with bytes. The connection acts upon it after the answer to these bytes has left.
//!
//! It changes what may be sent and when. The answer seldom depends on that, and need not wait for it.

use super::{Conn, State};
use crate::device::Device;
use crate::time::Instant;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;

/// See the module. There is at most one. It is acted upon by the next segment to arrive, by the next look at what to send, and by a writer
/// without room.
#[derive(Debug)]
pub(super) struct DeferredAck {
    segment: Segment,
    ack: Seq,
    /// When it arrived.
    at: Instant,
}

impl Conn {
    /// Acts upon an acceptable ACK, or postpones that.
    pub(super) fn receive_ack(
        &mut self,
        segment: &Segment,
        ack: Seq,
        device: &mut Device,
        now: Instant,
    ) {
        if ack == self.send.una() && self.is_plain(segment) {
            self.on_known_ack(segment, ack, now);
        } else if self.may_wait(segment, ack) {
            self.deferred_ack = Some(DeferredAck {
                segment: segment.clone(),
                ack,
                at: now,
            });
        } else {
            self.on_ack(segment, ack, device, now);
        }
    }

    /// True for an ACK of what was sent, with bytes that may be answered, that tells of nothing unusual and that nobody waits for.
    fn may_wait(&self, segment: &Segment, ack: Seq) -> bool {
        // What most segments fail comes first.
        if segment.payload.is_empty() || !self.send.una().is_before(ack) {
            return false;
        }
        let plain = segment.options.sack[0].is_none() && !segment.ecn.ece && !segment.has_fin();
        let steady = self.state.get() == State::Established
            && self.pending.wanted() == 0
            && self.is_steady();
        plain && steady
    }

    /// True if a piece of `len` bytes would leave at once (see [`can_write`](Self::can_write)), by what the peer has acknowledged by now.
    pub(crate) fn finds_room(&mut self, len: usize, device: &mut Device, now: Instant) -> bool {
        let limited = self.congestion.is_window_limited();
        if self.can_write(len, now) {
            return true;
        }
        if self.deferred_ack.is_none() {
            return false;
        }
        self.congestion.set_window_limited(limited); // which may have been for want of that ACK only
        self.act_on_deferred_ack(device);
        self.can_write(len, now)
    }

    /// Acts upon the deferred ACK, if there is one.
    #[inline]
    pub(crate) fn act_on_deferred_ack(&mut self, device: &mut Device) {
        // Most often there is none, and nothing is to be moved.
        if self.deferred_ack.is_some()
            && let Some(deferred_ack) = self.deferred_ack.take()
        {
            let DeferredAck { segment, ack, at } = deferred_ack;
            self.on_ack(&segment, ack, device, at);
        }
    }
}

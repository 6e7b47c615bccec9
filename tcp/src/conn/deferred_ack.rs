//! Deferred ACK: an acknowledgment that came with bytes. The connection acts upon it after the answer to these bytes has left.
//!
//! It changes what may be sent and when. The answer seldom depends on that, and need not wait for it.

use smoltcp::wire::TcpControl;

use super::{Conn, State};
use crate::device::Device;
use crate::time::Instant;
use crate::wire::flow::Flow;
use crate::wire::inbound::{Ecn, Options, Segment};
use crate::wire::seq::Seq;

/// See the module. There is at most one. It is acted upon by the next segment to arrive, by the next look at what to send, and by a writer
/// without room. Of its segment it keeps what ACK processing asks for: each connection has the room for it.
#[derive(Debug)]
pub(super) struct DeferredAck {
    seq: Seq,
    ack: Seq,
    window: u16,
    timestamp: Option<(u32, u32)>,
    /// Bytes of payload, at least one.
    len: usize,
    /// When it arrived.
    at: Instant,
}

impl DeferredAck {
    /// That of a segment which [may wait](Conn::may_wait).
    fn of(segment: &Segment, ack: Seq, now: Instant) -> Self {
        Self {
            seq: segment.seq,
            ack,
            window: segment.window,
            timestamp: segment.options.timestamp,
            len: segment.payload.len(),
            at: now,
        }
    }

    /// Its segment, as far as it matters to ACK processing.
    fn segment(&self, flow: Flow) -> Segment {
        Segment {
            flow,
            control: TcpControl::None,
            seq: self.seq,
            ack: Some(self.ack),
            window: self.window,
            options: Options {
                timestamp: self.timestamp,
                ..Options::default()
            },
            payload: 0..self.len,
            ecn: Ecn::default(),
        }
    }
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
            self.deferred_ack = Some(DeferredAck::of(segment, ack, now));
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
            let segment = deferred_ack.segment(*self.flow());
            self.on_ack(&segment, deferred_ack.ack, device, deferred_ack.at);
        }
    }
}

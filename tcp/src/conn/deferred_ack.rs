//! Deferred ACK: an acknowledgment that arrived with payload, processed after the answer to the
//! payload has left (decision record tcp/0004).
//!
//! It changes what may be sent and when. The answer seldom depends on that, and need not wait for
//! it.

use smoltcp::wire::TcpControl;

use super::{Conn, State};
use crate::device::Device;
use crate::time::Instant;
use crate::wire::flow::Flow;
use crate::wire::inbound::{Ecn, Options, Segment};
use crate::wire::seq::Seq;

/// A deferred ACK; a connection has at most one. The next segment to arrive, the next egress or a
/// writer without room has it processed. It keeps only the fields that ACK processing needs, as
/// each connection reserves the room.
#[derive(Debug)]
pub(super) struct DeferredAck {
    seq: Seq,
    ack: Seq,
    window: u16,
    timestamp: Option<(u32, u32)>,
    /// Bytes of payload, at least one.
    len: usize,
    /// Arrival time.
    at: Instant,
}

impl DeferredAck {
    /// The first byte that it does not acknowledge.
    pub(super) fn ack(&self) -> Seq {
        self.ack
    }

    /// The ACK of a segment that [may wait](Conn::may_wait).
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

    /// A segment with the fields that ACK processing needs.
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
    /// Processes an acceptable ACK, or defers it.
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

    /// True for an ACK that may wait: of sent data, with payload that may be answered, without
    /// unusual reports, and not needed by a writer.
    fn may_wait(&self, segment: &Segment, ack: Seq) -> bool {
        // The most selective tests come first.
        if segment.payload.is_empty() || !self.send.una().is_before(ack) {
            return false;
        }
        let plain = segment.options.sack[0].is_none() && !segment.ecn.ece && !segment.has_fin();
        let steady = self.state.get() == State::Established
            && self.pending.wanted() == 0
            && self.is_steady();
        plain && steady
    }

    /// True if a piece of `len` bytes would leave at once (see [`can_write`](Self::can_write)),
    /// after processing the deferred ACK.
    pub(crate) fn finds_room(&mut self, len: usize, device: &mut Device, now: Instant) -> bool {
        let limited = self.congestion.is_window_limited();
        if self.can_write(len, now) {
            return true;
        }
        if self.deferred_ack.is_none() {
            return false;
        }
        // the deferred ACK may have been all that was missing
        self.congestion.set_window_limited(limited);
        self.act_on_deferred_ack(device);
        self.can_write(len, now)
    }

    /// Processes the deferred ACK, if there is one.
    #[inline]
    pub(crate) fn act_on_deferred_ack(&mut self, device: &mut Device) {
        // Usually there is none, and nothing is moved.
        if self.deferred_ack.is_some()
            && let Some(deferred_ack) = self.deferred_ack.take()
        {
            let segment = deferred_ack.segment(*self.flow());
            self.on_ack(&segment, deferred_ack.ack, device, deferred_ack.at);
        }
    }
}

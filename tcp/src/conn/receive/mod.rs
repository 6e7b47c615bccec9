//! Receive side: RCV.NXT, the window, bytes in order and out of order, the peer's FIN (RFC 9293
//! §3.3.1).

mod ack_policy;
mod chunk;
mod in_order_queue;
mod reassembly;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use xwarp_driver::RxFrame;

use crate::conn::ConnLoad;
use crate::device::Device;
use crate::wire::inbound::Segment;
use crate::wire::seq::{Seq, bytes, distance};
use ack_policy::AckPolicy;
use chunk::Chunk;
use in_order_queue::InOrderQueue;
use reassembly::Reassembly;

/// Receiving half of a connection.
#[derive(Debug)]
pub(crate) struct ReceiveSide {
    /// RCV.NXT.
    next: Seq,
    /// Right edge of the window announced to the peer, never taken back (RFC 9293 §3.8.6.2.1).
    edge: Seq,
    /// The number acknowledged last (Last.ACK.sent, RFC 7323 §4.3).
    acked: Seq,
    /// Capacity in bytes.
    capacity: usize,
    queue: InOrderQueue,
    parts: Reassembly,
    /// Sequence number of the peer's FIN, once received.
    fin: Option<Seq>,
    /// The peer is to be informed of congestion marks.
    met_congestion: bool,
    /// Acknowledgment policy.
    acks: AckPolicy,
    load: ConnLoad,
}

/// Result of taking an acceptable segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It contained nothing new.
    Nothing,
    /// RCV.NXT has advanced. `filled`: by bytes that had waited, too.
    InOrder { filled: bool },
    /// It waits for the bytes before it.
    OutOfOrder,
}

impl ReceiveSide {
    /// A receive side with `capacity` bytes that delays ACKs by at most `ack_delay`.
    pub(crate) fn new(capacity: usize, ack_delay: Duration) -> Self {
        Self {
            next: Seq::default(),
            edge: Seq::default(),
            acked: Seq::default(),
            capacity,
            queue: InOrderQueue::new(),
            parts: Reassembly::default(),
            fin: None,
            met_congestion: false,
            acks: AckPolicy::new(ack_delay),
            load: ConnLoad::default(),
        }
    }

    /// Begins with the peer's SYN, whose sequence number is `irs`. `announced`: the window in bytes
    /// that a SYN of ours has announced, or 0.
    pub(crate) fn begin(&mut self, irs: Seq, announced: usize) {
        self.next = irs + 1;
        self.acked = self.next;
        self.edge = self.next + announced;
    }

    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    pub(crate) fn acked(&self) -> Seq {
        self.acked
    }

    pub(crate) fn queue(&self) -> &InOrderQueue {
        &self.queue
    }

    /// Pending acknowledgments, and their times.
    pub(crate) fn acks(&self) -> &AckPolicy {
        &self.acks
    }

    /// The acknowledgment policy, to record received and sent segments.
    pub(crate) fn acks_mut(&mut self) -> &mut AckPolicy {
        &mut self.acks
    }

    /// Blocks of the SACK option to send now.
    pub(crate) fn sack_blocks(&mut self) -> [Option<(u32, u32)>; ack_policy::MAX_BLOCKS] {
        self.acks.blocks(&self.parts)
    }

    /// True if the peer is to be informed of congestion marks.
    pub(crate) fn met_congestion(&self) -> bool {
        self.met_congestion
    }

    pub(crate) fn set_met_congestion(&mut self, met: bool) {
        self.met_congestion = met;
    }

    /// Load that the peer has caused.
    pub(crate) fn load(&self) -> ConnLoad {
        self.load
    }

    /// Counts a segment with `taken` bytes in order.
    pub(crate) fn count_segment(&mut self, taken: usize) {
        self.load.segments += 1;
        self.load.bytes += taken as u64;
    }

    pub(crate) fn count_out_of_order(&mut self) {
        self.load.out_of_order += 1;
    }

    /// True once the peer's FIN was received in order.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next == fin + 1)
    }

    pub(crate) fn consume(&mut self, n: usize, device: &mut Device) {
        self.queue.consume(n, device);
    }

    /// RCV.WND.
    pub(crate) fn window(&self) -> usize {
        bytes(self.next, self.edge)
    }

    fn free(&self) -> usize {
        self.capacity.saturating_sub(self.queue.len())
    }

    /// The window of a SYN, which is not scaled (RFC 7323 §2.2).
    pub(crate) fn syn_window(&self) -> u16 {
        u16::try_from(self.free()).unwrap_or(u16::MAX)
    }

    /// Acknowledges RCV.NXT, announces the free space, and returns the window field.
    pub(crate) fn announce(&mut self, shift: u8) -> u16 {
        let window = self.window().max(self.free() >> shift << shift);
        // Rounded up, as an announced edge must stay.
        let field = (window + (1 << shift) - 1) >> shift;
        let field = u16::try_from(field).unwrap_or(u16::MAX);
        self.edge = self.next + (usize::from(field) << shift);
        self.acked = self.next;
        field
    }

    /// True if the window has grown enough to send an update (RFC 9293 §3.8.6.2.2): by a segment or
    /// half the buffer. If much is left, it must also have doubled.
    pub(crate) fn owes_window_update(&self, mss: usize, shift: u8) -> bool {
        let most = usize::from(u16::MAX) << shift;
        let now = self.free().min(most);
        let announced = self.window();
        let grown = now.saturating_sub(announced);
        grown > 0
            && grown >= mss.min(self.capacity / 2)
            && (announced < (2 * mss).max(self.capacity / 4) || now >= 2 * announced)
    }

    /// The acceptability test of RFC 9293 §3.10.7.4, first. Segment and window overlap if one of
    /// them begins within the other. So a segment that is larger than the window and begins before
    /// it is acceptable, too.
    pub(crate) fn is_acceptable(&self, segment: &Segment) -> bool {
        let len = segment.len();
        let window = self.window();
        let ahead = segment.seq.offset(self.next);
        if window == 0 {
            return len == 0 && ahead == 0;
        }
        ahead < window || self.behind(segment) < len
    }

    /// Distance of the segment's start before RCV.NXT, 0 to 2^32 - 1.
    fn behind(&self, segment: &Segment) -> usize {
        self.next.offset(segment.seq)
    }

    /// True for a segment beyond the window: it is closer to future data than to past data.
    pub(crate) fn is_beyond(&self, segment: &Segment) -> bool {
        let least = self.window() + usize::from(segment.len() == 0);
        usize::try_from(distance(self.next, segment.seq)).is_ok_and(|ahead| ahead >= least)
    }

    /// True for a segment that may be a retransmission: a peer never has more than a window and a
    /// FIN in flight. A segment that begins further back may be forged.
    pub(crate) fn may_be_repeated(&self, segment: &Segment) -> bool {
        segment.len() > 0 && (1..=self.capacity + 1).contains(&self.behind(segment))
    }

    /// The part of `segment` that was received before (RFC 2883 §4), if any.
    pub(crate) fn duplicate(&self, segment: &Segment) -> Option<(Seq, Seq)> {
        let Segment { seq, .. } = *segment;
        let len = segment.payload.len();
        if len == 0 {
            return None;
        }
        if self.may_be_repeated(segment) {
            return Some((seq, seq + len.min(self.behind(segment))));
        }
        if self.parts.is_empty() || seq.offset(self.next) >= self.window() {
            return None;
        }
        let (_, right) = self.parts.block(seq)?;
        Some((seq, seq + len.min(right.offset(seq))))
    }

    /// True for a new segment that is next in order, fits, and has no data waiting behind it, as
    /// nearly all segments.
    pub(crate) fn is_next(&self, segment: &Segment) -> bool {
        segment.seq == self.next
            && segment.payload.len() <= self.window()
            && self.parts.is_empty()
            && self.fin.is_none()
            && !segment.has_fin()
    }

    /// Takes the payload of a segment for which [`is_next`](Self::is_next) holds. Keeps or frees
    /// the frame.
    pub(crate) fn take_next(&mut self, segment: &Segment, frame: RxFrame, device: &mut Device) {
        let chunk = self.in_order(frame, segment.payload.clone(), device);
        self.append(chunk);
    }

    /// Takes payload and FIN of an acceptable segment. Keeps or frees the frame.
    pub(crate) fn accept(
        &mut self,
        segment: &Segment,
        frame: RxFrame,
        device: &mut Device,
    ) -> Arrival {
        let (begin, range) = self.clip(segment);
        self.note_fin(segment);
        let before = self.next;
        let waited = !self.parts.is_empty();
        let mut waits = self.take_bytes(begin, range, frame, device);
        waits |= self
            .fin
            .is_some_and(|fin| self.next.is_before(fin) && segment.has_fin());
        if self.fin == Some(self.next) {
            self.next += 1;
        }
        if self.next != before {
            Arrival::InOrder { filled: waited }
        } else if waits {
            Arrival::OutOfOrder
        } else {
            Arrival::Nothing
        }
    }

    /// Takes the bytes in `range` of a frame, which begin at `begin`, and queued bytes behind them.
    /// Returns true if these bytes must wait themselves.
    fn take_bytes(
        &mut self,
        begin: Seq,
        range: Range<usize>,
        frame: RxFrame,
        device: &mut Device,
    ) -> bool {
        if range.is_empty() {
            device.recycle(frame);
            return false;
        }
        if begin != self.next {
            let chunk = Chunk::new(frame, range, device);
            return self.parts.insert(begin, chunk, device);
        }
        let chunk = self.in_order(frame, range, device);
        self.append(chunk);
        while let Some(chunk) = self.parts.take(self.next, device) {
            self.append(chunk);
        }
        false
    }

    /// A chunk of bytes that are next in order.
    fn in_order(&self, frame: RxFrame, range: Range<usize>, device: &mut Device) -> Chunk {
        if self.queue.len() == 0 {
            Chunk::keep(frame, range, device)
        } else {
            Chunk::new(frame, range, device)
        }
    }

    fn append(&mut self, chunk: Chunk) {
        self.next += chunk.len();
        self.queue.push(chunk);
    }

    /// The part of the payload in the window and before the FIN: its start, and its range in the
    /// frame.
    fn clip(&self, segment: &Segment) -> (Seq, Range<usize>) {
        let Range { start, end } = segment.payload;
        let old = bytes(segment.seq, self.next).min(segment.payload.len());
        let begin = segment.seq + old;
        let start = start + old;
        let window = self.window();
        let last = self
            .fin
            .map_or(window, |fin| bytes(self.next, fin).min(window));
        let room = last.saturating_sub(begin.offset(self.next));
        (begin, start..end.min(start + room))
    }

    /// Records the FIN, unless it lies beyond the window or before received bytes.
    fn note_fin(&mut self, segment: &Segment) {
        let at = segment.seq + segment.payload.len();
        if segment.has_fin() && self.fin.is_none() && at.offset(self.next) <= self.window() {
            self.fin = Some(at);
        }
    }

    /// Frees all frames.
    pub(crate) fn clear(&mut self, device: &mut Device) {
        self.queue.clear(device);
        self.parts.clear(device);
    }

    /// Frees the out-of-order frames: no more data will come.
    pub(crate) fn clear_parts(&mut self, device: &mut Device) {
        self.parts.clear(device);
    }
}

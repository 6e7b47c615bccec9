//! Send side: SND.UNA, SND.NXT, the peer's window (RFC 9293 §3.3.1), and the segments in flight.

pub(super) mod congestion_control;
pub(super) mod loss_recovery;
mod pacer;
pub(super) mod rack;
mod recovery;
pub(super) mod send_queue;
mod tail_loss_probe;
#[cfg(test)]
mod tests;

use smoltcp::wire::TcpControl;

use crate::delivery_rate::SentRate;
use crate::time::Instant;
use crate::wire::inbound::Segment;
use crate::wire::seq::{Seq, bytes};
use send_queue::{Held, Piece, SendQueue};

/// Sending half of a connection.
#[derive(Debug)]
pub(crate) struct SendSide {
    iss: Seq,
    /// SND.UNA.
    una: Seq,
    /// SND.NXT.
    nxt: Seq,
    /// End of the queued data. Segments behind SND.NXT wait for room in the peer's window.
    end: Seq,
    queue: SendQueue,
    /// Maximum number of unacknowledged bytes.
    capacity: usize,
    /// The right edge of the peer's window.
    edge: Seq,
    /// Numbers of the segment that last updated the window (SND.WL1, SND.WL2).
    last_update: Option<(Seq, Seq)>,
    largest_window: usize,
    /// Sequence number of our FIN, once sent.
    fin: Option<Seq>,
    /// Consecutive duplicate ACKs from a peer without SACK.
    duplicates: usize,
}

impl SendSide {
    pub(crate) fn new(iss: Seq, capacity: usize) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            end: iss,
            queue: SendQueue::new(),
            capacity,
            edge: iss,
            last_update: None,
            largest_window: 0,
            fin: None,
            duplicates: 0,
        }
    }

    /// The initial sequence number.
    pub(crate) fn iss(&self) -> Seq {
        self.iss
    }

    /// SND.UNA.
    pub(crate) fn una(&self) -> Seq {
        self.una
    }

    /// SND.NXT.
    pub(crate) fn nxt(&self) -> Seq {
        self.nxt
    }

    /// End of the queued data.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    /// Segments queued or in flight.
    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// Segments queued or in flight, to change their marks and the place of their payload.
    pub(crate) fn queue_mut(&mut self) -> &mut SendQueue {
        &mut self.queue
    }

    /// Payload bytes that are not acknowledged.
    pub(crate) fn unacked(&self) -> usize {
        self.queue.payload_from(self.una)
    }

    /// True if an acknowledgement of all before `acked` leaves payload out.
    pub(crate) fn has_unacked(&self, acked: Seq) -> bool {
        let payload = self.iss + 1;
        acked.max(payload).is_before(self.fin.unwrap_or(self.end))
    }

    /// True if the byte with this sequence number was sent and is not acknowledged.
    pub(crate) fn is_in_flight(&self, seq: Seq) -> bool {
        seq.offset(self.una) < self.nxt.offset(self.una)
    }

    /// True if a queued segment was never sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.nxt != self.end
    }

    /// True once our SYN was sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.end != self.iss
    }

    /// Records that a SYN cookie, without memory, has sent our SYN.
    pub(crate) fn skip_syn(&mut self) {
        self.end = self.iss + 1;
        self.nxt = self.end;
    }

    /// Queues a segment that must wait for room in the peer's window.
    #[inline]
    pub(crate) fn enqueue(&mut self, piece: Piece) {
        self.end = piece.end();
        self.queue.push(piece);
    }

    /// Queues a segment that was just sent for the first time, with no segment waiting before it.
    #[inline]
    pub(crate) fn track(&mut self, piece: Piece) {
        if piece.control == TcpControl::Fin {
            self.fin = Some(piece.begin);
        }
        self.enqueue(piece);
        self.nxt = self.end;
    }

    /// Records the transmission of a queued segment: a retransmission, or a first one that had to
    /// wait.
    pub(crate) fn resent(&mut self, at: usize, now: Instant, stamp: u32, rate: Option<SentRate>) {
        if let Some(piece) = self.queue.get(at) {
            self.nxt = self.nxt.max(piece.end());
        }
        self.queue.resent(at, now, stamp, rate);
    }

    /// Records an ACK of new data; [`pop_acked`](Self::pop_acked) then returns the segments.
    pub(crate) fn acknowledge(&mut self, ack: Seq) {
        self.una = ack;
    }

    /// The first segment, if it is acknowledged in full.
    pub(crate) fn first_acked(&self) -> Option<&Piece> {
        self.queue.first_acked(self.una)
    }

    /// Removes the first segment, and returns the place of its payload.
    #[inline]
    pub(crate) fn pop_first(&mut self) -> Option<Held> {
        self.queue.pop()?.frame
    }

    /// Removes and returns the first segment if it is acknowledged in full.
    pub(crate) fn pop_acked(&mut self) -> Option<Piece> {
        self.queue.pop_acked(self.una)
    }

    /// Counts a duplicate ACK, at most as many in a row as there are segments. Returns the count if
    /// this one counted.
    pub(crate) fn count_duplicate(&mut self) -> Option<usize> {
        if self.queue.len() <= self.duplicates {
            return None;
        }
        self.duplicates += 1;
        Some(self.duplicates)
    }

    /// Restarts the count of duplicate ACKs.
    pub(crate) fn clear_duplicates(&mut self) {
        self.duplicates = 0;
    }

    /// Bytes in flight, for segments of `mss` bytes. Without SACK, each duplicate ACK stands for a
    /// segment that has left (RFC 5681 §3.2).
    pub(crate) fn pipe(&self, mss: usize) -> usize {
        self.queue.pipe().saturating_sub(self.duplicates * mss)
    }

    /// Room in bytes of the peer's window behind all queued data.
    pub(crate) fn room(&self) -> usize {
        bytes(self.end, self.edge)
    }

    /// True if the send buffer has room for `len` more bytes.
    pub(crate) fn may_hold(&self, len: usize) -> bool {
        self.unacked() + len <= self.capacity
    }

    /// Free bytes of the send buffer.
    pub(crate) fn free(&self) -> usize {
        self.capacity.saturating_sub(self.unacked())
    }

    /// Right edge of the peer's window.
    pub(crate) fn edge(&self) -> Seq {
        self.edge
    }

    /// Sequence number of segments without data: SND.NXT, unless the peer has taken back room that
    /// we have used. Then SND.NXT would lie outside of its window.
    pub(crate) fn bare_seq(&self) -> Seq {
        self.nxt.min(self.edge.max(self.una))
    }

    /// True if the first piece was never sent, because the window has had no room.
    pub(crate) fn waits_for_window(&self) -> bool {
        self.queue.first().is_some_and(|piece| piece.transmits == 0)
    }

    /// Largest window that the peer ever announced.
    pub(crate) fn largest_window(&self) -> usize {
        self.largest_window
    }

    /// True if our FIN was sent and is acknowledged.
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin.is_some_and(|fin| self.una == fin + 1)
    }

    /// True if the peer can have sent `ack` (RFC 5961 §5.2).
    pub(crate) fn is_plausible(&self, ack: Seq) -> bool {
        self.is_forward(ack) || self.una.offset(ack) <= self.largest_window
    }

    /// True if `ack` lies within the data in flight or at its start.
    pub(crate) fn is_forward(&self, ack: Seq) -> bool {
        ack.offset(self.una) <= self.nxt.offset(self.una)
    }

    /// True if `ack` acknowledges new data.
    pub(crate) fn acks_new_data(&self, ack: Seq) -> bool {
        ack != self.una && self.is_forward(ack)
    }

    /// True for a block of bytes in flight (RFC 2018 §5) that begins behind `from`.
    pub(crate) fn may_have(&self, (left, right): (Seq, Seq), from: Seq) -> bool {
        let begin = left.offset(from);
        let end = right.offset(from);
        0 < begin && begin < end && end <= self.nxt.offset(from)
    }

    /// True if bytes that end at or before `ack` may have arrived twice: they were sent, and no
    /// further back than a window.
    pub(crate) fn may_repeat(&self, (left, right): (Seq, Seq), ack: Seq) -> bool {
        let len = right.offset(left);
        let back = ack.offset(left);
        0 < len && len <= back && back <= self.largest_window
    }

    /// Takes the window of the peer's SYN, which is not scaled (RFC 7323 §2.2), even if another SYN
    /// came before.
    pub(crate) fn begin_window(&mut self, syn: &Segment) {
        self.last_update = None;
        self.update_window(syn, self.una, 0);
    }

    /// Takes the window of a segment, scaled by `shift`, unless the segment is older than the last
    /// update (RFC 9293 §3.10.7.4). Returns true if the window has changed.
    pub(crate) fn update_window(&mut self, segment: &Segment, ack: Seq, shift: u8) -> bool {
        let newer = self.last_update.is_none_or(|(seq, last_ack)| {
            seq.is_before(segment.seq) || seq == segment.seq && !ack.is_before(last_ack)
        });
        if !newer || !self.is_forward(ack) {
            return false;
        }
        let window = usize::from(segment.window) << shift;
        let edge = ack + window;
        let changed = edge != self.edge;
        self.edge = edge;
        self.last_update = Some((segment.seq, ack));
        self.largest_window = self.largest_window.max(window);
        changed
    }
}

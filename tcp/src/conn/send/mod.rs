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

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct SendSide {
    iss: Seq,
    /// SND.UNA.
    una: Seq,
    /// SND.NXT.
    nxt: Seq,
    /// The end of what is queued: behind SND.NXT, there are segments that wait for room in the peer's window.
    end: Seq,
    queue: SendQueue,
    /// Bytes that may be unacknowledged.
    capacity: usize,
    /// The right edge of the peer's window.
    edge: Seq,
    /// The segment of the last window update (SND.WL1, SND.WL2).
    last_update: Option<(Seq, Seq)>,
    largest_window: usize,
    /// The sequence number of our FIN, once sent.
    fin: Option<Seq>,
    /// Duplicate ACKs in a row, of a peer without SACK.
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

    /// The end of what is queued.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    /// The segments that are queued or in flight.
    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// The segments that are queued or in flight, to change what is known of them and where their payload lies.
    pub(crate) fn queue_mut(&mut self) -> &mut SendQueue {
        &mut self.queue
    }

    /// Bytes of payload that are not acknowledged.
    pub(crate) fn unacked(&self) -> usize {
        self.queue.payload_from(self.una)
    }

    /// True if the byte with this sequence number was sent and is not acknowledged.
    pub(crate) fn is_in_flight(&self, seq: Seq) -> bool {
        seq.offset(self.una) < self.nxt.offset(self.una)
    }

    /// True if something that is queued has never been sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.nxt != self.end
    }

    /// True once our SYN was sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.end != self.iss
    }

    /// Our SYN was sent by a SYN cookie, of which nothing was kept.
    pub(crate) fn skip_syn(&mut self) {
        self.end = self.iss + 1;
        self.nxt = self.end;
    }

    /// Queues a segment that has to wait for room in the peer's window.
    #[inline]
    pub(crate) fn enqueue(&mut self, piece: Piece) {
        self.end = piece.end();
        self.queue.push(piece);
    }

    /// Queues a segment that was sent for the first time, which nothing waits in front of.
    #[inline]
    pub(crate) fn track(&mut self, piece: Piece) {
        if piece.control == TcpControl::Fin {
            self.fin = Some(piece.begin);
        }
        self.enqueue(piece);
        self.nxt = self.end;
    }

    /// A queued segment was sent: again, or for the first time after it had to wait.
    pub(crate) fn resent(&mut self, at: usize, now: Instant, stamp: u32, rate: Option<SentRate>) {
        if let Some(piece) = self.queue.get(at) {
            self.nxt = self.nxt.max(piece.end());
        }
        self.queue.resent(at, now, stamp, rate);
    }

    /// Takes an ACK of something that was not acknowledged; [`pop_acked`](Self::pop_acked) gives the segments.
    pub(crate) fn acknowledge(&mut self, ack: Seq) {
        self.una = ack;
    }

    /// The first segment, if all of it is acknowledged.
    pub(crate) fn first_acked(&self) -> Option<&Piece> {
        self.queue.first_acked(self.una)
    }

    /// Takes the first segment; where its payload is.
    #[inline]
    pub(crate) fn pop_first(&mut self) -> Option<Held> {
        self.queue.pop()?.frame
    }

    /// Takes the first segment if all of it is acknowledged.
    pub(crate) fn pop_acked(&mut self) -> Option<Piece> {
        self.queue.pop_acked(self.una)
    }

    /// Counts a duplicate ACK, of which there are no more in a row than segments; how many, if it counts.
    pub(crate) fn count_duplicate(&mut self) -> Option<usize> {
        if self.queue.len() <= self.duplicates {
            return None;
        }
        self.duplicates += 1;
        Some(self.duplicates)
    }

    /// The next duplicate ACK is the first in a row.
    pub(crate) fn clear_duplicates(&mut self) {
        self.duplicates = 0;
    }

    /// Bytes in flight, in segments of `mss` bytes. Without SACK, each duplicate ACK stands for a segment that has left (RFC 5681 §3.2).
    pub(crate) fn pipe(&self, mss: usize) -> usize {
        self.queue.pipe().saturating_sub(self.duplicates * mss)
    }

    /// Bytes that the peer's window has room for behind all that is queued.
    pub(crate) fn room(&self) -> usize {
        bytes(self.end, self.edge)
    }

    /// True if the send buffer has room for `len` more bytes.
    pub(crate) fn may_hold(&self, len: usize) -> bool {
        self.unacked() + len <= self.capacity
    }

    /// Bytes that the send buffer has room for.
    pub(crate) fn free(&self) -> usize {
        self.capacity.saturating_sub(self.unacked())
    }

    /// The right edge of the peer's window.
    pub(crate) fn edge(&self) -> Seq {
        self.edge
    }

    /// The sequence number of segments without data: SND.NXT. Another one is right if the peer has taken back room that we have used: it
    /// would find SND.NXT outside of its window.
    pub(crate) fn bare_seq(&self) -> Seq {
        self.nxt.min(self.edge.max(self.una))
    }

    /// True if the first piece was never sent: the window has had no room for it.
    pub(crate) fn waits_for_window(&self) -> bool {
        self.queue.first().is_some_and(|piece| piece.transmits == 0)
    }

    /// The largest window that the peer ever announced.
    pub(crate) fn largest_window(&self) -> usize {
        self.largest_window
    }

    /// True if our FIN was sent and is acknowledged.
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin.is_some_and(|fin| self.una == fin + 1)
    }

    /// True if `ack` is one that the peer can have sent (RFC 5961 §5.2).
    pub(crate) fn is_plausible(&self, ack: Seq) -> bool {
        self.is_forward(ack) || self.una.offset(ack) <= self.largest_window
    }

    /// True if `ack` lies in what is in flight, or at its begin.
    pub(crate) fn is_forward(&self, ack: Seq) -> bool {
        ack.offset(self.una) <= self.nxt.offset(self.una)
    }

    /// True if `ack` acknowledges something that was not acknowledged.
    pub(crate) fn is_news(&self, ack: Seq) -> bool {
        ack != self.una && self.is_forward(ack)
    }

    /// True for a block of bytes that are in flight (RFC 2018 §5), which begins behind `from`.
    pub(crate) fn may_have(&self, (left, right): (Seq, Seq), from: Seq) -> bool {
        let (begin, end) = (left.offset(from), right.offset(from));
        0 < begin && begin < end && end <= self.nxt.offset(from)
    }

    /// True if bytes may have come twice that end at `ack` or before: they were sent, and no further back than a window reaches.
    pub(crate) fn may_repeat(&self, (left, right): (Seq, Seq), ack: Seq) -> bool {
        let (len, back) = (right.offset(left), ack.offset(left));
        0 < len && len <= back && back <= self.largest_window
    }

    /// Takes the window of the peer's SYN, which is not scaled (RFC 7323 §2.2), whatever another SYN has said.
    pub(crate) fn begin_window(&mut self, syn: &Segment) {
        self.last_update = None;
        self.update_window(syn, self.una, 0);
    }

    /// Takes the window of a segment, scaled by `shift`, unless an earlier one was sent after it (RFC 9293 §3.10.7.4). True if
    /// the window has changed.
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

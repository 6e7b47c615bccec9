//! Send side: SND.UNA, SND.NXT, the peer's window (RFC 9293 §3.3.1), and the segments in flight.

pub(super) mod pacer;
pub(super) mod rack;
pub(super) mod recovery;
pub(super) mod send_queue;
pub(super) mod tail_loss_probe;
#[cfg(test)]
mod tests;

use crate::wire::inbound::Segment;
use crate::wire::seq::{Seq, bytes};
use send_queue::SendQueue;

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct SendSide {
    pub(crate) iss: Seq,
    /// SND.UNA.
    pub(crate) una: Seq,
    /// SND.NXT.
    pub(crate) nxt: Seq,
    /// The end of what is queued: behind SND.NXT, there are segments that wait for room in the peer's window.
    pub(crate) end: Seq,
    pub(crate) queue: SendQueue,
    /// Bytes that may be unacknowledged.
    capacity: usize,
    /// The right edge of the peer's window.
    edge: Seq,
    /// The segment of the last window update (SND.WL1, SND.WL2).
    last_update: Option<(Seq, Seq)>,
    largest_window: usize,
    /// The sequence number of our FIN, once sent.
    pub(crate) fin: Option<Seq>,
    /// Duplicate ACKs in a row, of a peer without SACK.
    pub(crate) duplicates: usize,
    /// Up to where congestion that the peer reported has been answered (RFC 3168 §6.1.2), until more is acknowledged; and whether
    /// it is to be told so.
    pub(crate) echo_until: Option<Seq>,
    pub(crate) reduced: bool,
}

impl SendSide {
    pub(crate) fn new(iss: Seq, capacity: usize) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            end: iss,
            queue: SendQueue::default(),
            capacity,
            edge: iss,
            last_update: None,
            largest_window: 0,
            fin: None,
            duplicates: 0,
            echo_until: None,
            reduced: false,
        }
    }

    /// Bytes that the peer's window has room for behind all that is queued.
    pub(crate) fn room(&self) -> usize {
        bytes(self.end, self.edge)
    }

    /// True if the send buffer has room for `len` more bytes.
    pub(crate) fn may_hold(&self, len: usize) -> bool {
        self.queue.payload_from(self.una) + len <= self.capacity
    }

    /// The right edge of the peer's window.
    pub(crate) fn edge(&self) -> Seq {
        self.edge
    }

    /// The sequence number of segments without data: SND.NXT, unless the peer has taken back room that we have used, and would
    /// find it outside of its window.
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

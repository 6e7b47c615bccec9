//! Retransmission queue: the unacknowledged segments, each in the frame that it was sent in
//! (decision record tcp/0001), with the marks of the scoreboard (RFC 6675 §3, RFC 8985 §5.2).

use std::collections::VecDeque;
use std::fmt;

use smoltcp::wire::TcpControl;
use xwarp_driver::{SentFrame, TxFrame};

use crate::delivery_rate::SentRate;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::seq::{Seq, bytes};

/// One segment.
pub(crate) struct Piece {
    pub(crate) begin: Seq,
    /// Bytes of payload.
    pub(crate) len: usize,
    /// SYN, FIN, or PSH for data.
    pub(crate) control: TcpControl,
    /// Place of the payload; SYN and FIN have none.
    pub(crate) frame: Option<Held>,
    /// Time of the last transmission.
    pub(crate) sent_at: Instant,
    /// Number of transmissions. A piece that the peer's window has no room for yet counts as lost
    /// before it is sent.
    pub(crate) transmits: u32,
    /// Our timestamp in the last transmission.
    pub(crate) stamp: u32,
    /// Only for an algorithm that uses the delivery rate.
    pub(crate) rate: Option<SentRate>,
    /// The peer has received it out of order.
    pub(crate) sacked: bool,
    /// It must be retransmitted.
    pub(crate) lost: bool,
}

impl fmt::Debug for Piece {
    /// Prints the state of the transmission, without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece")
            .field("begin", &self.begin)
            .field("len", &self.len)
            .field("control", &self.control)
            .field("frame", &self.frame.as_ref().map(Held::name))
            .field("sent_at", &self.sent_at)
            .field("transmits", &self.transmits)
            .field("sacked", &self.sacked)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// Payload of a piece.
pub(crate) enum Held {
    /// In a sent frame, which the kernel may still have.
    Sent(SentFrame),
    /// In a frame that is ready to be sent.
    Ready(TxFrame),
    /// In memory alone: other connections needed the frame while the peer was silent.
    Parked(Box<[u8]>),
}

impl Held {
    /// Frees the frame.
    pub(crate) fn free(self, device: &mut Device) {
        match self {
            Self::Sent(sent) => device.release(sent),
            Self::Ready(frame) => device.discard(frame),
            Self::Parked(payload) => device.unpark(&payload),
        }
    }

    fn is_parked(&self) -> bool {
        matches!(self, Self::Parked(_))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Sent(_) => "sent",
            Self::Ready(_) => "ready",
            Self::Parked(_) => "parked",
        }
    }

    /// Moves the payload out of the frame, behind `head` bytes of headers, unless the kernel still
    /// has the frame.
    pub(crate) fn park(self, head: usize, device: &mut Device) -> Self {
        let frame = match self {
            Self::Sent(sent) => match device.reclaim(sent) {
                Ok(frame) => frame,
                Err(sent) => return Self::Sent(sent),
            },
            Self::Ready(frame) => frame,
            Self::Parked(_) => return self,
        };
        Self::Parked(device.park(frame, head))
    }
}

impl Piece {
    /// Sequence number after the piece.
    pub(crate) fn end(&self) -> Seq {
        self.begin + self.seq_len()
    }

    /// Length in sequence numbers.
    pub(crate) fn seq_len(&self) -> usize {
        self.len + usize::from(self.control != TcpControl::Psh)
    }

    /// True for a piece that was sent once and has no marks: only its length counts.
    fn is_plain(&self) -> bool {
        self.transmits == 1 && !self.sacked && !self.lost
    }

    fn in_flight(&self) -> bool {
        !self.sacked && !self.lost
    }

    fn sums(&self) -> Sums {
        Sums {
            pipe: if self.in_flight() { self.len } else { 0 },
            payload: self.len,
            lost: usize::from(self.lost),
            sacked: usize::from(self.sacked),
            repeated: usize::from(self.transmits > 1),
        }
    }
}

/// Pieces in stream order.
pub(crate) struct SendQueue {
    pieces: VecDeque<Piece>,
    sums: Sums,
}

/// Share of a piece in the sums, or the sums themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    /// Bytes believed to be in the network (RFC 6675 §4).
    pipe: usize,
    /// Bytes of payload.
    payload: usize,
    lost: usize,
    sacked: usize,
    /// Pieces that were sent more than once.
    repeated: usize,
}

impl fmt::Debug for SendQueue {
    /// Prints the number of pieces, and the first one, which the rest waits for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("pieces", &self.pieces.len())
            .field("sums", &self.sums)
            .field("first", &self.pieces.front())
            .finish()
    }
}

impl SendQueue {
    /// An empty queue with room for one piece. Most connections are idle, and never have more in
    /// flight.
    pub(crate) fn new() -> Self {
        Self {
            pieces: VecDeque::with_capacity(1),
            sums: Sums::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes in flight.
    pub(crate) fn pipe(&self) -> usize {
        self.sums.pipe
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.sums.lost > 0
    }

    pub(crate) fn sacked(&self) -> usize {
        self.sums.sacked
    }

    /// True if pieces may have been sent or received in another order than the stream's.
    pub(crate) fn is_disordered(&self) -> bool {
        self.sums.sacked + self.sums.lost + self.sums.repeated > 0
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Piece> {
        self.pieces.get(at)
    }

    pub(crate) fn first(&self) -> Option<&Piece> {
        self.pieces.front()
    }

    /// Appends a piece.
    #[inline]
    pub(super) fn push(&mut self, piece: Piece) {
        if piece.is_plain() {
            self.sums.pipe += piece.len;
            self.sums.payload += piece.len;
        } else {
            self.count(piece.sums());
        }
        self.pieces.push_back(piece);
    }

    /// The first piece, if all of it is before `ack`.
    pub(super) fn first_acked(&self, ack: Seq) -> Option<&Piece> {
        let first = self.pieces.front()?;
        (!ack.is_before(first.end())).then_some(first)
    }

    /// Removes and returns the first piece.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        if piece.is_plain() {
            self.sums.pipe -= piece.len;
            self.sums.payload -= piece.len;
        } else {
            self.uncount(piece.sums());
        }
        Some(piece)
    }

    /// Removes and returns the first piece if all of it is before `ack`.
    pub(super) fn pop_acked(&mut self, ack: Seq) -> Option<Piece> {
        self.first_acked(ack)?;
        self.pop()
    }

    fn uncount(&mut self, piece: Sums) {
        self.sums.pipe -= piece.pipe;
        self.sums.payload -= piece.payload;
        self.sums.lost -= piece.lost;
        self.sums.sacked -= piece.sacked;
        self.sums.repeated -= piece.repeated;
    }

    fn count(&mut self, piece: Sums) {
        self.sums.pipe += piece.pipe;
        self.sums.payload += piece.payload;
        self.sums.lost += piece.lost;
        self.sums.sacked += piece.sacked;
        self.sums.repeated += piece.repeated;
    }

    /// Changes a piece, and updates the sums.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Piece)) {
        let Some(piece) = self.pieces.get_mut(at) else {
            return;
        };
        let before = piece.sums();
        change(piece);
        let after = piece.sums();
        self.uncount(before);
        self.count(after);
    }

    /// Marks a piece as received by the peer. Returns false if it was marked already.
    pub(crate) fn mark_sacked(&mut self, at: usize) -> bool {
        if self.pieces.get(at).is_none_or(|piece| piece.sacked) {
            return false;
        }
        self.change(at, |piece| {
            piece.sacked = true;
            piece.lost = false;
        });
        true
    }

    /// Marks a piece for retransmission. Returns false if it was marked already, or need not be
    /// sent.
    pub(crate) fn mark_lost(&mut self, at: usize) -> bool {
        if self.pieces.get(at).is_none_or(|piece| !piece.in_flight()) {
            return false;
        }
        self.change(at, |piece| piece.lost = true);
        true
    }

    /// Clears all marks of lost pieces, except pieces that were never sent.
    pub(crate) fn forgive(&mut self) {
        for at in 0..self.pieces.len() {
            self.change(at, |piece| piece.lost &= piece.transmits == 0);
        }
    }

    /// Treats all pieces as not received, as the peer may have dropped data that it has reported by
    /// SACK (RFC 2018 §8).
    pub(crate) fn distrust(&mut self) {
        for at in 0..self.pieces.len() {
            self.change(at, |piece| piece.sacked = false);
        }
    }

    /// Indices of the pieces that lie completely between two edges.
    pub(crate) fn within(&self, left: Seq, right: Seq) -> std::ops::Range<usize> {
        let begin = self
            .pieces
            .partition_point(|piece| piece.begin.is_before(left));
        let end = self
            .pieces
            .partition_point(|piece| !right.is_before(piece.end()));
        begin..end.max(begin)
    }

    /// Index of the first lost piece.
    pub(crate) fn first_lost(&self) -> Option<usize> {
        if !self.has_lost() {
            return None;
        }
        self.pieces.iter().position(|piece| piece.lost)
    }

    /// Takes a piece's frame to retransmit it.
    pub(crate) fn take_frame(&mut self, at: usize) -> Option<Held> {
        self.pieces.get_mut(at)?.frame.take()
    }

    pub(crate) fn put_frame(&mut self, at: usize, frame: Held) {
        if let Some(piece) = self.pieces.get_mut(at) {
            piece.frame = Some(frame);
        }
    }

    /// Records a retransmission of a piece.
    pub(super) fn resent(&mut self, at: usize, now: Instant, stamp: u32, rate: Option<SentRate>) {
        self.change(at, |piece| {
            piece.sent_at = now;
            piece.stamp = stamp;
            piece.rate = rate;
            piece.transmits += 1;
            piece.lost = false;
        });
    }

    /// Splits a piece after `len` bytes of payload. The second part has no frame yet.
    pub(crate) fn split(&mut self, at: usize, len: usize) {
        let Some(piece) = self.pieces.get(at).filter(|piece| piece.len > len) else {
            return;
        };
        let second = Piece {
            begin: piece.begin + len,
            len: piece.len - len,
            frame: None,
            ..*piece
        };
        self.change(at, |piece| piece.len = len);
        self.count(second.sums());
        self.pieces.insert(at + 1, second);
    }

    /// True unless all payload is parked.
    pub(crate) fn has_frames(&self) -> bool {
        let held = self.pieces.iter().flat_map(|piece| &piece.frame);
        held.into_iter().any(|held| !held.is_parked())
    }

    /// Moves the payload of `idle` pieces out of their frames, behind `head` bytes of headers.
    /// Returns the number of frames freed.
    pub(crate) fn park(
        &mut self,
        head: usize,
        idle: impl Fn(&Piece) -> bool,
        device: &mut Device,
    ) -> usize {
        let mut parked = 0;
        for piece in self.pieces.iter_mut().filter(|piece| idle(piece)) {
            let Some(payload) = piece.frame.take_if(|held| !held.is_parked()) else {
                continue;
            };
            let payload = payload.park(head, device);
            parked += usize::from(payload.is_parked());
            piece.frame = Some(payload);
        }
        parked
    }

    /// Frees all frames.
    pub(crate) fn clear(&mut self, device: &mut Device) {
        self.sums = Sums::default();
        for piece in std::mem::take(&mut self.pieces) {
            if let Some(frame) = piece.frame {
                frame.free(device);
            }
        }
    }

    /// Payload bytes from `una` on.
    pub(crate) fn payload_from(&self, una: Seq) -> usize {
        let Some(first) = self.pieces.front() else {
            return 0;
        };
        self.sums.payload - bytes(first.begin, una).min(first.len)
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! Pieces that were sent once.

    use super::*;
    use crate::delivery_rate::RateSampler;

    pub(crate) fn piece(begin: Seq, len: usize) -> Piece {
        let now = Instant::ORIGIN;
        Piece {
            begin,
            len,
            control: TcpControl::Psh,
            frame: None,
            sent_at: now,
            transmits: 1,
            stamp: 0,
            rate: Some(RateSampler::new(now).on_sent(now, 0, 0)),
            sacked: false,
            lost: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::piece;
    use super::*;
    use crate::wire::seq::from_raw;
    use crate::wire::seq::testing::{LARGEST, at, start};

    fn three() -> SendQueue {
        let mut queue = SendQueue::new();
        for begin in [100, 200, 300] {
            queue.push(piece(from_raw(begin), 100));
        }
        queue
    }

    #[test]
    fn pipe_counts_what_is_neither_lost_nor_sacked() {
        let mut queue = three();
        assert_eq!(queue.pipe(), 300);
        assert!(queue.mark_sacked(2) && !queue.mark_sacked(2));
        assert!(queue.mark_lost(0) && !queue.mark_lost(2));
        assert_eq!(queue.pipe(), 100);
        assert_eq!(queue.first_lost(), Some(0));
        let rate = queue.get(0).unwrap().rate;
        queue.resent(0, Instant::ORIGIN, 0, rate);
        assert_eq!((queue.pipe(), queue.first_lost()), (200, None));
        while queue.pop_acked(from_raw(400)).is_some() {}
        assert_eq!(queue.sums, Sums::default());
    }

    #[test]
    fn only_whole_pieces_are_acknowledged() {
        let mut queue = three();
        assert_eq!(queue.within(from_raw(150), from_raw(399)), 1..2);
        assert_eq!(queue.within(from_raw(100), from_raw(400)), 0..3);
        assert_eq!(queue.within(from_raw(400), from_raw(400)), 3..3);
        assert!(queue.pop_acked(from_raw(150)).is_none());
        assert_eq!(queue.payload_from(from_raw(150)), 250);
    }

    #[test]
    fn what_was_never_sent_is_not_forgiven() {
        let mut queue = three();
        queue.mark_lost(0);
        queue.push(Piece {
            transmits: 0,
            lost: true,
            ..piece(from_raw(400), 100)
        });
        queue.forgive();
        assert_eq!((queue.first_lost(), queue.pipe()), (Some(3), 300));
    }

    #[test]
    fn piece_can_be_cut_in_two() {
        let mut queue = three();
        queue.mark_lost(1);
        queue.split(1, 30);
        let pieces: Vec<_> = queue.pieces.iter().map(|p| (p.len, p.lost)).collect();
        assert_eq!(pieces, [(100, false), (30, true), (70, true), (100, false)]);
        assert_eq!(queue.sums.payload, 300);
    }

    /// Pieces of a flight of at most a window: its start, and their lengths.
    fn flight() -> impl Strategy<Value = (i64, Vec<usize>)> {
        let len = prop_oneof![1..70_000_usize, Just(1), Just(1 << 26)];
        (start(), prop::collection::vec(len, 0..16))
    }

    /// A place in the flight or just behind it, at or next to the edge of a piece.
    fn place(edges: &[i64], at: prop::sample::Index, off: i64) -> i64 {
        let (first, last) = (edges[0], edges[edges.len() - 1]);
        (edges[at.index(edges.len())] + off).clamp(first, last)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

        /// Effect of SACK and ACK on a flight anywhere in the space. Their edges lie in the flight,
        /// which the caller checks before.
        #[test]
        fn pieces_are_found_by_edges_as_in_a_stream_that_does_not_wrap(
            (begin, lens) in flight(),
            edges in [any::<prop::sample::Index>(), any::<prop::sample::Index>()],
            offs in [-1..=1_i64, -1..=1_i64],
        ) {
            let mut queue = SendQueue::new();
            let mut places = vec![begin];
            for len in lens {
                let last = places[places.len() - 1];
                queue.push(piece(at(last), len));
                places.push(last + i64::try_from(len).unwrap());
            }
            prop_assume!(places[places.len() - 1] - begin <= LARGEST);
            let [left, right] = [0, 1].map(|n| place(&places, edges[n], offs[n]));
            let within = |pair: &&[i64]| left <= pair[0] && pair[1] <= right;
            let found: Vec<_> = queue.within(at(left), at(right)).map(|n| at(places[n])).collect();
            let expected: Vec<_> = places.windows(2).filter(within).map(|pair| at(pair[0])).collect();
            prop_assert_eq!(found, expected);
            let mut acked = 0;
            while queue.pop_acked(at(right)).is_some() {
                acked += 1;
            }
            prop_assert_eq!(acked, places[1..].iter().filter(|end| **end <= right).count());
            let left = places[places.len() - 1] - right;
            prop_assert_eq!(i64::try_from(queue.payload_from(at(right))).unwrap(), left);
        }
    }
}

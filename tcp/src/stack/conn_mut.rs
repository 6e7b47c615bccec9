//! Connection on loan: one look-up, then reads, writes and queries of one connection.

use std::fmt;
use std::ops::Deref;

use xwarp_driver::PartialSum;

use super::connections::LentEntry;
use super::tx_reservation::TxReservation;
use crate::conn::Conn;
use crate::device::Device;
use crate::time::Instant;

/// One connection of a [`Stack`](crate::Stack), borrowed for an event or a turn. [`Conn`] has the
/// queries that change nothing.
pub struct ConnMut<'a> {
    pub(super) entry: LentEntry<'a>,
    pub(super) device: &'a mut Device,
    pub(super) reservation: &'a mut Option<TxReservation>,
    pub(super) joined: &'a mut Vec<u8>,
    pub(super) now: &'a mut Instant,
}

impl Deref for ConnMut<'_> {
    type Target = Conn;

    #[inline]
    fn deref(&self) -> &Conn {
        self.entry.conn()
    }
}

/// Receiving.
impl ConnMut<'_> {
    /// In-order bytes received and not consumed: at least `want` bytes in one slice if there are as
    /// many, otherwise those that are contiguous. They are read in the received frame, and joined
    /// in a buffer only if `want` bytes span several frames.
    #[inline]
    pub fn readable(&mut self, want: usize) -> &[u8] {
        self.entry.conn().readable(want, self.joined)
    }

    /// Consumes the first `n` bytes, and returns the number of bytes left. The next
    /// [`Stack::step`](crate::Stack::step) or [`Stack::transmit`](crate::Stack::transmit) announces
    /// the free room to the peer.
    #[inline]
    pub fn consume(&mut self, n: usize) -> usize {
        let conn = self.entry.conn_mut();
        conn.consume(n, self.device);
        let left = conn.readable_len();
        if conn.owes_ack() {
            self.entry.touch();
        }
        left
    }
}

/// Sending.
impl ConnMut<'_> {
    /// Room for a piece of `len` bytes that will leave at once, in the frame that will carry it. It
    /// leaves as one TCP segment if `len` is at most [`emss`](Conn::emss). The room holds arbitrary
    /// bytes. It remains until it is committed, or `writable` is called again for any connection.
    ///
    /// Returns `None` unless the congestion window, the peer's window and the send buffer have room
    /// for the whole piece. Also `None` while a retransmission waits, no TX frame is free, or
    /// [`MAX_SEGMENTS_IN_FLIGHT`](crate::MAX_SEGMENTS_IN_FLIGHT) segments are unacknowledged.
    /// [`Event::Writable`](crate::Event::Writable) follows once that has changed. A piece larger
    /// than any window that the peer ever announced is admitted, to be split, when all sent data is
    /// acknowledged.
    pub fn writable(&mut self, len: usize) -> Option<&mut [u8]> {
        // Usually there is none, and nothing is moved.
        if self.reservation.is_some()
            && let Some(unused) = self.reservation.take()
        {
            unused.discard(self.device);
        }
        let handle = self.entry.handle();
        let conn = self.entry.conn_mut();
        if !conn.finds_room(len, self.device, *self.now) {
            conn.refuse(len);
            self.entry.touch(); // the window may have to be probed
            return None;
        }
        *self.reservation = TxReservation::new(handle, conn, len, self.device);
        if self.reservation.is_none() {
            conn.refuse(len);
            self.entry.wait_for_frame();
        }
        self.reservation.as_mut().map(TxReservation::bytes)
    }

    /// Extends the room from [`writable`](Self::writable) to the whole segment that can leave at
    /// once. The bytes written so far stay at its start.
    pub fn widen(&mut self) -> Option<&mut [u8]> {
        let handle = self.entry.handle();
        let room = (self.reservation.as_mut()).filter(|room| room.is_for(handle))?;
        Some(room.widen(self.entry.conn()))
    }

    /// Sends the first `n` bytes of the room from [`writable`](Self::writable) and
    /// [`widen`](Self::widen) as a segment with PSH. The next
    /// [`Stack::transmit`](crate::Stack::transmit) or [`Stack::step`](crate::Stack::step) submits
    /// it to the kernel.
    pub fn commit(&mut self, n: usize, now: Instant) {
        self.commit_summed(n, None, now);
    }

    /// Sends bytes as [`commit`](Self::commit) does. `sum`: their sum, if known, which saves TCP
    /// its pass over them.
    pub fn commit_summed(&mut self, n: usize, sum: Option<PartialSum>, now: Instant) {
        *self.now = now.max(*self.now);
        let handle = self.entry.handle();
        let Some(room) = self.reservation.take_if(|room| room.is_for(handle)) else {
            return;
        };
        room.commit(n, sum, self.entry.conn_mut(), self.device, *self.now);
        self.entry.touch();
    }

    /// Bytes committed that the peer has not acknowledged.
    pub fn unacked(&mut self) -> usize {
        let conn = self.entry.conn_mut();
        conn.act_on_deferred_ack(self.device);
        conn.unacked()
    }
}

impl fmt::Debug for ConnMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnMut").field(self.entry.conn()).finish()
    }
}

//! Connection on loan: what the user of one connection reads, writes and learns, after one look-up.

use std::fmt;
use std::ops::Deref;

use xwarp_driver::PartialSum;

use super::connections::LentEntry;
use super::tx_reservation::TxReservation;
use crate::conn::Conn;
use crate::device::Device;
use crate::time::Instant;

/// One connection of a [`Stack`](crate::Stack), lent for an event or a turn. What can be asked without changing anything is
/// [`Conn`]'s.
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

/// What is received.
impl ConnMut<'_> {
    /// In-order bytes received and not consumed: at least `want` of them in one slice if that many are there, else those that
    /// lie together. They are read in the frame that brought them, and are joined in a buffer only if what is wanted lies in several.
    #[inline]
    pub fn readable(&mut self, want: usize) -> &[u8] {
        self.entry.conn().readable(want, self.joined)
    }

    /// Takes the first `n` bytes away; how many can still be read. The peer learns of the room by the next
    /// [`Stack::step`](crate::Stack::step) or [`Stack::transmit`](crate::Stack::transmit).
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

/// What is sent.
impl ConnMut<'_> {
    /// Room for a piece of `len` bytes that will leave at once, in the frame that will carry it. It leaves as one TCP segment if `len` is
    /// at most [`emss`](Conn::emss). The bytes given hold what was there before. The room is there until it is committed, or `writable` is
    /// called again for any connection.
    ///
    /// `None` unless the congestion window, the peer's window and the send buffer have room for all of it. `None`, too, while something
    /// waits to be sent again, no TX frame is free, or [`MAX_SEGMENTS_IN_FLIGHT`](crate::MAX_SEGMENTS_IN_FLIGHT) segments are
    /// unacknowledged. [`Event::Writable`](crate::Event::Writable) follows when that has changed. A piece larger than any window that the
    /// peer ever announced is let through, to be split, when nothing is unacknowledged.
    pub fn writable(&mut self, len: usize) -> Option<&mut [u8]> {
        // Most often there is none, and nothing is to be moved.
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

    /// All the room that the segment has which [`writable`](Self::writable) gave room in, if all of it can leave at once. What was given comes
    /// first, and keeps what was written there.
    pub fn widen(&mut self) -> Option<&mut [u8]> {
        let handle = self.entry.handle();
        let room = (self.reservation.as_mut()).filter(|room| room.is_for(handle))?;
        Some(room.widen(self.entry.conn()))
    }

    /// Sends the first `n` bytes of the room that [`writable`](Self::writable) and [`widen`](Self::widen) gave, as a segment of their own with PSH. They are
    /// on their way after the next [`Stack::transmit`](crate::Stack::transmit) or [`Stack::step`](crate::Stack::step).
    pub fn commit(&mut self, n: usize, now: Instant) {
        self.commit_summed(n, None, now);
    }

    /// Sends them likewise. `sum` is that of these bytes, if it is known: they need not be summed for the checksum then.
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

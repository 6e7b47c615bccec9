//! Frames: owned pieces of an arena that hold one Ethernet frame each.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that frames are cut from, kept mapped as long as one of them lives.
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
    _mapping: Box<dyn Send + Sync>,
}

// SAFETY: an arena is only an address, a length and a mapping that may be shared; the memory itself is reached through
// frames and regions, whose own rules say who may touch which octets.
unsafe impl Send for Arena {}
// SAFETY: as for Send.
unsafe impl Sync for Arena {}

impl Arena {
    /// # Safety
    ///
    /// `base` points to `len` octets that stay mapped, readable and writable as long as `mapping` lives, and that nothing
    /// outside this arena accesses, except the kernel through rings that follow the frame ownership rules.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        len: usize,
        mapping: Box<dyn Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            base,
            len,
            _mapping: mapping,
        })
    }

    /// An arena of anonymous memory, zeroed.
    pub(crate) fn anonymous(len: usize) -> std::io::Result<Arc<Self>> {
        let mut map = memmap2::MmapMut::map_anon(len.max(1))?;
        let base = NonNull::from(&mut map[0]);
        // SAFETY: the mapping is moved into the arena, which hands out its octets only by frames and regions; moving the
        // owner does not move the mapped memory.
        Ok(unsafe { Self::new(base, len, Box::new(map)) })
    }

    /// The address of `len` octets at `offset`, if they lie in the arena.
    pub(crate) fn checked_ptr(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `offset` is at most `self.len`, so the result stays inside the mapping or one past its end.
        Some(unsafe { self.base.add(offset) })
    }
}

/// A piece of the arena with one owner: whoever holds it may read and write it.
pub(crate) struct Frame {
    start: NonNull<u8>,
    capacity: usize,
    offset: usize,
    _arena: Arc<Arena>,
}

// SAFETY: a frame is the only way to its octets (`Frame::carve` is called once per place), so it can move between threads.
unsafe impl Send for Frame {}
// SAFETY: a shared frame can only be read.
unsafe impl Sync for Frame {}

impl Frame {
    /// The frame of `capacity` octets at `offset`; `None` outside the arena.
    ///
    /// # Safety
    ///
    /// No two live frames of an arena may overlap, nor a frame and a region.
    pub(crate) unsafe fn carve(arena: &Arc<Arena>, offset: usize, capacity: usize) -> Option<Self> {
        Some(Self {
            start: arena.checked_ptr(offset, capacity)?,
            capacity,
            offset,
            _arena: Arc::clone(arena),
        })
    }

    /// Offset of the first octet in the arena.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    fn bytes(&self, len: usize) -> &[u8] {
        let len = len.min(self.capacity);
        // SAFETY: `start..start+capacity` lies in the arena, which `self` keeps mapped, is initialised (anonymous memory is
        // zeroed) and belongs to this frame alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) }
    }

    fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.capacity);
        // SAFETY: as for `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }
}

/// A received Ethernet frame.
#[must_use = "a frame that is not recycled is lost to its queue"]
pub struct RxFrame {
    frame: Frame,
    len: usize,
}

impl RxFrame {
    pub(crate) fn new(frame: Frame, len: usize) -> Self {
        Self { frame, len }
    }

    pub(crate) fn into_frame(self) -> Frame {
        self.frame
    }
}

impl Deref for RxFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.bytes(self.len)
    }
}

impl fmt::Debug for RxFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RxFrame({} octets at {:#x})",
            self.len, self.frame.offset
        )
    }
}

/// Where a queue keeps the frames that are out of our reach, one place per frame.
pub(crate) struct Parking(Vec<Parked>);

/// What is at one place.
#[derive(Default)]
enum Parked {
    #[default]
    Nothing,
    /// The kernel has it; it is free when it comes back.
    Lent(Frame),
    /// The kernel has it, and its sender wants it again.
    Kept(Frame),
    /// The kernel has returned it, and its sender has not asked for it yet.
    Returned(Frame),
}

impl Parking {
    pub(crate) fn new(places: usize) -> Self {
        Self((0..places).map(|_| Parked::default()).collect())
    }

    /// Puts a frame out of our own reach, `kept` for whoever sent it.
    pub(crate) fn park(&mut self, place: usize, frame: Frame, kept: bool) {
        if let Some(slot) = self.0.get_mut(place) {
            *slot = if kept {
                Parked::Kept(frame)
            } else {
                Parked::Lent(frame)
            };
        }
    }

    /// The kernel returns a frame: ours at once unless its sender keeps it. `Err` if the kernel did not have it.
    pub(crate) fn returned(&mut self, place: usize) -> Result<Option<Frame>, NotLent> {
        let slot = self.0.get_mut(place).ok_or(NotLent)?;
        match std::mem::take(slot) {
            Parked::Lent(frame) => Ok(Some(frame)),
            Parked::Kept(frame) => {
                *slot = Parked::Returned(frame);
                Ok(None)
            }
            other => {
                *slot = other;
                Err(NotLent)
            }
        }
    }

    /// The first `len` octets of a frame that was parked and not returned. Only for a queue whose frames wait here to be copied, so
    /// that no kernel is writing them.
    pub(crate) fn octets(&self, place: usize, len: usize) -> Option<&[u8]> {
        match self.0.get(place)? {
            Parked::Lent(frame) | Parked::Kept(frame) => Some(frame.bytes(len)),
            Parked::Nothing | Parked::Returned(_) => None,
        }
    }

    /// A kept frame, if the kernel has returned it.
    pub(crate) fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        let Some(slot) = self.0.get_mut(sent.place) else {
            return Err(sent);
        };
        match std::mem::take(slot) {
            Parked::Returned(frame) => {
                let mut frame = TxFrame::new(frame);
                frame.set_len(sent.len);
                Ok(frame)
            }
            other => {
                *slot = other;
                Err(sent)
            }
        }
    }

    /// A kept frame is not wanted any more: the frame, if the kernel has returned it.
    pub(crate) fn release(&mut self, sent: &SentFrame) -> Option<Frame> {
        let slot = self.0.get_mut(sent.place)?;
        match std::mem::take(slot) {
            Parked::Returned(frame) => Some(frame),
            Parked::Kept(frame) => {
                *slot = Parked::Lent(frame);
                None
            }
            other => {
                *slot = other;
                None
            }
        }
    }
}

/// The kernel returned a frame that it did not have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotLent;

/// A frame to be filled and sent. Its length is what [`set_len`](Self::set_len) said last, 0 at first.
#[must_use = "a frame that is neither sent nor discarded is lost to its queue"]
pub struct TxFrame {
    frame: Frame,
    len: usize,
}

impl TxFrame {
    pub(crate) fn new(frame: Frame) -> Self {
        Self { frame, len: 0 }
    }

    pub(crate) fn into_frame(self) -> Frame {
        self.frame
    }

    /// Octets that fit.
    pub fn capacity(&self) -> usize {
        self.frame.capacity()
    }

    /// Sets the frame's length, at most its capacity. Octets not written before hold what the frame's former use left.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.frame.capacity());
    }
}

impl Deref for TxFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.bytes(self.len)
    }
}

impl DerefMut for TxFrame {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.frame.bytes_mut(self.len)
    }
}

/// A frame that was sent and is still its sender's: a token that gives no access, as the kernel may be reading the frame.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a sent frame that is neither reclaimed nor released is lost to its queue"]
pub struct SentFrame {
    /// Where the queue keeps the frame.
    place: usize,
    len: usize,
}

impl SentFrame {
    pub(crate) fn new(place: usize, len: usize) -> Self {
        Self { place, len }
    }

    /// Octets that were sent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a frame without octets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for TxFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TxFrame({} octets at {:#x})",
            self.len, self.frame.offset
        )
    }
}

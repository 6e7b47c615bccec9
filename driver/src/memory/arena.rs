//! Arena: one mapping that frames and regions are cut from.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that frames are cut from, kept mapped as long as one of them lives.
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
    /// Which arena of this process it is. No other ever has the same, as it may be with an address.
    number: u64,
    /// How many frames it was cut into.
    frames: usize,
    /// Bytes in front of each frame that are its own as well.
    headroom: usize,
    _mapping: Box<dyn Send + Sync>,
}

// SAFETY: an arena is only an address, some numbers and a mapping that may be shared; the memory
// itself is reached through frames and regions, whose own rules say who may touch which bytes.
unsafe impl Send for Arena {}
// SAFETY: as for Send.
unsafe impl Sync for Arena {}

impl Arena {
    /// # Safety
    ///
    /// `base` may be used to read and write `len` initialised bytes as long as `mapping` lives.
    /// Nothing outside this arena accesses them, except the kernel through rings that follow the
    /// frame ownership rules.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize, mapping: Box<dyn Send + Sync>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            base,
            len,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            frames: 0,
            headroom: 0,
            _mapping: mapping,
        }
    }

    /// An arena of anonymous memory, zeroed.
    pub(crate) fn anonymous(len: usize) -> std::io::Result<Self> {
        let map = memmap2::MmapRaw::from(memmap2::MmapMut::map_anon(len.max(1))?);
        let Some(base) = NonNull::new(map.as_mut_ptr()) else {
            unreachable!("a mapping at address 0");
        };
        // SAFETY: `base` is the mapping's own pointer, valid for all its bytes, which are zero at
        // first. The arena owns the mapping and hands out its bytes only by frames and regions;
        // moving the owner does not move the mapped memory.
        Ok(unsafe { Self::new(base, len, Box::new(map)) })
    }

    /// Makes the arena share its bytes as `frames` frames, each with `headroom` bytes in front of
    /// it.
    pub(crate) fn divided(mut self, frames: usize, headroom: usize) -> Arc<Self> {
        self.frames = frames;
        self.headroom = headroom;
        Arc::new(self)
    }

    /// Address of the first byte.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Number of the arena, which no other arena of this process ever has.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How many frames the arena was cut into.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes in front of each frame that are its own as well.
    #[inline]
    pub(crate) fn headroom(&self) -> usize {
        self.headroom
    }

    /// The address of `len` bytes at `offset`, if they lie in the arena.
    pub(crate) fn checked_ptr(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `offset` is at most `self.len`, so the result stays inside the mapping or one
        // past its end.
        Some(unsafe { self.base.add(offset) })
    }
}

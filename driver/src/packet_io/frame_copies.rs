//! Frame copies: frames that reach a receiver by memory, without a ring of the kernel.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::frame::{Layout, RxFrame, TxFrame};
use super::frame_pool::FramePool;
use crate::memory::Arena;

/// Frames start on a cache line.
const LINE: usize = 64;

/// Copies of frames, in memory of their own, until their receiver gives them back.
pub(crate) struct FrameCopies {
    arena: Arc<Arena>,
    pool: FramePool,
    /// Those that were not received yet, the oldest first.
    waiting: VecDeque<RxFrame>,
    taken: u64,
    dropped: u64,
}

impl FrameCopies {
    /// Memory for `count` copies of `bytes` bytes each. What is never written takes none.
    pub(crate) fn new(count: usize, capacity: usize) -> io::Result<Self> {
        let stride = capacity.next_multiple_of(LINE);
        let (arena, free) = Arena::anonymous(count * stride)?.into_frames(
            &[Layout {
                first: 0,
                count,
                capacity,
                stride,
            }],
            0,
        );
        Ok(Self {
            pool: FramePool::new(Arc::clone(&arena), free),
            arena,
            waiting: VecDeque::new(),
            taken: 0,
            dropped: 0,
        })
    }

    /// The memory, by which a caller knows whether a frame is a copy.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Takes a copy of a frame. It is lost if there is no room for it, as in a receive ring that is
    /// full.
    /// Returns the place of the copy.
    pub(crate) fn take_in(&mut self, frame: &[u8]) -> Option<usize> {
        let copied = self.copy(frame);
        self.taken += u64::from(copied.is_some());
        self.dropped += u64::from(copied.is_none());
        copied
    }

    fn copy(&mut self, frame: &[u8]) -> Option<usize> {
        let room = self.pool.take()?;
        let at = room.place();
        let mut copy = TxFrame::new(room);
        copy.set_len(frame.len());
        let Some(place) = copy.get_mut(..frame.len()) else {
            self.pool.give_back(copy.into_frame());
            return None;
        };
        place.copy_from_slice(frame);
        self.waiting
            .push_back(RxFrame::new(copy.into_frame(), frame.len()));
        Some(at)
    }

    /// Hands out up to `budget` copies.
    pub(crate) fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let count = budget.min(self.waiting.len());
        out.extend(self.waiting.drain(..count));
    }

    /// How many wait to be received.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True while some wait to be received.
    pub(crate) fn has_any(&self) -> bool {
        self.waiting() > 0
    }

    /// Takes a copy back.
    pub(crate) fn recycle(&mut self, frame: RxFrame) {
        self.pool.give_back(frame.into_frame());
    }

    /// Frames that were taken in.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Frames that there was no room for.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

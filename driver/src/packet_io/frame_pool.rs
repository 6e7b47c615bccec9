//! Frame pool of a queue: its free frames, and those that are out of their owner's reach until they
//! have been sent or received.

use std::sync::Arc;

use super::frame::{Foreign, Frame, NotLent, Parking, SentFrame, TxFrame};
use crate::memory::Arena;

/// See the module. It refuses frames and tokens of another queue, and counts them.
pub(crate) struct FramePool {
    free: Vec<Frame>,
    parked: Parking,
    foreign: u64,
}

impl FramePool {
    /// A pool with these free frames of an arena. Others of the arena may be parked, too.
    pub(crate) fn new(arena: Arc<Arena>, free: Vec<Frame>) -> Self {
        Self {
            free,
            parked: Parking::new(arena),
            foreign: 0,
        }
    }

    /// Free frames.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Frames and tokens of another queue that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.foreign
    }

    /// Takes a free frame.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Frame> {
        self.free.pop()
    }

    /// True for a frame of the same arena.
    pub(crate) fn owns(&self, frame: &Frame) -> bool {
        self.parked.owns(frame)
    }

    /// The frame, if it is of the same arena.
    #[inline]
    pub(crate) fn own(&mut self, frame: Frame) -> Option<Frame> {
        let ours = self.parked.owns(&frame);
        self.foreign += u64::from(!ours);
        ours.then_some(frame)
    }

    /// The frame is free again.
    #[inline]
    pub(crate) fn give_back(&mut self, frame: Frame) {
        if let Some(frame) = self.own(frame) {
            self.free.push(frame);
        }
    }

    /// Puts a frame out of its owner's reach, `kept` for its sender. Returns its place.
    #[inline]
    pub(crate) fn park(&mut self, frame: Frame, kept: bool) -> Result<usize, Foreign> {
        let parked = self.parked.park(frame, kept);
        self.foreign += u64::from(parked.is_err());
        parked
    }

    /// The token for a frame of `len` bytes that was parked for its sender.
    #[inline]
    pub(crate) fn token(&self, parked: Result<usize, Foreign>, len: usize) -> SentFrame {
        self.parked.token(parked, len)
    }

    /// Keeps a frame for its sender that was sent by other means.
    pub(crate) fn keep(&mut self, frame: TxFrame) -> SentFrame {
        let len = frame.len();
        let parked = self.park(frame.into_frame(), true);
        if let Ok(place) = parked {
            let returned = self.parked.returned(place);
            debug_assert!(matches!(returned, Ok(None)), "a frame that is kept is gone");
        }
        self.token(parked, len)
    }

    /// The keeper returns a frame; `None` for one that its sender keeps. `Err` if the keeper did
    /// not have it.
    #[inline]
    pub(crate) fn unpark(&mut self, place: usize) -> Result<Option<Frame>, NotLent> {
        self.parked.returned(place)
    }

    /// The frame was sent: it is free unless its sender keeps it. `Err` if the keeper did not have
    /// it.
    #[inline]
    pub(crate) fn complete(&mut self, place: usize) -> Result<(), NotLent> {
        if let Some(frame) = self.parked.returned(place)? {
            self.free.push(frame);
        }
        Ok(())
    }

    /// A kept frame, if it was sent.
    #[inline]
    pub(crate) fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.parked.reclaim(sent)
    }

    /// Releases a kept frame: it is free once it was sent.
    #[inline]
    pub(crate) fn release(&mut self, sent: &SentFrame) {
        match self.parked.release(sent) {
            Ok(Some(frame)) => self.free.push(frame),
            Ok(None) => {}
            Err(Foreign) => self.foreign += 1,
        }
    }
}

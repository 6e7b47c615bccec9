//! Processors of peers: who spins on the one that its peer needs keeps the peer from answering, for
//! as long as the scheduler lets it run.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::sched_getcpu;

use super::file::MappedWord;

/// Turns without work until the processors are looked at again.
const TURNS: u32 = 32;

/// The processor that a client ran on when it looked last, as its peers see it: the number plus 1,
/// or 0 if the client has not looked.
pub(super) struct Processor(MappedWord);

impl Processor {
    pub(super) fn new(word: MappedWord) -> Self {
        Self(word)
    }

    fn word(&self) -> &AtomicU32 {
        self.0.borrow()
    }

    /// Whether the client has run on this processor.
    pub(super) fn is(&self, number: u32) -> bool {
        self.word().load(Ordering::Relaxed) == number
    }

    /// Looks where this thread runs. Returns the number for [`is`](Self::is).
    fn look(&self) -> u32 {
        let number = u32::try_from(sched_getcpu()).unwrap_or(0).wrapping_add(1);
        // The word stays in the caches of the peers while it does not change.
        if !self.is(number) {
            self.word().store(number, Ordering::Relaxed);
        }
        number
    }
}

/// Gives way to a peer that shares the processor, at the end of turns without work.
pub(super) struct GivingWay {
    own: Processor,
    /// The turn has carried frames of a pair.
    has_worked: bool,
    /// Turns without work since the last look.
    idle: u32,
    is_shared: bool,
}

impl GivingWay {
    pub(super) fn new(own: Processor) -> Self {
        Self {
            own,
            has_worked: false,
            idle: 0,
            is_shared: false,
        }
    }

    #[inline]
    pub(super) fn work(&mut self) {
        self.has_worked = true;
    }

    /// `has_peer`: whether a peer has run on a processor.
    #[inline]
    pub(super) fn end_turn(&mut self, has_peer: impl Fn(u32) -> bool) {
        if std::mem::take(&mut self.has_worked) {
            return;
        }
        self.idle += 1;
        if self.idle == TURNS {
            self.idle = 0;
            self.is_shared = has_peer(self.own.look());
        }
        if self.is_shared {
            std::thread::yield_now();
        }
    }
}

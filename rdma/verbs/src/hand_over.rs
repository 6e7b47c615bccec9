//! Hand-over of an engine: whether its thread or the application's polling turns it.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).

use super::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// What the engine's thread and the application's threads tell each other.
///
/// The thread rests while the application polls. An application that is about to do something else says so: it asks for the thread. Each side
/// writes before it reads, with a full barrier between. So either the thread finds that it is asked for, or whoever asks finds it resting.
#[derive(Debug)]
pub(crate) struct HandOver {
    polls: AtomicU32,
    resting: AtomicBool,
    asked: AtomicBool,
    ended: AtomicBool,
}

impl HandOver {
    pub(crate) fn new() -> Self {
        Self {
            polls: AtomicU32::new(0),
            resting: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The application has polled in vain. Of two threads at once one may not be counted, which costs no lock.
    pub(crate) fn note_poll(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    }

    /// Polls so far.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// The application polls no longer. True if the thread rests, and is to be woken.
    #[must_use]
    pub(crate) fn ask(&self) -> bool {
        self.asked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.resting.load(Ordering::Relaxed)
    }

    /// The thread sees a burst of polls begin: what it was asked for before, it has done.
    pub(crate) fn begin_burst(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// The thread is about to rest. False if it was asked for since the burst began: then it does not.
    #[must_use]
    pub(crate) fn may_rest(&self) -> bool {
        self.resting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = !self.asked.load(Ordering::Relaxed) && !self.has_ended();
        if !may {
            self.resting.store(false, Ordering::Relaxed);
        }
        may
    }

    /// The thread has rested. True if it was asked for meanwhile.
    #[must_use]
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The thread turns the engine again.
    pub(crate) fn end_rest(&self) {
        self.resting.store(false, Ordering::Relaxed);
    }

    /// The RNIC was closed. True if the thread rests, and is to be woken.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.resting.load(Ordering::Relaxed)
    }

    /// Whether the RNIC was closed.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

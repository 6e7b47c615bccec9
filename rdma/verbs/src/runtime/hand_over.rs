//! Hand-over of an engine: whether its thread or the application's polling turns it.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).

use super::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// Flags that the engine's thread and the application's threads share.
///
/// The thread rests while the application polls. An application that is about to do something else
/// says so: it asks for the thread. Each side writes before it reads, with a full barrier between.
/// So either the thread sees the request, or the requesting thread sees it resting.
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

    /// The application has polled in vain. Of two threads at once one may not be counted, which
    /// costs no lock.
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

    /// The thread is about to rest. `None` if it must not: it was asked for since the burst began,
    /// or the RNIC was closed.
    #[must_use]
    pub(crate) fn may_rest(&self) -> Option<Rest<'_>> {
        self.resting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let rest = Rest(self);
        (!rest.is_over()).then_some(rest)
    }

    /// Whether the thread was asked for since the last burst began.
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
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

/// A rest of the engine's thread. Only [`HandOver::may_rest`] makes one. When it is dropped, the
/// thread turns the engine again.
pub(crate) struct Rest<'a>(&'a HandOver);

impl Rest<'_> {
    /// Calls `pause`, which an asker ends early, until the thread is asked for, the RNIC is closed,
    /// or `is_wanted` says so.
    pub(crate) fn last(self, mut pause: impl FnMut(), mut is_wanted: impl FnMut() -> bool) {
        loop {
            pause();
            if is_wanted() || self.is_over() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.0.is_asked() || self.0.has_ended()
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.resting.store(false, Ordering::Relaxed);
    }
}

//! Hand-over of an engine between its thread and the application's polls.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).

use super::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// Flags that the engine's thread and the application's threads share.
///
/// The thread rests while the application polls. An application that stops polling to wait or sleep
/// asks for the thread. Each side writes before it reads, with a full barrier in between: either
/// the thread sees the request, or the requesting thread sees that it rests.
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

    /// Counts a poll without a completion. Of two simultaneous polls one may not be counted, which
    /// saves a lock.
    pub(crate) fn note_poll(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    }

    /// Number of polls so far.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// The application stops polling. Returns true if the thread rests and must be woken.
    #[must_use]
    pub(crate) fn ask(&self) -> bool {
        self.asked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.resting.load(Ordering::Relaxed)
    }

    /// Records that the thread sees the begin of a burst of polls. Earlier requests for the thread
    /// are fulfilled.
    pub(crate) fn begin_burst(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// Begins a rest of the thread. `None` if it must not rest: it was requested since the burst
    /// began, or the RNIC was closed.
    #[must_use]
    pub(crate) fn may_rest(&self) -> Option<Rest<'_>> {
        self.resting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let rest = Rest(self);
        (!rest.is_over()).then_some(rest)
    }

    /// Whether the thread was requested since the last burst began.
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Records that the RNIC was closed. Returns true if the thread rests and must be woken.
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

/// A rest of the engine's thread. Only [`HandOver::may_rest`] creates one. When it is dropped, the
/// thread runs the engine again.
pub(crate) struct Rest<'a>(&'a HandOver);

impl Rest<'_> {
    /// Calls `pause` repeatedly, until the thread is requested, the RNIC is closed, or `is_wanted`
    /// returns true. A request ends a `pause` early.
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

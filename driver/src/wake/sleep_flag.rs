//! The flag between a sleeper and its wakers: no wake-up is lost, and none costs a system call
//! while no thread sleeps.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).
//!
//! `tests/models` compiles this file with loom's atomics and tries every interleaving. Without
//! either of the two barriers a model fails.

use std::borrow::Borrow;

use super::sync::{AtomicU32, Ordering, fence};

/// Says whether a thread is about to sleep.
///
/// The sleeper announces itself, looks for work once more, and only then sleeps. The waker
/// publishes work, then asks [`must_wake`](Self::must_wake). Each side writes before it reads, with
/// a full barrier between, so at least one of them sees the other's write. Either the sleeper finds
/// the work or the waker finds the sleeper.
///
/// The word is the flag's own, or lies in memory that processes share. Another process may write
/// anything to it: then threads are woken too often, or that process's own sleeper too late.
pub(crate) struct SleepFlag<W = AtomicU32>(W);

impl SleepFlag {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl<W: Borrow<AtomicU32>> SleepFlag<W> {
    /// A flag whose word lies elsewhere. No thread sleeps there yet.
    #[allow(dead_code, reason = "the models have their own words")]
    pub(crate) fn over(word: W) -> Self {
        Self(word)
    }

    /// The sleeper will sleep unless it finds work now.
    pub(crate) fn announce(&self) {
        self.0.borrow().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the sleeper has announced itself, and nothing has woken it since.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn is_announced(&self) -> bool {
        self.0.borrow().load(Ordering::Relaxed) != 0
    }

    /// The sleeper is awake again.
    pub(crate) fn awake(&self) {
        self.0.borrow().store(0, Ordering::Relaxed);
    }

    /// Called after work was published: true if the sleeper has to be woken. Of several wakers, one
    /// gets true.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let word = self.0.borrow();
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
    }
}

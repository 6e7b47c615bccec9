//! The flag between a sleeper and its wakers: no wake-up is lost, and none costs a system call
//! while no thread sleeps.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).
//!
//! `tests/models` compiles this file with loom's atomics and tries every interleaving. Without
//! either of the two barriers a model fails.

use super::sync::{AtomicBool, Ordering, fence};

/// Says whether a thread is about to sleep.
///
/// The sleeper announces itself, looks for work once more, and only then sleeps. The waker
/// publishes work, then asks [`must_wake`](Self::must_wake). Each side writes before it reads, with
/// a full barrier between, so at least one of them sees the other's write. Either the sleeper finds
/// the work or the waker finds the sleeper.
pub(crate) struct SleepFlag(AtomicBool);

impl SleepFlag {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The sleeper will sleep unless it finds work now.
    pub(crate) fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the sleeper has announced itself, and nothing has woken it since.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn is_announced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The sleeper is awake again.
    pub(crate) fn awake(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Called after work was published: true if the sleeper has to be woken. Of several wakers, one
    /// gets true.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

//! The end of an RNIC: its reason, and the signals of waiting threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use xwarp_driver::Signal;

use super::waiters::Waiters;

/// Whether an engine has ended or failed. Registered signals are raised then.
#[derive(Default)]
pub struct Ending {
    /// Whether an engine has ended, so that all engines end.
    over: AtomicBool,
    /// Whether an engine is failing, or has failed.
    failing: AtomicBool,
    /// Whether an engine has panicked.
    panicked: AtomicBool,
    /// Why the engine has failed.
    failure: OnceLock<String>,
    waiters: Waiters<Weak<Signal>>,
}

impl Ending {
    /// Registers `signal`, which is raised when the engine ends or fails. If that has happened
    /// already, it is raised at once.
    pub fn watch(&self, signal: &Arc<Signal>) {
        let gone = |waiter: &Weak<Signal>| waiter.strong_count() == 0;
        let has_happened = || self.is_over() || self.failure().is_some();
        if (self.waiters).register(Arc::downgrade(signal), gone, has_happened) {
            signal.raise();
        }
    }

    /// Why the engine has failed, if it has.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// True once the engine has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Records that an engine begins to fail. True if it is the first of its RNIC, which reports
    /// the failure.
    pub(crate) fn begin_failure(&self) -> bool {
        !self.failing.swap(true, Ordering::Relaxed)
    }

    /// An engine has panicked.
    pub(crate) fn note_panic(&self) {
        self.panicked.store(true, Ordering::Relaxed);
    }

    /// Whether an engine has panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Records the failure of an engine. The first reason is kept.
    pub(crate) fn fail(&self, reason: &str) {
        if self.failure.set(reason.to_owned()).is_ok() {
            self.raise_all();
        }
    }

    /// Records the end of the engine.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.raise_all();
    }

    fn raise_all(&self) {
        self.waiters.notify_each(|waiter| {
            if let Some(signal) = waiter.upgrade() {
                signal.raise();
            }
        });
    }
}

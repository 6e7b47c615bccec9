//! Waiters for a change that may happen at any time: each is notified, whether it registers before
//! or after the change.
//!
//! The includer provides `sync` (locks of the standard library, or of the model checker).

use super::sync::{Mutex, MutexGuard, PoisonError};

/// Waiters that are notified of a change of state. The state itself is elsewhere.
///
/// A waiter registers, then checks the state. The thread that changes the state does that first,
/// and then notifies the waiters. Both take the lock. So either the waiter is in the list by then,
/// or it finds the new state.
pub(super) struct Waiters<W>(Mutex<Vec<W>>);

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<W> Waiters<W> {
    /// Registers a waiter, and removes waiters that are `gone`. Then calls `look`, which finds
    /// earlier changes.
    pub(super) fn register<R>(
        &self,
        waiter: W,
        gone: impl Fn(&W) -> bool,
        look: impl FnOnce() -> R,
    ) -> R {
        let mut waiters = self.lock();
        if waiters.len() == waiters.capacity() {
            waiters.retain(|waiter| !gone(waiter));
        }
        waiters.push(waiter);
        drop(waiters);
        look()
    }

    /// Calls `notify` for each waiter, after the state has changed.
    pub(super) fn notify_each(&self, notify: impl FnMut(&W)) {
        self.lock().iter().for_each(notify);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Hinted: a value behind a lock, with a hint whether it may contain something. Checking an empty
//! value takes no lock.
//!
//! The includer provides `sync` (of the standard library, or of the model checker).

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// A value behind a lock, with a hint whether it may contain something.
///
/// The hint is changed under the lock, so it is correct whenever no thread holds the lock. After a
/// change, ring the doorbell of the thread that checks: a sleeper announces itself before it checks
/// the hint.
pub(crate) struct Hinted<T> {
    has_any: AtomicBool,
    value: Mutex<T>,
}

impl<T> Hinted<T> {
    /// A value without anything in it.
    pub(crate) fn new(value: T) -> Self {
        Self {
            has_any: AtomicBool::new(false),
            value: Mutex::new(value),
        }
    }

    /// Whether there may be something.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Changes the value; `has_any` says whether there is something in it then.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut T) -> R,
        has_any: impl FnOnce(&T) -> bool,
    ) -> R {
        let mut value = self.lock();
        let result = change(&mut value);
        self.has_any.store(has_any(&value), Ordering::Release);
        result
    }

    /// Lends the value, for what does not change whether there is something in it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

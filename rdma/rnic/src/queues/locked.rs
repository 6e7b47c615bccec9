//! Values that several engines, or an engine and verbs, change now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lends a value that is behind a lock.
pub type Guard<'a, T> = MutexGuard<'a, T>;

/// A value behind a lock. After a panic of the thread that held the lock, the value is as it was
/// left.
#[derive(Default)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    /// Puts a value behind a lock.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Lends the value.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

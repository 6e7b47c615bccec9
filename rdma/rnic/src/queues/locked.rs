//! Values behind a lock, for rare changes by several engines, or by an engine and verbs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Guard of a locked value.
pub type Guard<'a, T> = MutexGuard<'a, T>;

/// A value behind a lock. If a thread panics while it holds the lock, the value stays as the thread
/// left it.
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

//! Values that the engines of an RNIC have in common: read on the data path, changed by verbs and
//! by work requests that change memory.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

/// An engine's hold of a value that several engines may share.
///
/// Where there is one engine, the value is its own, without a lock. Else a read takes the part of
/// the lock that is its thread's. So engines that read write to no cache line of each other's. A
/// change takes all parts: when it returns, it is in force on all engines.
///
/// An engine has one hold, and a guard borrows it. So no engine waits for a guard of its own.
pub struct InCommon<T>(Hold<T>);

enum Hold<T> {
    Own(T),
    Shared(Arc<ShardedLock<T>>),
}

/// Lends the value for reading.
pub enum Read<'a, T> {
    /// Of one engine.
    Own(&'a T),
    /// Of several.
    Shared(ShardedLockReadGuard<'a, T>),
}

/// Lends the value for a change.
pub enum Change<'a, T> {
    /// Of one engine.
    Own(&'a mut T),
    /// Of several.
    Shared(ShardedLockWriteGuard<'a, T>),
}

impl<T> InCommon<T> {
    /// The holds of `engines` engines. A value of several is prepared by `share`.
    pub fn of_engines(mut value: T, engines: usize, share: impl FnOnce(&mut T)) -> Vec<Self> {
        if engines == 1 {
            return vec![Self(Hold::Own(value))];
        }
        share(&mut value);
        let value = Arc::new(ShardedLock::new(value));
        let hold = |_| Self(Hold::Shared(Arc::clone(&value)));
        (0..engines).map(hold).collect()
    }

    /// Lends it for reading.
    #[inline]
    pub fn read(&mut self) -> Read<'_, T> {
        match &self.0 {
            Hold::Own(value) => Read::Own(value),
            Hold::Shared(value) => {
                Read::Shared(value.read().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Lends it for a change.
    pub fn change(&mut self) -> Change<'_, T> {
        match &mut self.0 {
            Hold::Own(value) => Change::Own(value),
            Hold::Shared(value) => {
                Change::Shared(value.write().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

impl<T> Deref for Read<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Own(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T> Deref for Change<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Own(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T> DerefMut for Change<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Own(value) => value,
            Self::Shared(value) => value,
        }
    }
}

//! Values that the engines of an RNIC share: read on the data path, changed by verbs and by work
//! requests that change memory.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

/// An engine's access to a value that several engines may share.
///
/// With one engine, the value is its own, without a lock. Otherwise a read locks only the shard of
/// its thread, so engines that read write to no cache line of each other's. A change locks all
/// shards: when it returns, it is in force on all engines.
///
/// An engine has one access, and a guard borrows it. So no engine waits for a guard of its own.
pub struct InCommon<T>(Hold<T>);

enum Hold<T> {
    Own(T),
    Shared(Arc<ShardedLock<T>>),
}

/// Guard for reading.
pub enum Read<'a, T> {
    /// Of a single engine.
    Own(&'a T),
    /// Of one of several engines.
    Shared(ShardedLockReadGuard<'a, T>),
}

/// Guard for a change.
pub enum Change<'a, T> {
    /// Of a single engine.
    Own(&'a mut T),
    /// Of one of several engines.
    Shared(ShardedLockWriteGuard<'a, T>),
}

impl<T> InCommon<T> {
    /// The accesses of `engines` engines. `share` prepares a value for several engines.
    pub fn of_engines(mut value: T, engines: usize, share: impl FnOnce(&mut T)) -> Vec<Self> {
        if engines == 1 {
            return vec![Self(Hold::Own(value))];
        }
        share(&mut value);
        let value = Arc::new(ShardedLock::new(value));
        let hold = |_| Self(Hold::Shared(Arc::clone(&value)));
        (0..engines).map(hold).collect()
    }

    /// Locks the value for reading.
    #[inline]
    pub fn read(&mut self) -> Read<'_, T> {
        match &self.0 {
            Hold::Own(value) => Read::Own(value),
            Hold::Shared(value) => {
                Read::Shared(value.read().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Locks the value for a change.
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

//! Lock of a queue for the data path. Taking and leaving it costs one atomic instruction each
//! without contention.
//!
//! A mutex of the standard library also looks whether a thread has panicked, twice. That costs 12
//! instructions. Here a panic only releases the lock: the call that panicked returns an error.

use std::cell::UnsafeCell;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};

use crate::lock_state::LockState;

/// A lock of a value, for the data path.
pub(crate) struct Lock<T> {
    state: LockState,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has the lock touches the value.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until this is dropped.
pub(crate) struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            state: LockState::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until no other thread has it.
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        if !self.state.try_take() {
            self.state.await_turn();
        }
        Held(self)
    }

    /// Takes it if no other thread has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.state.try_take().then(|| Held(self))
    }
}

/// A lock without a value, which gives threads their turns.
impl Lock<()> {
    /// Waits until a thread calls [`leave`](Self::leave). Returns false once the lock has ended.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        self.state.try_take() || self.state.await_turn_unless_ended()
    }

    /// Wakes the thread that takes the next turn.
    #[inline]
    pub(crate) fn leave(&self) {
        drop(Held(self));
    }

    /// Ends the lock: no thread can take it again, even if its present owner never releases it.
    pub(crate) fn end(&self) {
        self.state.end();
    }
}

/// A lock whose value can be dropped while references to the lock remain. After that, `lock`
/// returns `None`. An uncontended lock pays nothing for that, as a revoked lock is never free.
pub(crate) struct RevocableLock<T>(Lock<ManuallyDrop<T>>);

impl<T> RevocableLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Lock::new(ManuallyDrop::new(value)))
    }

    /// Waits until no other thread has it. Returns `None` once the value is dropped.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Held<'_, ManuallyDrop<T>>> {
        let Self(lock) = self;
        let taken = lock.state.try_take() || lock.state.await_turn_unless_ended();
        taken.then(|| Held(lock))
    }

    /// Drops the value, once no thread has it.
    pub(crate) fn revoke(&self) {
        let Some(mut held) = self.lock() else {
            return;
        };
        // SAFETY: the lock is never taken again, so no thread uses the value after this.
        let value = unsafe { ManuallyDrop::take(&mut held) };
        mem::forget(held);
        self.0.state.end();
        drop(value);
    }
}

impl<T> Drop for RevocableLock<T> {
    fn drop(&mut self) {
        self.revoke();
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock, and lends the value by this guard only.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.state.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_it() {
        const ROUNDS: u64 = 100_000;
        let lock = Lock::new([0_u64; 2]);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut counts = lock.lock();
                        let [first, second] = *counts;
                        assert_eq!(first, second);
                        *counts = [first + 1, second + 1];
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), [4 * ROUNDS; 2]);
        assert!(lock.state.is_free());
    }

    #[test]
    fn whoever_sleeps_is_woken() {
        let lock = Lock::new(0);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        thread::scope(|scope| {
            scope.spawn(|| *lock.lock() += 1);
            while !lock.state.is_awaited() {
                thread::yield_now();
            }
            drop(held);
        });
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn value_that_ends_is_dropped_once_and_nobody_gets_it() {
        let value = Arc::new(());
        let lock = RevocableLock::new(Arc::clone(&value));
        assert!(lock.lock().is_some_and(|held| Arc::ptr_eq(&held, &value)));
        assert_eq!(Arc::strong_count(&value), 2);
        lock.revoke();
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(lock.lock().is_none());
        drop(lock);
        assert_eq!(Arc::strong_count(&value), 1);
        drop(RevocableLock::new(Arc::clone(&value)));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// The thread that revokes the lock may take it just after its release, before the woken thread
    /// does.
    #[test]
    fn all_who_wait_for_a_value_that_ends_are_woken() {
        for _ in 0..1000 {
            let lock = RevocableLock::new(0);
            let held = lock.lock().expect("it has not ended");
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| drop(lock.lock()));
                }
                while !lock.0.state.is_awaited() {
                    thread::yield_now();
                }
                drop(held);
                lock.revoke();
            });
            assert!(lock.lock().is_none());
        }
    }

    #[test]
    fn panic_leaves_it() {
        let lock = Lock::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("a defect");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 1);
    }
}

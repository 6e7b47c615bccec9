//! Lock of a queue for the data path. Taking and leaving it costs one atomic instruction each while nobody else wants it.
//!
//! A mutex of the standard library also looks whether a thread has panicked, twice. Here a panic just leaves the lock: whoever has panicked
//! has told its caller.

use std::cell::UnsafeCell;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Nobody has it.
const FREE: u32 = 0;
/// Somebody has it, and nobody sleeps.
const HELD: u32 = 1;
/// Somebody has it, and others may sleep.
const AWAITED: u32 = 2;
/// Nobody gets it any more: the value has ended.
const ENDED: u32 = 3;

/// See the module.
pub(crate) struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is touched by whoever has the lock, one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until this is dropped.
pub(crate) struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until nobody else has it.
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Takes it if nobody else has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        let taken = (self.state).compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Held(self))
    }

    #[cold]
    fn wait(&self) -> Held<'_, T> {
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            self.sleep();
        }
        Held(self)
    }

    /// Likewise; `None` once the value has ended.
    #[cold]
    fn wait_unless_ended(&self) -> Option<Held<'_, T>> {
        let awaited = |state| (state != ENDED).then_some(AWAITED);
        loop {
            let seen = (self.state).fetch_update(Ordering::Acquire, Ordering::Acquire, awaited);
            match seen {
                Ok(FREE) => return Some(Held(self)),
                Ok(_) => self.sleep(),
                Err(_ended) => return None,
            }
        }
    }

    /// Sleeps until whoever has it leaves it.
    fn sleep(&self) {
        let no_timeout = ptr::null::<libc::timespec>();
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is an atomic of 32 bits that lives, and there is no timeout. After an error the caller looks again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.state.as_ptr(),
                operation,
                AWAITED,
                no_timeout,
            )
        };
    }

    /// Wakes up to so many who sleep.
    #[cold]
    fn wake(&self, most: i32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is an atomic of 32 bits that lives.
        unsafe { libc::syscall(libc::SYS_futex, self.state.as_ptr(), operation, most) };
    }
}

/// A lock of nothing, which says whose turn it is.
impl Lock<()> {
    /// Takes it until somebody [`leave`](Self::leave)s it.
    #[inline]
    pub(crate) fn enter(&self) {
        std::mem::forget(self.lock());
    }

    /// Lets others have it.
    #[inline]
    pub(crate) fn leave(&self) {
        drop(Held(self));
    }
}

/// A lock whose value ends before the lock does. That it has ended costs whoever finds the lock free nothing: it never is again.
pub(crate) struct Mortal<T>(Lock<ManuallyDrop<T>>);

impl<T> Mortal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Lock::new(ManuallyDrop::new(value)))
    }

    /// Waits until nobody else has it; `None` if the value has ended.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Held<'_, ManuallyDrop<T>>> {
        self.0.try_lock().or_else(|| self.0.wait_unless_ended())
    }

    /// Ends the value, once nobody has it.
    pub(crate) fn end(&self) {
        let Some(mut held) = self.lock() else {
            return;
        };
        // SAFETY: this is the last time that somebody has the lock, so nobody uses the value again.
        let value = unsafe { ManuallyDrop::take(&mut held) };
        mem::forget(held);
        self.0.state.store(ENDED, Ordering::Release);
        // Others may sleep even if nobody came since: whoever was woken last has not taken it yet, to wake the next when it is left.
        self.0.wake(i32::MAX);
        drop(value);
    }
}

impl<T> Drop for Mortal<T> {
    fn drop(&mut self) {
        self.end();
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
        if self.0.state.swap(FREE, Ordering::Release) == AWAITED {
            self.0.wake(1);
        }
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
        assert_eq!(lock.state.load(Ordering::Relaxed), FREE);
    }

    #[test]
    fn whoever_sleeps_is_woken() {
        let lock = Lock::new(0);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        thread::scope(|scope| {
            scope.spawn(|| *lock.lock() += 1);
            while lock.state.load(Ordering::Relaxed) != AWAITED {
                thread::yield_now();
            }
            drop(held);
        });
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn value_that_ends_is_dropped_once_and_nobody_gets_it() {
        let value = Arc::new(());
        let lock = Mortal::new(Arc::clone(&value));
        assert!(lock.lock().is_some_and(|held| Arc::ptr_eq(&held, &value)));
        assert_eq!(Arc::strong_count(&value), 2);
        lock.end();
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(lock.lock().is_none());
        drop(lock);
        assert_eq!(Arc::strong_count(&value), 1);
        drop(Mortal::new(Arc::clone(&value)));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// Whoever ends it may have taken it just after it was left, before the one who was woken could.
    #[test]
    fn all_who_wait_for_a_value_that_ends_are_woken() {
        for _ in 0..1000 {
            let lock = Mortal::new(0);
            let held = lock.lock().expect("it has not ended");
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| drop(lock.lock()));
                }
                while lock.0.state.load(Ordering::Relaxed) != AWAITED {
                    thread::yield_now();
                }
                drop(held);
                lock.end();
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

//! Entry of each function of the C interface: no panic leaves it, and failures set errno as its
//! manual page describes.
//!
//! A function runs with cancellation of its thread disabled, as it may make system calls. If the
//! caller's stack is small, it runs on a thread of the library. Functions of the data path do
//! neither ([`data_path`]).

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nix::errno::Errno;

use crate::fork::{self, Inside};
use crate::stack;

/// A verb's result; failures are error numbers.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// The return value of a function that has set errno.
pub(crate) trait Failed {
    /// The value that reports a failure.
    const FAILED: Self;
}

impl<T> Failed for *mut T {
    const FAILED: Self = ptr::null_mut();
}

impl Failed for *const c_char {
    const FAILED: Self = ptr::null();
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

/// Functions of the data path, which execute no needless instruction. Their system calls are made
/// directly (`calls.c`), and so are no cancellation points.
pub(crate) mod data_path {
    use super::{Result, c_int, guarded};

    /// A function that returns 0 or an error number.
    #[inline]
    pub(crate) fn returns(verb: impl FnOnce() -> Result<()>) -> c_int {
        match guarded(verb) {
            Ok(()) => 0,
            Err(errno) => errno as c_int,
        }
    }

    /// A function that cannot report a failure, and then returns `otherwise`.
    #[inline]
    pub(crate) fn always<T: Copy>(otherwise: T, verb: impl FnOnce() -> Result<T>) -> T {
        // A result that leaves two calls is packed and unpacked.
        guarded(|| Ok(verb().unwrap_or(otherwise))).unwrap_or(otherwise)
    }
}

/// A function that returns 0 or an error number.
pub(crate) fn returns(verb: impl FnOnce() -> Result<()>) -> c_int {
    match uncancelled(|| with_room(verb)) {
        Ok(()) => 0,
        Err(errno) => errno as c_int,
    }
}

/// A function that sets errno, and returns null or -1 then.
pub(crate) fn sets<T: Failed>(verb: impl FnOnce() -> Result<T>) -> T {
    let done = uncancelled(|| with_room(verb));
    done.unwrap_or_else(|errno| {
        errno.set();
        T::FAILED
    })
}

/// A part of a function that sets errno and returns -1 on failure, else 0. It runs on the caller's
/// thread, whose identity it may read, and needs little stack.
pub(crate) fn sets_status_here(verb: impl FnOnce() -> Result<()>) -> c_int {
    match uncancelled(|| guarded(verb)) {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// A function that sets errno and returns -1 on failure, else 0.
pub(crate) fn sets_status(verb: impl FnOnce() -> Result<()>) -> c_int {
    sets(|| verb().map(|()| 0))
}

/// A function that cannot report a failure, and then returns `otherwise`.
pub(crate) fn always<T: Copy>(otherwise: T, verb: impl FnOnce() -> Result<T>) -> T {
    uncancelled(|| with_room(verb)).unwrap_or(otherwise)
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

// A thread may be cancelled as soon as the state is restored, if the program has set the
// asynchronous type.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Runs a verb while the thread cannot be cancelled: unwinding would skip the values that the verb
/// has to release. A child that is forked meanwhile finds the call counted.
fn uncancelled<T>(verb: impl FnOnce() -> T) -> T {
    let mut before = CANCEL_DISABLE;
    // SAFETY: the place for the former state lives.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
    let inside = Inside::enter();
    let done = verb();
    drop(inside);
    // SAFETY: the place lives, and the state is one that the thread had.
    unsafe { pthread_setcancelstate(before, &raw mut before) };
    done
}

/// Runs a verb where the stack suffices. If no thread can be started for that, it fails with
/// EAGAIN.
fn with_room<T>(verb: impl FnOnce() -> Result<T>) -> Result<T> {
    if fork::library_is_dead() || stack::has_room() {
        return guarded(verb);
    }
    stack::aside(|| guarded(verb)).unwrap_or(Err(Errno::EAGAIN))
}

/// Called after a panic.
static ON_PANIC: OnceLock<fn()> = OnceLock::new();

/// Sets a callback for panics of verbs. Only the first call of this function has an effect.
pub(crate) fn on_panic(callback: fn()) {
    ON_PANIC.get_or_init(|| callback);
}

/// Reports that a verb has panicked: to threads that wait for events, and to the caller by an error
/// number without another meaning.
#[cold]
fn panicked<T>(callback: Option<&fn()>) -> Result<T> {
    if let Some(callback) = callback {
        // A panic of the callback is reported to the caller, like the first one.
        let _ = catch_unwind(callback);
    }
    Err(Errno::ENOTRECOVERABLE)
}

/// Runs a verb, and catches a panic, which is a defect of the library.
#[inline]
fn guarded<T>(verb: impl FnOnce() -> Result<T>) -> Result<T> {
    if fork::library_is_dead() {
        return Err(Errno::ENODEV);
    }
    catch_unwind(AssertUnwindSafe(verb)).unwrap_or_else(|_panic| panicked(ON_PANIC.get()))
}

/// Locks a mutex, also after a panic of another thread, whose call has returned an error.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn panic_ends_in_an_error_number() {
        assert_eq!(
            returns(|| panic!("a defect")),
            Errno::ENOTRECOVERABLE as c_int
        );
        let failed: c_int = sets(|| panic!("a defect"));
        assert_eq!((failed, Errno::last()), (-1, Errno::ENOTRECOVERABLE));
    }

    #[test]
    fn panic_is_told_and_a_second_one_stays_inside() {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let tell: fn() = || {
            TOLD.store(true, Ordering::Relaxed);
            panic!("a second defect");
        };
        assert_eq!(panicked::<()>(Some(&tell)), Err(Errno::ENOTRECOVERABLE));
        assert!(TOLD.load(Ordering::Relaxed));
    }

    #[test]
    fn failure_is_returned_or_set() {
        assert_eq!(returns(|| Err(Errno::EBUSY)), Errno::EBUSY as c_int);
        assert_eq!(sets_status(|| Err(Errno::EBUSY)), -1);
        assert_eq!(Errno::last(), Errno::EBUSY);
        assert!(sets::<*mut u8>(|| Err(Errno::EBUSY)).is_null());
    }
}

//! Futex: a word that threads sleep on while it has a value.

use std::ptr;
use std::sync::atomic::AtomicU32;

/// A word that threads sleep on.
pub(crate) struct Word(AtomicU32);

impl Word {
    pub(crate) const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// The number itself.
    #[inline]
    pub(crate) fn number(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps until another thread wakes this one, unless the word differs from `expected`. It may
    /// return earlier.
    pub(crate) fn sleep_while(&self, expected: u32) {
        let no_timeout = ptr::null::<libc::timespec>();
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is an atomic of 32 bits that lives, and there is no timeout. After an
        // error the caller looks again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                operation,
                expected,
                no_timeout,
            )
        };
    }

    /// Wakes `most` sleeping threads at most.
    #[cold]
    pub(crate) fn wake(&self, most: i32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is an atomic of 32 bits that lives.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, most) };
    }
}

//! Children of a process that has an RNIC open. The engine's thread stays with the parent, so the
//! whole library is dead in the child, and each call returns ENODEV. A process that opens its first
//! device after `fork` is not affected. But the library is also dead if another thread of the
//! parent was in a call at the `fork`. That thread may have held locks, and nothing in the child
//! releases them.
//!
//! A child that does not execute a program would hold the parent's sockets, ports and BPF link for
//! as long as it lives, so it closes them at once. The rings are not mapped in it. A child that
//! runs no handlers of `fork` keeps them: one of `clone(2)`, `_Fork(3)` or `vfork(2)`, the last
//! until it executes a program.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

static DEAD: AtomicBool = AtomicBool::new(false);

/// The process has or had an RNIC, parts of which a child would lack.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Threads in a call of the control path. Threads of the data path have an RNIC.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// The function that closes the library's descriptors in a child.
static CLOSE: OnceLock<extern "C" fn()> = OnceLock::new();

/// Whether the library is dead in this process.
#[inline]
pub(crate) fn library_is_dead() -> bool {
    DEAD.load(Ordering::Relaxed)
}

/// Makes each call return ENODEV from now on: a lock is held that no thread will release.
pub(crate) fn end_library() {
    DEAD.store(true, Ordering::Relaxed);
}

/// A thread is in a call for as long as this lives.
pub(crate) struct Inside;

impl Inside {
    /// Counts the thread, before the call takes any lock.
    pub(crate) fn enter() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sets what a child calls first. `descriptors.c` does that when the library is loaded. `close` is
/// async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn xwarp_begin_in_child_with(close: extern "C" fn()) {
    CLOSE.get_or_init(|| close);
    look_in_children();
}

/// From now on the library is dead in children, which would lack parts of the parent's state.
pub(crate) fn children_are_dead() {
    OPENED.store(true, Ordering::SeqCst);
    look_in_children();
}

/// Makes each child check whether the library is dead in it.
fn look_in_children() {
    static ONCE: Once = Once::new();
    extern "C" fn in_the_child() {
        if !OPENED.load(Ordering::SeqCst) && INSIDE.load(Ordering::SeqCst) == 0 {
            return;
        }
        end_library();
        if let Some(close) = CLOSE.get() {
            close();
        }
    }
    ONCE.call_once(|| {
        // SAFETY: the handler loads and stores atomics, and calls what is async-signal-safe.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        if failed != 0 {
            log::warn!("a child of this process could use its RNIC: pthread_atfork has failed");
        }
    });
}

//! Children of a process that has an RNIC open. Its engine's thread stays with the parent, so all
//! of the library is dead in the child, and each call ends in ENODEV. A process that opens its
//! first device after `fork` is not concerned. But the library is dead, too, if another thread of
//! the parent was in a call at the `fork`. That thread may have had locks, and nothing in the child
//! releases them.
//!
//! A child that does not execute a program would hold the parent's sockets, ports and BPF link for
//! as long as it lives. It closes them at once. The rings are not mapped in it. A child without
//! handlers of `fork` keeps them: one of `clone(2)`, `_Fork(3)` or `vfork(2)`, the last until it
//! executes a program.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

static DEAD: AtomicBool = AtomicBool::new(false);

/// The process has or had an RNIC, of which something would be missing in a child.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Threads in a call of the control path. Those of the data path have an RNIC.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// What closes the library's descriptors in a child.
static CLOSE: OnceLock<extern "C" fn()> = OnceLock::new();

/// Whether the library is dead here.
#[inline]
pub(crate) fn library_is_dead() -> bool {
    DEAD.load(Ordering::Relaxed)
}

/// Has each call end in ENODEV from now on: a lock is held that no thread will release.
pub(crate) fn end_library() {
    DEAD.store(true, Ordering::Relaxed);
}

/// A thread is in a call for as long as this lives.
pub(crate) struct Inside;

impl Inside {
    /// Before the call takes any lock.
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

/// From now on children are dead: something of a parent's would be missing in them.
pub(crate) fn children_are_dead() {
    OPENED.store(true, Ordering::SeqCst);
    look_in_children();
}

/// Has each child find out whether the library is dead in it.
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

//! Children of a process that has an RNIC open. Its engine's thread stays with the parent, so all
//! of the library is dead in the child, and each call ends in ENODEV. A process that opens its
//! first device after `fork` is not concerned.
//!
//! A child that does not execute a program would hold the parent's sockets, ports and BPF link for
//! as long as it lives. It closes them at once. The rings are not mapped in it. A child without
//! handlers of `fork` keeps them: one of `clone(2)`, `_Fork(3)` or `vfork(2)`, the last until it
//! executes a program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

static CHILD: AtomicBool = AtomicBool::new(false);

/// What closes the library's descriptors in a child.
static CLOSE: OnceLock<extern "C" fn()> = OnceLock::new();

/// Whether the library is dead here.
#[inline]
pub(crate) fn in_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Sets what a child calls first. `descriptors.c` does that when the library is loaded. `close` is
/// async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn xwarp_begin_in_child_with(close: extern "C" fn()) {
    CLOSE.get_or_init(|| close);
}

/// From now on children are dead: something of a parent's would be missing in them.
pub(crate) fn children_are_dead() {
    static ONCE: Once = Once::new();
    extern "C" fn in_the_child() {
        CHILD.store(true, Ordering::Relaxed);
        if let Some(close) = CLOSE.get() {
            close();
        }
    }
    ONCE.call_once(|| {
        // SAFETY: the handler stores to an atomic, and calls what is async-signal-safe.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        if failed != 0 {
            log::warn!("a child of this process could use its RNIC: pthread_atfork has failed");
        }
    });
}

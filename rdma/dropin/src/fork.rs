//! Children of a process that has an RNIC open: its engine's thread stays with the parent. So all of the library is dead in the child, and each call
//! ends in ENODEV. A process that opens its first device after `fork` is not concerned.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static CHILD: AtomicBool = AtomicBool::new(false);

/// Whether the library is dead here.
#[inline]
pub(crate) fn in_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// From now on children are dead: something of a parent's would be missing in them.
pub(crate) fn children_are_dead() {
    static ONCE: Once = Once::new();
    extern "C" fn in_the_child() {
        CHILD.store(true, Ordering::Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the handler stores to an atomic and does nothing else.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        if failed != 0 {
            log::warn!("a child of this process could use its RNIC: pthread_atfork has failed");
        }
    });
}

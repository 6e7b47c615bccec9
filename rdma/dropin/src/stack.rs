//! Stack of the calling thread. A program's thread may have only 16 KiB (`PTHREAD_STACK_MIN`), and
//! so may a coroutine. A verb that may need more then runs on a thread of the library's own, while
//! the caller waits.

use std::cell::Cell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::ptr;
use std::thread::{Builder, scope};

use nix::sys::signal::{SigSet, Signal};

/// Bytes that a verb may need. Connecting was measured to need 15 KiB, and several times as many
/// without optimisation.
const NEEDED: usize = 128 << 10;
/// Bytes of stack of a thread that runs a verb for a caller.
const LENT: usize = 1 << 20;

/// The addresses of a thread's stack.
#[derive(Clone, Copy)]
struct Stack {
    low: usize,
    high: usize,
}

thread_local! {
    static OWN: Cell<Option<Stack>> = const { Cell::new(None) };
}

/// Whether this thread has stack for any verb. False for a coroutine, whose stack the C library
/// does not know.
pub(crate) fn has_room() -> bool {
    let place = 0_u8;
    let here = black_box(&raw const place).addr();
    let own = OWN.get().unwrap_or_else(|| {
        let found = find();
        OWN.set(Some(found));
        found
    });
    here < own.high && here.saturating_sub(own.low) >= NEEDED
}

/// The stack of this thread, as the C library reports it. If it cannot, the stack is taken to
/// suffice.
fn find() -> Stack {
    let mut attributes = MaybeUninit::uninit();
    let (mut low, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the call has no memory of ours.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the place has room for attributes, which the call fills in unless it fails.
    let failed = unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) };
    if failed != 0 {
        return Stack {
            low: 0,
            high: usize::MAX,
        };
    }
    // SAFETY: the attributes were filled in, and both places live.
    unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut bytes) };
    // SAFETY: the attributes were filled in, and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    Stack {
        low: low.addr(),
        high: low.addr().saturating_add(bytes),
    }
}

/// A verb of another thread, or its result.
struct Lent<T>(T);

// SAFETY: the thread that lends it waits until the other one has ended, so only one thread at a
// time has it. A verb has no part that belongs to the thread which calls it: it has pointers of the
// program, which are good in any thread.
unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    fn take(self) -> T {
        self.0
    }
}

/// Blocks the program's signals in the calling thread, which is the library's own.
pub(crate) fn take_only_faults() {
    let mut signals = SigSet::all();
    signals.remove(Signal::SIGSEGV);
    signals.remove(Signal::SIGBUS);
    if let Err(errno) = signals.thread_set_mask() {
        log::debug!("a thread of the library takes the program's signals: {errno}");
    }
}

/// Runs a verb on a new thread; `None` if none can be started. No signal of the program interrupts
/// that thread. It has the caller's network namespace and privileges.
pub(crate) fn aside<T>(verb: impl FnOnce() -> T) -> Option<T> {
    let new = Builder::new()
        .name("xwarp-call".to_owned())
        .stack_size(LENT);
    let verb = Lent(verb);
    scope(|scope| {
        let thread = new.spawn_scoped(scope, move || {
            take_only_faults();
            Lent(verb.take()())
        });
        let done = thread.ok()?.join();
        Some(done.unwrap_or_else(|panic| resume_unwind(panic)).take())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_stack_has_no_room_and_a_verb_aside_has() {
        assert!(has_room() && has_room());
        let small = Builder::new().stack_size(64 << 10);
        let seen = small.spawn(|| (has_room(), aside(has_room)));
        let seen = seen.expect("a thread").join().expect("no panic");
        assert_eq!(seen, (false, Some(true)));
    }
}

//! Threads of the library: work that a caller's thread is not fit for, and ends of threads, which
//! are waited for within a limit.

use std::io;
use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use crate::memory::take_only_faults;

/// Bytes of stack of a thread that works for a caller. The caller's may be of `PTHREAD_STACK_MIN`,
/// 16 KiB; opening an RNIC was measured to need 61 KiB.
const STACK: usize = 1 << 20;
/// How long a thread that is to end may sleep. It has microseconds of work left.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may work: it may be at a call of the kernel that never returns.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks whether it has.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// Runs `work` on a thread of its own, while the caller waits. That thread has a stack of a usual
/// size, and no signal of the application interrupts its system calls. Like any new thread it has
/// the caller's network namespace and privileges.
///
/// # Errors
///
/// [`io::Error`]: no thread can be started.
pub fn aside<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let new = Builder::new().name(name.to_owned()).stack_size(STACK);
    scope(|scope| {
        let thread = new.spawn_scoped(scope, || {
            if let Err(error) = take_only_faults() {
                log::debug!("a thread of the library takes the program's signals: {error}");
            }
            work()
        })?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Waits until a thread that was asked to end has ended, for 2 s at most, and reports its panic. If
/// the program has closed the library's descriptors, a thread that sleeps on one is never woken.
pub fn join(thread: JoinHandle<()>, whose: &str) {
    join_sleeper(thread, whose, || true);
}

/// Like [`join`], but only time for which `sleeps` returns `true` counts as sleep. A thread that
/// works is waited for up to 30 s: the kernel's lock of interfaces takes seconds while other
/// processes change interfaces. Opens no descriptor, whose number might be one that the program has
/// closed.
pub(crate) fn join_sleeper(thread: JoinHandle<()>, whose: &str, sleeps: impl Fn() -> bool) {
    let (began, [mut pause, longest]) = (Instant::now(), PAUSES);
    let mut asleep = began;
    while !thread.is_finished() {
        if !sleeps() && began.elapsed() < WORK_TIMEOUT {
            asleep = Instant::now();
        } else if asleep.elapsed() > END_TIMEOUT {
            log::error!("{whose} does not end; the program has closed or replaced its descriptors");
            return;
        }
        sleep(pause);
        pause = (2 * pause).min(longest);
    }
    if thread.join().is_err() {
        log::error!("{whose} has panicked");
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use nix::sys::signal::SigSet;
    use std::sync::mpsc::channel;

    #[test]
    fn work_aside_has_a_stack_and_no_signals() {
        let small = Builder::new().stack_size(64 << 10);
        let caller = small.spawn(|| {
            aside("test", || {
                #[expect(clippy::large_stack_arrays, reason = "that is what is tested")]
                let large = [7_u8; 256 << 10];
                let mask = SigSet::thread_get_mask().unwrap();
                let blocked = mask.contains(nix::sys::signal::Signal::SIGALRM);
                (std::hint::black_box(large).len(), blocked)
            })
        });
        let done = caller.unwrap().join().unwrap().unwrap();
        assert_eq!(done, (256 << 10, true));
    }

    #[test]
    fn thread_that_does_not_end_is_not_waited_for() {
        let (end, asked) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ended = asked.recv();
        });
        let began = Instant::now();
        join(thread, "a thread");
        assert!(began.elapsed() >= END_TIMEOUT);
        drop(end);
    }

    #[test]
    fn thread_that_works_is_waited_for() {
        const WORK: Duration = Duration::from_millis(2500);
        let working = std::thread::spawn(|| sleep(WORK));
        let began = Instant::now();
        join_sleeper(working, "a thread", || false);
        assert!(began.elapsed() >= WORK);
    }
}

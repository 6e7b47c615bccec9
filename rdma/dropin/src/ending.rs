//! Ends of threads and of the process, with a limit on the time that they are waited for.
//!
//! A program may call `exit` in a signal handler, as of Ctrl-C. The interrupted call of the same
//! thread may hold a lock that closing an RNIC needs, such as the engine's, and never releases it.
//! So another thread closes the RNICs. Once it has slept for the limit, the exit proceeds without
//! it, and the kernel of this host answers the peers, as for a killed program. Destructors of the
//! program that call the library later get ENODEV.

use std::fs;
use std::sync::mpsc;
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, gettid};

use crate::stack::take_only_faults;

/// How long a thread may take to end. It has microseconds of work left.
const LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);

/// Waits until a thread has ended. Returns false once the limit is over.
pub(crate) fn join(thread: JoinHandle<()>, name: &str) -> bool {
    let began = Instant::now();
    while !thread.is_finished() {
        if began.elapsed() > LIMIT {
            return false;
        }
        thread::sleep(PAUSE);
    }
    if thread.join().is_err() {
        log::error!("{name} has panicked");
    }
    true
}

/// Makes another thread close all RNICs. Returns false once that thread has slept for the limit, as
/// it does at a lock. If no thread can be started, the caller closes the RNICs.
pub(crate) fn close_all_by(close: fn()) -> bool {
    let (sender, receiver) = mpsc::channel();
    let new = Builder::new().name("xwarp-exit".to_owned());
    let thread = new.spawn(move || {
        // The receiver lives until the thread has ended, or is no longer needed.
        let _ = sender.send(gettid());
        take_only_faults();
        close();
    });
    let Ok(thread) = thread else {
        close();
        return true;
    };
    let id = receiver.recv();
    let mut asleep = Instant::now();
    while !thread.is_finished() {
        thread::sleep(PAUSE);
        if id.is_ok_and(is_busy) {
            asleep = Instant::now();
        } else if asleep.elapsed() > LIMIT {
            return false;
        }
    }
    join(thread, "the thread that closes RNICs")
}

/// Whether a thread runs, waits for a processor, or sleeps in the kernel uninterruptibly. The
/// kernel's lock of interfaces can take long while other processes change theirs.
fn is_busy(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let state = stat.ok().and_then(|stat| {
        stat.rsplit_once(") ")
            .map(|(_, rest)| rest.starts_with(['R', 'D']))
    });
    state.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use crate::entry::lock;

    static HELD: Mutex<()> = Mutex::new(());

    #[test]
    fn exit_goes_on_if_its_own_thread_has_what_closing_needs() {
        let held = lock(&HELD);
        assert!(!close_all_by(|| drop(lock(&HELD))));
        drop(held);
        assert!(close_all_by(|| drop(lock(&HELD))));
    }

    #[test]
    fn exit_waits_for_a_close_that_takes_longer_than_the_limit() {
        assert!(close_all_by(|| {
            let began = Instant::now();
            while began.elapsed() < LIMIT + LIMIT / 4 {
                std::hint::spin_loop();
            }
        }));
    }
}

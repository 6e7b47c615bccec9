//! Ends of threads and of the process, which are waited for no longer than a limit.
//!
//! A program may call `exit` in a signal handler, as of Ctrl-C. The interrupted call of the same
//! thread may hold a lock that closing an RNIC needs, such as the engine's, and never releases it.
//! So another thread closes the RNICs, and the exit goes on once that thread has slept for the
//! limit. The kernel of this host answers the peers then, as for a program that was killed.
//! Destructors of the program that call the library later get ENODEV.

use std::fs;
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::stack::take_only_faults;

/// How long a thread that is to end may sleep. It has microseconds of work left.
const LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// The name of the thread that closes RNICs at the exit.
const CLOSER: &str = "xwarp-exit";
/// The name of a thread that watches an interface.
const WATCH: &str = "xwarp-watch";

/// Waits until a thread has ended. Returns false once it has slept for the limit.
pub(crate) fn join(thread: JoinHandle<()>, name: &str) -> bool {
    let known = thread.thread().name().map(str::to_owned);
    let busy = |state: &Thread| known.as_ref().is_some_and(|known| state.has_name(known));
    if !wait(&thread, busy) {
        return false;
    }
    if thread.join().is_err() {
        log::error!("{name} has panicked");
    }
    true
}

/// Waits until a thread has ended, while `counts` is true of a busy thread of this process. Returns
/// false once none has been busy for the limit.
fn wait(thread: &JoinHandle<()>, counts: impl Fn(&Thread) -> bool) -> bool {
    let mut asleep = Instant::now();
    let mut pause = PAUSE;
    while !thread.is_finished() {
        if pause == LONGEST_PAUSE && threads().any(|it| it.is_busy() && counts(&it)) {
            asleep = Instant::now();
        } else if asleep.elapsed() > LIMIT {
            return false;
        }
        thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
    true
}

/// Has another thread close all RNICs. Returns false once that has slept for the limit, as it does
/// at a lock, and no thread that watches an interface, whose end it waits for, was busy. If no
/// thread can be made, the caller closes them.
pub(crate) fn close_all_by(close: fn()) -> bool {
    let new = Builder::new().name(CLOSER.to_owned());
    let thread = new.spawn(move || {
        take_only_faults();
        close();
    });
    let Ok(thread) = thread else {
        close();
        return true;
    };
    wait(&thread, |it| it.has_name(CLOSER) || it.has_name(WATCH))
        && join(thread, "the thread that closes RNICs")
}

/// A thread of this process, as the kernel shows it: its number, its name in parentheses, its state.
struct Thread(String);

impl Thread {
    /// The kernel keeps 15 bytes of a name.
    fn has_name(&self, name: &str) -> bool {
        let shown = self.0.rsplit_once(") ").map_or("", |(front, _)| front);
        (shown.split_once(" (")).is_some_and(|(_, shown)| name.starts_with(shown))
    }

    /// Whether it runs, or waits for a processor or in the kernel. The kernel's lock of interfaces
    /// can take long, beside other processes that change theirs.
    fn is_busy(&self) -> bool {
        (self.0.rsplit_once(") ")).is_some_and(|(_, rest)| rest.starts_with(['R', 'D']))
    }
}

fn threads() -> impl Iterator<Item = Thread> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    threads.flatten().filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.ok().map(Thread)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

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

    #[test]
    fn exit_waits_for_a_watching_thread_that_is_busy() {
        static ENDED: AtomicBool = AtomicBool::new(false);
        let watch = Builder::new().name(WATCH.to_owned()).spawn(|| {
            let began = Instant::now();
            while began.elapsed() < LIMIT + LIMIT / 4 {
                std::hint::spin_loop();
            }
            ENDED.store(true, Ordering::Relaxed);
        });
        assert!(close_all_by(|| {
            while !ENDED.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
            }
        }));
        watch.expect("a thread").join().expect("no panic");
    }
}

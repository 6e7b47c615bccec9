//! Threads of the test's process: their numbers, and whether they sleep.

use std::fs;
use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use nix::unistd::{Pid, gettid};

/// A thread that has slept for this long waits for another one.
const ASLEEP: Duration = Duration::from_millis(5);

/// Starts a thread; its number, and what joins it.
pub fn spawn_numbered<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> (Pid, ScopedJoinHandle<'scope, T>) {
    let (tell, told) = mpsc::channel();
    let thread = scope.spawn(move || {
        tell.send(gettid()).expect("the test waits for it");
        work()
    });
    (told.recv().expect("it has begun"), thread)
}

/// Whether a thread of this process has been asleep in the kernel for a while.
pub fn thread_sleeps(thread: Pid) -> bool {
    let before = sleeps_before(thread);
    thread::sleep(ASLEEP);
    before.is_some() && sleeps_before(thread) == before
}

/// How often it had slept before the sleep that it is in. `None` if it is awake or has ended.
fn sleeps_before(thread: Pid) -> Option<u64> {
    let read = |file| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
    if state_of(&read("stat")?) != 'S' {
        return None;
    }
    let status = read("status")?;
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

/// The letter of a thread's state. The name before it is in brackets and may hold anything.
pub(crate) fn state_of(stat: &str) -> char {
    let behind_name = stat.rsplit(") ").next();
    behind_name
        .and_then(|fields| fields.chars().next())
        .unwrap_or('?')
}

//! Waiting time that the machine causes, not the network or the engine.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How long a thread has waited for a processor while it could have run, by the kernel's account
/// (Documentation/scheduler/sched-stats).
pub(crate) struct Waited(File);

impl Waited {
    /// Of the calling thread; it can be read by others.
    pub(crate) fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").expect("a kernel with schedstats"))
    }

    /// Until it ran last.
    pub(crate) fn in_all(&self) -> Duration {
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).expect("the thread lives");
        let text = str::from_utf8(&text[..len]).expect("ASCII");
        let nanos = text.split(' ').nth(1).and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("time on, time waiting for, and turns on a processor"))
    }
}

/// What the one of both that waited for longer has waited since then.
pub(crate) fn waited_since(threads: &[Waited; 2], before: [Duration; 2]) -> Duration {
    let [a, b] = threads.each_ref().map(Waited::in_all);
    let waited = |now: Duration, before| now.saturating_sub(before);
    waited(a, before[0]).max(waited(b, before[1]))
}

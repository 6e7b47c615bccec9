//! Signals: Ctrl-C and `kill` end a run in order, so that no program stays attached.
//!
//! A thread of its own takes SIGINT and SIGTERM, which all others block: a thread that registers
//! gigabytes could not take them. It sets a flag and raises a descriptor, for which waits of a
//! command wait, too (`Rnic::wait_readable`). Loops that do not sleep, and those whose sleeps are
//! short, check the flag. While the RNIC is opened, or zeroes memory before frames are steered, the
//! thread ends the process at once: the kernel undoes everything.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::SIGXFSZ;

use crate::interruption::Interruption;
use crate::output;

/// No signal has this number.
const NONE: i32 = 0;

/// Time after the first signal in which another one counts as the same request: `timeout` sends
/// two.
const REPEAT_WINDOW: Duration = Duration::from_millis(500);

/// Records whether the program was asked to end. A signal much later ends it at once.
#[derive(Clone)]
pub(crate) struct Interrupted(Arc<Flags>);

struct Flags {
    /// Number of the first signal, or [`NONE`].
    asked: AtomicI32,
    /// When it came.
    asked_at: OnceLock<Instant>,
    /// The working thread has noticed the signal.
    noticed: AtomicBool,
    /// Raised from then on, for threads that sleep.
    woken: xwarp_driver::Signal,
    /// `asked` is not checked for some time, and there is nothing to undo: a signal ends the
    /// process at once.
    at_once: AtomicBool,
}

impl Interrupted {
    fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Flags {
            asked: AtomicI32::new(NONE),
            asked_at: OnceLock::new(),
            noticed: AtomicBool::new(false),
            woken: xwarp_driver::Signal::new()?,
            at_once: AtomicBool::new(false),
        })))
    }

    /// Starts to watch for signals, on a thread that ends with the process. All other threads block
    /// them, as a thread in a long system call could not take them.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let interrupted = Self::new().context("cannot watch for signals")?;
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
        signals.thread_block().context("cannot watch for signals")?;
        let taker = interrupted.clone();
        let (ready, is_ready) = mpsc::channel::<()>();
        thread::Builder::new()
            .name("xwarp-signals".to_owned())
            .spawn(move || {
                drop(ready);
                let mut request = EndRequest::default();
                while let Ok(signal) = signals.wait() {
                    taker.take(signal, request.is_repeated(Instant::now()));
                }
            })
            .context("cannot watch for signals")?;
        // A thread maps memory when it starts, which would wait for a registration of memory.
        let _ = is_ready.recv();
        Ok(interrupted)
    }

    fn take(&self, signal: Signal, is_repeated: bool) {
        let signal = signal as i32;
        self.ask(signal);
        if is_repeated {
            signal_hook::low_level::exit(Interruption { signal }.exit_code().into());
        }
        if self.0.at_once.load(Ordering::SeqCst) {
            output::end_at_once(Interruption { signal });
        }
    }

    fn ask(&self, signal: i32) {
        let _the_first_counts = self.0.asked_at.set(Instant::now());
        let asked = &self.0.asked;
        let _the_first_counts =
            asked.compare_exchange(NONE, signal, Ordering::SeqCst, Ordering::SeqCst);
        self.0.woken.raise();
    }

    /// Fails once a signal has come.
    pub(crate) fn check(&self) -> Result<(), Interruption> {
        let signal = self.0.asked.load(Ordering::SeqCst);
        if signal != NONE {
            self.0.note_noticed();
            return Err(Interruption { signal });
        }
        Ok(())
    }

    /// Runs work that may take long and cannot check for signals. A signal ends the process at once
    /// meanwhile. Only for work that the kernel undoes with the process.
    pub(crate) fn at_once_during<T>(&self, work: impl FnOnce() -> T) -> Result<T, Interruption> {
        self.0.at_once.store(true, Ordering::SeqCst);
        // An earlier signal did not end the process, as the thread has handled it already.
        let done = self.check().map(|()| work());
        self.0.at_once.store(false, Ordering::SeqCst);
        self.check()?;
        done
    }

    /// State before any signal, for tests.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self::new().expect("a descriptor")
    }

    /// State after a signal, for tests.
    #[cfg(test)]
    pub(crate) fn asked() -> Self {
        let interrupted = Self::never();
        interrupted.ask(Signal::SIGINT as i32);
        interrupted
    }
}

impl Flags {
    /// Logs once how long the signal was not noticed.
    fn note_noticed(&self) {
        if let Some(asked_at) = self.asked_at.get()
            && !self.noticed.swap(true, Ordering::Relaxed)
        {
            let micros = asked_at.elapsed().as_micros();
            log::debug!("a signal was noticed after {micros} us");
        }
    }
}

impl AsFd for Interrupted {
    /// Readable once a signal has come. Every long wait of a command includes it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.woken.as_fd()
    }
}

/// When the program was first asked to end.
#[derive(Default)]
struct EndRequest(Option<Instant>);

impl EndRequest {
    /// True if a signal at `now` is another request than the first.
    fn is_repeated(&mut self, now: Instant) -> bool {
        let first = *self.0.get_or_insert(now);
        now.saturating_duration_since(first) >= REPEAT_WINDOW
    }
}

/// Turns a file beyond the size limit (`ulimit -f`) into an error of the write, like a full disk;
/// by default SIGXFSZ kills the process.
pub(crate) fn survive_file_limit() -> anyhow::Result<()> {
    let unread = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, unread).context("cannot watch for signals")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use xwarp_driver::is_any_readable;

    #[test]
    fn two_signals_at_once_are_one_wish() {
        let (mut request, now) = (EndRequest::default(), Instant::now());
        assert!(!request.is_repeated(now) && !request.is_repeated(now));
        assert!(!request.is_repeated(now + REPEAT_WINDOW / 2));
        assert!(request.is_repeated(now + REPEAT_WINDOW));
    }

    #[test]
    fn descriptor_is_readable_after_a_signal_for_good() {
        let readable = |it: &Interrupted| is_any_readable(&[it.as_fd()]).unwrap();
        assert!(!readable(&Interrupted::never()));
        let asked = Interrupted::asked();
        assert!(readable(&asked) && asked.check().is_err() && readable(&asked));
    }

    #[test]
    fn work_is_not_begun_after_a_signal() {
        let never = || panic!("begun");
        assert!(Interrupted::asked().at_once_during(never).is_err());
        assert!(matches!(Interrupted::never().at_once_during(|| 5), Ok(5)));
    }
}

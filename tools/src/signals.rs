//! Ctrl-C and `kill` end a run in order, so that nothing stays attached.

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

/// How long after the first signal another one is still the same wish: `timeout` sends two.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Knows whether the program was asked to end. A signal that comes later again ends it at once.
#[derive(Clone)]
pub(crate) struct Interrupted(Arc<Flags>);

struct Flags {
    /// The number of the signal that has come first, or [`NONE`].
    asked: AtomicI32,
    /// When it came.
    asked_at: OnceLock<Instant>,
    /// Whoever works has heard of it.
    heard: AtomicBool,
    /// Raised from then on, for those that sleep.
    woken: xwarp_driver::Signal,
    /// Nobody looks at `asked` for some time, and there is nothing to undo.
    at_once: AtomicBool,
}

impl Interrupted {
    fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Flags {
            asked: AtomicI32::new(NONE),
            asked_at: OnceLock::new(),
            heard: AtomicBool::new(false),
            woken: xwarp_driver::Signal::new()?,
            at_once: AtomicBool::new(false),
        })))
    }

    /// Begins to watch for signals, by a thread that ends with the process. All other threads hold them back: one that is in a long
    /// system call could not take them.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let interrupted = Self::new().context("cannot watch for signals")?;
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
        signals.thread_block().context("cannot watch for signals")?;
        let told = interrupted.clone();
        let (ready, is_ready) = mpsc::channel::<()>();
        thread::Builder::new()
            .name("xwarp-signals".to_owned())
            .spawn(move || {
                drop(ready);
                let mut wish = Wish::default();
                while let Ok(signal) = signals.wait() {
                    told.take(signal, wish.is_repeated(Instant::now()));
                }
            })
            .context("cannot watch for signals")?;
        // A thread maps memory when it begins, which would wait for whoever registers memory.
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
            self.0.note_heard();
            return Err(Interruption { signal });
        }
        Ok(())
    }

    /// Does work that may take long and cannot look for signals: one that comes meanwhile ends the process at once. Only for work
    /// that the kernel undoes with the process, whatever ends that.
    pub(crate) fn at_once_during<T>(&self, work: impl FnOnce() -> T) -> Result<T, Interruption> {
        self.0.at_once.store(true, Ordering::SeqCst);
        // One that came before was not taken at once, as the thread has looked already.
        let done = self.check().map(|()| work());
        self.0.at_once.store(false, Ordering::SeqCst);
        self.check()?;
        done
    }

    /// As before any signal, for tests.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self::new().expect("a descriptor")
    }

    /// As after a signal, for tests.
    #[cfg(test)]
    pub(crate) fn asked() -> Self {
        let interrupted = Self::never();
        interrupted.ask(Signal::SIGINT as i32);
        interrupted
    }
}

impl Flags {
    /// Logs how long the signal was not heard, once.
    fn note_heard(&self) {
        if let Some(asked_at) = self.asked_at.get()
            && !self.heard.swap(true, Ordering::Relaxed)
        {
            let unheard = asked_at.elapsed().as_micros();
            log::debug!("a signal was heard after {unheard} us");
        }
    }
}

impl AsFd for Interrupted {
    /// Readable once a signal has come. Whatever a command waits for, it waits for this, too.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.woken.as_fd()
    }
}

/// When the user has first asked the program to end.
#[derive(Default)]
struct Wish(Option<Instant>);

impl Wish {
    /// Whether a signal that has come at `now` is more than the first wish.
    fn is_repeated(&mut self, now: Instant) -> bool {
        let first = *self.0.get_or_insert(now);
        now.saturating_duration_since(first) >= SAME_WISH
    }
}

/// Makes a file that is larger than it may be (`ulimit -f`) an error of the write, as a full disk is one; by default SIGXFSZ kills.
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
        let (mut wish, now) = (Wish::default(), Instant::now());
        assert!(!wish.is_repeated(now) && !wish.is_repeated(now));
        assert!(!wish.is_repeated(now + SAME_WISH / 2));
        assert!(wish.is_repeated(now + SAME_WISH));
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

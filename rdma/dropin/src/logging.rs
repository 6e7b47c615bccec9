//! Standard error: messages, log lines as `XWARP_LOG` asks for, and statistics as `XWARP_STATS`
//! asks for. Without a level, warnings and errors are printed.
//!
//! A write to the program's standard error may fail if its disk is full, or the reader of a pipe
//! has closed it. Only the message is lost then.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::ptr;
use std::sync::{Mutex, Once};

use log::{LevelFilter, Log, Metadata, Record};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::entry::lock;
use crate::environment;

/// The least severe level that is printed: `error`, `warn`, `info`, `debug`, `trace` or `off`.
const LEVEL: &CStr = c"XWARP_LOG";

/// Asks for an RNIC's counters, and for the objects that a program has not destroyed.
const STATISTICS: &CStr = c"XWARP_STATS";

/// Whether statistics are to be printed.
pub(crate) fn statistics_are_wanted() -> bool {
    environment::is_on(STATISTICS)
}

/// Prints a line, in one write.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    write_line(format!("xwarp: {message}\n").as_bytes());
}

/// Writes a line to standard error without SIGPIPE, whose default action would end the program.
fn write_line(line: &[u8]) {
    let pipe = SigSet::from(Signal::SIGPIPE);
    let Ok(mask) = pipe.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
        return;
    };
    let was_pending = is_pending(Signal::SIGPIPE);
    let written = io::stderr().write_all(line);
    if written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) && !was_pending {
        discard(&pipe);
    }
    // A failure cannot be reported anywhere.
    let _ = mask.thread_set_mask();
}

/// Whether a blocked signal is pending for this thread or the process.
fn is_pending(signal: Signal) -> bool {
    let mut pending = *SigSet::empty().as_ref();
    // SAFETY: the set lives, and the call has no other memory of ours.
    let failed = unsafe { libc::sigpending(&raw mut pending) } != 0;
    // SAFETY: the call has filled in the set, or it is the empty one.
    let pending = unsafe { SigSet::from_sigset_t_unchecked(pending) };
    !failed && pending.contains(signal)
}

/// Discards a signal of a set that is pending for this thread. The system call is made directly:
/// the C library's function is a cancellation point.
fn discard(signals: &SigSet) {
    let no_time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let set: *const libc::sigset_t = signals.as_ref();
    let no_info = ptr::null_mut::<libc::siginfo_t>();
    // SAFETY: the set and the time live, and the kernel reads the first 64 signals of the set.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            set,
            no_info,
            &raw const no_time,
            size_of::<u64>(),
        )
    };
}

/// Prints a line, unless the process has printed the same one before.
pub(crate) fn say_once(message: fmt::Arguments<'_>) {
    if is_news(&message.to_string()) {
        say(message);
    }
}

fn is_news(message: &str) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    lock(&SAID).insert(message.to_owned())
}

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("xwarp")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_lowercase();
            say(format_args!("{level}: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// Installs the logger, once.
pub(crate) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if log::set_logger(&StandardError).is_ok() {
            log::set_max_level(level());
        }
    });
}

/// The requested level.
fn level() -> LevelFilter {
    let Some(named) = environment::value(LEVEL).filter(|named| !named.is_empty()) else {
        return LevelFilter::Warn;
    };
    let level = named.to_str().and_then(|level| level.parse().ok());
    level.unwrap_or_else(|| {
        say_once(format_args!(
            "XWARP_LOG is {}, which is no level: warnings and errors are logged; set it to error, warn, info, debug, trace or off",
            named.display()
        ));
        LevelFilter::Warn
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_news_once() {
        let news = ["one", "two", "one"].map(is_news);
        assert_eq!(news, [true, true, false]);
    }
}

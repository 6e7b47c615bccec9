//! Standard error: messages, log lines as `XWARP_LOG` asks for, and statistics if `XWARP_STATS` is set. Without a level, warnings and errors are
//! printed.
//!
//! A program's standard error may take nothing: its disk is full, or the reader of a pipe is gone. A message is lost then, and nothing else.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, Once};

use log::{LevelFilter, Log, Metadata, Record};

use crate::entry::lock;
use crate::environment;

/// The least severe level that is told: `error`, `warn`, `info`, `debug`, `trace` or `off`.
const LEVEL: &CStr = c"XWARP_LOG";

/// Asks for what an RNIC has counted, and what a program has left.
const STATISTICS: &CStr = c"XWARP_STATS";

/// Whether statistics are to be printed.
pub(crate) fn statistics_are_wanted() -> bool {
    environment::is_set(STATISTICS)
}

/// Prints a line, in one write.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    // Nothing is left to report a failure to.
    let _ = io::stderr().write_all(format!("xwarp: {message}\n").as_bytes());
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

/// Begins to tell, once.
pub(crate) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = environment::text(LEVEL).and_then(|level| level.parse().ok());
        if log::set_logger(&StandardError).is_ok() {
            log::set_max_level(level.unwrap_or(LevelFilter::Warn));
        }
    });
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

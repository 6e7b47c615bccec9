//! Standard error: log lines, for whom `XWARP_LOG` names a level, and statistics, for whom `XWARP_STATS` is set. Without a level warnings and
//! errors are told.

use std::env;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record};

/// The least severe level that is told: `error`, `warn`, `info`, `debug`, `trace` or `off`.
const LEVEL: &str = "XWARP_LOG";

/// Asks for what an RNIC has counted, and what a program has left.
const STATISTICS: &str = "XWARP_STATS";

/// Whether statistics are to be printed.
pub(crate) fn statistics_are_wanted() -> bool {
    env::var_os(STATISTICS).is_some()
}

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("xwarp")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!(
                "xwarp: {}: {}",
                record.level().as_str().to_lowercase(),
                record.args()
            );
        }
    }

    fn flush(&self) {}
}

/// Begins to tell, once.
pub(crate) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = env::var(LEVEL).ok().and_then(|level| level.parse().ok());
        if log::set_logger(&StandardError).is_ok() {
            log::set_max_level(level.unwrap_or(LevelFilter::Warn));
        }
    });
}

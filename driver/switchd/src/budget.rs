//! Budget: what a client may have a second.

use std::time::Duration;

/// A bucket that a second fills.
pub(crate) struct Budget {
    per_second: u32,
    left: u32,
    filled: Duration,
}

impl Budget {
    /// A full one.
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second,
            left: per_second,
            filled: Duration::ZERO,
        }
    }

    /// Takes one. False if none is left.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.filled).min(Duration::from_secs(1));
        let due = self.per_second * passed.subsec_millis() / 1000
            + self.per_second * u32::from(passed.as_secs() > 0);
        if due > 0 {
            self.left = (self.left + due).min(self.per_second);
            self.filled = now;
        }
        let taken = self.left.checked_sub(1);
        self.left = taken.unwrap_or(0);
        taken.is_some()
    }
}

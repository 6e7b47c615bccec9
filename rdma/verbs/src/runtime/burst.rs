//! Burst of polls: how the engine's thread distinguishes an application that spins on a completion
//! queue from one that polls now and then.

use std::time::{Duration, Instant};

/// Longest average gap between polls of a burst. An application that spins on its memory between
/// two polls takes longer, as the round trip of a message does.
const GAP: Duration = Duration::from_micros(5);
/// A burst that lasts longer than this counts as long.
const LONG: Duration = Duration::from_micros(100);

/// Detects bursts in the number of polls.
pub(crate) struct Burst {
    since: Instant,
    /// Number of polls when new ones were last seen, and the time.
    last: (u32, Instant),
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// There were no or too few polls: a burst may begin now.
    Begins,
    /// A burst is in progress.
    Goes,
    /// A burst has lasted for longer than `LONG`.
    IsLong,
}

impl Burst {
    /// No burst yet: `polls` polls at the time `now`.
    pub(crate) fn new(polls: u32, now: Instant) -> Self {
        let (since, last) = (now, (polls, now));
        Self { since, last }
    }

    /// A poll is in progress: its duration does not count as a gap.
    pub(crate) fn lasts(&mut self, polls: u32, now: Instant) {
        self.last = (polls, now);
    }

    /// Checks the number of polls so far.
    pub(crate) fn see(&mut self, polls: u32, now: Instant) -> Seen {
        let (before, then) = self.last;
        let new = polls.wrapping_sub(before);
        let time = now.saturating_duration_since(then);
        if time > GAP * new.max(1) {
            *self = Self::new(polls, now);
            return Seen::Begins;
        }
        if new > 0 {
            self.last = (polls, now);
        }
        if now.saturating_duration_since(self.since) < LONG {
            return Seen::Goes;
        }
        Seen::IsLong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// Checks every microsecond, with `polls(at)` polls at each time.
    fn first_long(polls: impl Fn(u64) -> u64) -> Option<u64> {
        let start = Instant::now();
        let mut burst = Burst::new(0, start);
        (1..1000).find(|at| {
            let count = u32::try_from(polls(*at)).unwrap();
            burst.see(count, start + micros(*at)) == Seen::IsLong
        })
    }

    #[test]
    fn polls_are_a_burst_once_they_have_followed_each_other_for_long() {
        assert_eq!(first_long(|at| at), Some(100), "one a microsecond");
        assert_eq!(first_long(|at| at / 4), Some(100), "one in four");
        assert_eq!(first_long(|at| at / 8), None, "one in eight");
        assert_eq!(first_long(|_| 0), None, "none");
    }

    #[test]
    fn polls_with_a_pause_between_are_none_however_many() {
        // 100 polls at once, then 9 µs that the application spends on its memory.
        assert_eq!(first_long(|at| at / 10 * 100), None);
    }

    #[test]
    fn poll_that_sends_for_long_is_no_gap() {
        // One poll in 50 µs, which runs the engine for 48 of them.
        let start = Instant::now();
        let mut burst = Burst::new(0, start);
        let is_long = |at: &u64| {
            let (polls, now) = (u32::try_from(at / 50).unwrap(), start + micros(*at));
            let seen = burst.see(polls, now);
            if at % 50 < 48 {
                burst.lasts(polls, now);
            }
            seen == Seen::IsLong
        };
        assert_eq!((1..1000).find(is_long), Some(100));
    }

    #[test]
    fn look_after_a_sleep_goes_by_the_average() {
        let start = Instant::now();
        for (polls, expected) in [(40, Seen::IsLong), (39, Seen::Begins)] {
            let mut burst = Burst::new(u32::MAX, start);
            let polls = u32::MAX.wrapping_add(polls);
            assert_eq!(burst.see(polls, start + micros(200)), expected);
        }
    }
}

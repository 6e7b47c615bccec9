//! Spinning before a sleep: whether it pays, judged by the results of the last spins.
//!
//! A spin fails if work arrives only after its end, as when the peer takes long, or when the
//! spinning keeps the processor busy that has to produce the work. After each failed spin the
//! number of sleeps without a spin doubles, up to a limit. Then the next spin is tried.

use std::time::Duration;

use super::config::WaitMode;

/// Largest number of sleeps without a spin after a failed spin.
const MOST_SKIPPED: u32 = 63;

/// Decides between spinning and sleeping.
pub(crate) struct Spinning {
    mode: WaitMode,
    /// Number of spins to skip after the last failed spin, and how many of them are left.
    skipped: u32,
    left: u32,
    /// Whether a spin is in progress that has found nothing yet.
    goes_on: bool,
}

impl Spinning {
    pub(crate) fn new(mode: WaitMode) -> Self {
        Self {
            mode,
            skipped: 0,
            left: 0,
            goes_on: false,
        }
    }

    /// Records that a step has found work.
    pub(crate) fn succeed(&mut self) {
        if std::mem::take(&mut self.goes_on) {
            (self.skipped, self.left) = (0, 0);
        }
    }

    /// After a step without work: whether to run another step instead of sleeping. `idle` returns
    /// the time since the last work.
    pub(crate) fn goes_on(&mut self, idle: impl FnOnce() -> Duration) -> bool {
        match self.mode {
            WaitMode::Busy => true,
            WaitMode::Blocking => false,
            WaitMode::Adaptive(_) if self.left > 0 && !self.goes_on => {
                self.left -= 1;
                false
            }
            WaitMode::Adaptive(limit) if idle() < limit => {
                self.goes_on = true;
                true
            }
            WaitMode::Adaptive(_) => {
                self.fail();
                false
            }
        }
    }

    fn fail(&mut self) {
        if std::mem::take(&mut self.goes_on) {
            self.skipped = (2 * self.skipped + 1).min(MOST_SKIPPED);
            self.left = self.skipped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    /// Work arrives `after` the last work: whether a spin finds it, rather than a sleep.
    fn finds_by_spinning(spinning: &mut Spinning, after: Duration) -> bool {
        let mut idle = Duration::ZERO;
        while spinning.goes_on(|| idle) {
            if idle >= after {
                spinning.succeed();
                return true;
            }
            idle += Duration::from_micros(10);
        }
        spinning.succeed();
        false
    }

    fn spins_among(spinning: &mut Spinning, rounds: usize, after: Duration) -> Vec<bool> {
        (0..rounds)
            .map(|_| finds_by_spinning(spinning, after))
            .collect()
    }

    #[test]
    fn work_that_comes_soon_is_always_spun_for() {
        let mut spinning = Spinning::new(WaitMode::Adaptive(LIMIT));
        assert_eq!(
            spins_among(&mut spinning, 100, Duration::from_micros(20)),
            [true; 100]
        );
    }

    #[test]
    fn spins_in_vain_become_rare() {
        let mut spinning = Spinning::new(WaitMode::Adaptive(LIMIT));
        let spun = (0..1000)
            .filter(|_| {
                let tried = spinning.left == 0;
                assert!(!finds_by_spinning(&mut spinning, 2 * LIMIT));
                tried
            })
            .count();
        // One spin in 2, 4, 8, 16 and 32 rounds, then one in 64.
        assert_eq!(spun, 5 + (1000_usize - 62).div_ceil(64));
    }

    #[test]
    fn spin_that_finds_work_brings_them_back() {
        let mut spinning = Spinning::new(WaitMode::Adaptive(LIMIT));
        spins_among(&mut spinning, 20, 2 * LIMIT);
        let soon = spins_among(&mut spinning, 100, Duration::ZERO);
        let first = soon.iter().position(|spun| *spun).unwrap();
        assert!(first <= 31, "the next one that is not left out");
        assert!(soon[first..].iter().all(|spun| *spun));
    }

    #[test]
    fn busy_engine_always_spins_and_a_blocking_one_never() {
        for (mode, expected) in [(WaitMode::Busy, true), (WaitMode::Blocking, false)] {
            let mut spinning = Spinning::new(mode);
            for idle in [Duration::ZERO, 100 * LIMIT] {
                assert_eq!(spinning.goes_on(|| idle), expected, "{mode:?}");
            }
        }
    }
}

//! Round-trip time and retransmission timeout (RFC 6298).

use std::cmp::Reverse;
use std::time::Duration;

use crate::time::{Instant, nanos};
use crate::windowed_max::WindowedMax;

/// Timeout before the first sample (RFC 6298 §2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// Timeout before the first sample if the SYN was sent again (RFC 6298 §5.7).
const REPEATED_SYN_RTO: Duration = Duration::from_secs(3);
/// The clock's granularity, G (RFC 6298 §2).
const GRANULARITY: Duration = Duration::from_nanos(GRANULARITY_NANOS);
const GRANULARITY_NANOS: u64 = 1000;
/// Window of the minimum round trip in nanoseconds. It is long enough to see a loaded path without
/// load once, and short enough to notice a change of route (RFC 8985 §6.2 leaves the length to the
/// implementation).
const MIN_WINDOW: u64 = 300_000_000_000;
/// Upper bound of a sample: far beyond the lifetime of a segment (RFC 9293 §3.4.2), and sums cannot
/// overflow.
const MAX_SAMPLE: Duration = Duration::from_hours(1);
/// Doublings after which any timeout has reached any ceiling that fits into a `Duration` times
/// `u32`.
const MAX_BACKOFF: u32 = 31;

/// Smoothed round trip, its variation and the timeout of one connection. Samples must obey Karn's
/// algorithm (RFC 6298 §3) or come from timestamps.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    /// Timeout before the first sample.
    initial: Duration,
    floor: Duration,
    ceiling: Duration,
    smoothed: Option<Smoothed>,
    least: WindowedMax<Reverse<Duration>>,
    backoff: u32,
    /// The resulting timeout, kept because it is read far more often than it changes.
    rto: Duration,
    /// Timeout before back-off, at least the floor above the round trip.
    timeout: Duration,
}

/// Estimates that the first sample begins and later samples update.
#[derive(Clone, Copy, Debug)]
struct Smoothed {
    /// SRTT.
    srtt: Duration,
    /// SRTT and RTTVAR, in nanoseconds: a whole number is divided faster than a `Duration`.
    nanos: (u64, u64),
}

impl Smoothed {
    /// The estimates after a sample in nanoseconds: the first one, or one that follows `before`
    /// (RFC 6298 §2.2 and §2.3).
    fn next(before: Option<Self>, rtt: u64) -> Self {
        let nanos = match before.map(|before| before.nanos) {
            None => (rtt, rtt / 2),
            Some((srtt, rttvar)) => (
                (srtt * 7 + rtt) / 8,
                // with the SRTT from before this sample (§2.3)
                (rttvar * 3 + srtt.abs_diff(rtt)) / 4,
            ),
        };
        let srtt = Duration::from_nanos(nanos.0);
        Self { srtt, nanos }
    }

    #[cfg(test)]
    fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.nanos.1)
    }
}

impl RttEstimator {
    /// Timeouts lie between `floor` (RFC 6298 §2.4 recommends 1 s, far too long for peers on one
    /// link) and `ceiling` (§2.5), which is at least `floor`.
    pub(crate) fn new(floor: Duration, ceiling: Duration) -> Self {
        let mut estimator = Self {
            initial: INITIAL_RTO,
            floor,
            ceiling: ceiling.max(floor),
            smoothed: None,
            least: WindowedMax::new(MIN_WINDOW),
            backoff: 0,
            rto: Duration::ZERO,
            timeout: Duration::ZERO,
        };
        estimator.set_rto();
        estimator
    }

    /// Adds a sample, which also ends back-off (RFC 6298 §5.7).
    pub(crate) fn sample(&mut self, rtt: Duration, now: Instant) {
        let rtt = rtt.clamp(GRANULARITY, MAX_SAMPLE);
        self.smoothed = Some(Smoothed::next(self.smoothed, nanos(rtt)));
        self.least.update(Reverse(rtt), now.nanos_since_origin());
        self.backoff = 0;
        self.set_rto();
    }

    /// Timeout, including back-off.
    #[cfg(test)]
    pub(crate) fn rto(&self) -> Duration {
        self.rto
    }

    /// Timeout before back-off. The floor is added to the round trip, because the variance of a
    /// steady path falls to zero.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Time in which an answer is to be expected: the timeout without back-off.
    pub(crate) fn answer(&self) -> Duration {
        let base = match self.smoothed {
            None => self.initial,
            Some(smoothed) => {
                let (srtt, rttvar) = smoothed.nanos;
                Duration::from_nanos(srtt + (rttvar * 4).max(GRANULARITY_NANOS))
            }
        };
        base.max(self.floor)
    }

    fn set_rto(&mut self) {
        let once = self.answer();
        let doubled = match self.backoff {
            0 => once,
            backoff => once.saturating_mul(1 << backoff),
        };
        self.rto = doubled.min(self.ceiling);
        let least = self.srtt().map(|srtt| srtt.saturating_add(self.floor));
        self.timeout = self.rto.max(least.unwrap_or_default());
    }

    /// Doubles the timeout after an expiry (RFC 6298 §5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
        self.set_rto();
    }

    /// Ends back-off: new data was acknowledged, or the expiry was spurious (RFC 5682 §3).
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = 0;
        self.set_rto();
    }

    /// The SYN is acknowledged but gives no sample, as it was retransmitted: data begins with a
    /// timeout of its own (RFC 6298 §5.7).
    pub(crate) fn syn_was_repeated(&mut self) {
        self.initial = REPEATED_SYN_RTO;
        self.backoff = 0;
        self.set_rto();
    }

    /// Number of expiries in a row.
    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed.srtt)
    }

    #[cfg(test)]
    pub(crate) fn rttvar(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed.rttvar())
    }

    /// Minimum round trip of the last five minutes, as of the last sample.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.least.best().map(|Reverse(rtt)| rtt)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn estimator() -> RttEstimator {
        RttEstimator::new(5 * MS, 60_000 * MS)
    }

    #[test]
    fn before_a_sample_the_timeout_is_one_second() {
        let rtt = estimator();
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        assert_eq!((rtt.srtt(), rtt.min_rtt()), (None, None));
    }

    #[test]
    fn first_sample_gives_three_times_itself() {
        let mut rtt = estimator();
        rtt.sample(100 * MS, Instant::ORIGIN);
        assert_eq!(rtt.srtt(), Some(100 * MS));
        assert_eq!(rtt.rttvar(), Some(50 * MS));
        assert_eq!(rtt.rto(), 300 * MS);
    }

    #[test]
    fn later_samples_are_smoothed() {
        let mut rtt = estimator();
        rtt.sample(100 * MS, Instant::ORIGIN);
        rtt.sample(140 * MS, Instant::ORIGIN);
        // RTTVAR = 3/4 * 50 + 1/4 * |100 - 140| = 47.5; SRTT = 7/8 * 100 + 1/8 * 140 = 105; RTO =
        // 105 + 4 * 47.5 = 295
        assert_eq!(rtt.srtt(), Some(105 * MS));
        assert_eq!(rtt.rttvar(), Some(Duration::from_micros(47_500)));
        assert_eq!(rtt.rto(), 295 * MS);
    }

    #[test]
    fn timeout_stays_between_floor_and_ceiling() {
        let mut rtt = estimator();
        for _ in 0..100 {
            rtt.sample(Duration::from_micros(50), Instant::ORIGIN);
        }
        assert_eq!(rtt.rto(), 5 * MS);
        rtt.sample(Duration::MAX, Instant::ORIGIN);
        assert_eq!(rtt.rto(), 60_000 * MS);
    }

    #[test]
    fn each_expiry_doubles_the_timeout_until_a_sample() {
        let mut rtt = estimator();
        rtt.sample(MS, Instant::ORIGIN);
        for millis in [5, 10, 20, 40] {
            assert_eq!(rtt.rto(), millis * MS);
            rtt.back_off();
        }
        assert_eq!(rtt.backoff(), 4);
        rtt.sample(MS, Instant::ORIGIN);
        assert_eq!(rtt.rto(), 5 * MS);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), 60_000 * MS);
        rtt.reset_backoff();
        assert_eq!(rtt.rto(), 5 * MS);
    }

    #[test]
    fn minimum_is_forgotten_after_five_minutes() {
        let mut rtt = estimator();
        rtt.sample(MS, Instant::ORIGIN);
        for second in [1, 299, 300] {
            rtt.sample(3 * MS, Instant::from_micros(second * 1_000_000));
            assert_eq!(rtt.min_rtt(), Some(MS), "{second} s");
        }
        rtt.sample(4 * MS, Instant::from_micros(301_000_000));
        assert_eq!(rtt.min_rtt(), Some(3 * MS));
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "needs minutes, and is arithmetic")]
        fn no_input_panics(floor: Duration, ceiling: Duration, steps: Vec<(Duration, Duration, u8)>) {
            let mut rtt = RttEstimator::new(floor, ceiling);
            for (sample, now, expiries) in steps {
                rtt.sample(sample, Instant::ORIGIN + now);
                for _ in 0..expiries {
                    rtt.back_off();
                }
                prop_assert!(rtt.rto() >= floor);
                prop_assert!(rtt.rto() <= ceiling.max(floor));
                prop_assert!(rtt.min_rtt().is_some());
            }
        }
    }
}

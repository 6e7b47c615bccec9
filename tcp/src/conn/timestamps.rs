//! Timestamps: our clock, the peer's latest, and protection against wrapped sequence numbers (RFC 7323).

use std::time::Duration;

use crate::seq::Seq;
use crate::time::Instant;

/// How long the peer's timestamp is trusted without a newer one (RFC 7323 §5.5): its clock may wrap in the time.
const OUTDATED: Duration = Duration::from_hours(24 * 24);

/// One connection's timestamps. The clock ticks in milliseconds, the fastest that RFC 7323 §5.4 allows.
#[derive(Clone, Debug)]
pub(crate) struct Timestamps {
    /// What is added to the clock, so that it says nothing of the host (RFC 7323 §5.4).
    offset: u32,
    /// `TS.Recent`, and when it was taken.
    recent: Option<(u32, Instant)>,
}

impl Timestamps {
    pub(crate) fn new(offset: u32) -> Self {
        Self {
            offset,
            recent: None,
        }
    }

    /// `TSval` of a segment sent now.
    pub(crate) fn value(&self, now: Instant) -> u32 {
        let millis = now.since_origin().as_millis() & u128::from(u32::MAX);
        u32::try_from(millis)
            .unwrap_or_default()
            .wrapping_add(self.offset)
    }

    /// `TSval` and `TSecr` of a segment sent now.
    pub(crate) fn pair(&self, now: Instant) -> (u32, u32) {
        (self.value(now), self.recent.map_or(0, |(recent, _)| recent))
    }

    /// True if a segment with this `TSval` is older than one that was received (PAWS, RFC 7323 §5.3 R1).
    pub(crate) fn is_old(&self, tsval: u32, now: Instant) -> bool {
        self.recent
            .is_some_and(|(recent, at)| older(tsval, recent) && now - at < OUTDATED)
    }

    /// Takes the timestamp of an acceptable segment that begins at `seq`, up to which we have acknowledged at least `last_ack`
    /// (RFC 7323 §4.3, RFC 9293 §3.10.7.4).
    pub(crate) fn take(&mut self, tsval: u32, seq: Seq, last_ack: Seq, now: Instant) {
        let newer = self
            .recent
            .is_none_or(|(recent, at)| !older(tsval, recent) || now - at >= OUTDATED);
        if newer && !last_ack.is_before(seq) {
            self.recent = Some((tsval, now));
        }
    }
}

/// True if `a` was taken before `b`, on a clock that wraps (RFC 7323 §5.2). Of values 2^31 apart neither was.
pub(crate) fn older(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seq::from_raw;
    use crate::seq::testing::{HALF, at, near};

    #[test]
    fn an_older_value_is_refused_until_the_known_one_is_outdated() {
        let start = Instant::from_micros(5_000_000);
        let mut stamps = Timestamps::new(0);
        assert!(!stamps.is_old(7, start));
        stamps.take(100, from_raw(5), from_raw(5), start);
        assert!(stamps.is_old(99, start) && !stamps.is_old(100, start));
        assert!(!stamps.is_old(99, start + OUTDATED));
        stamps.take(200, from_raw(6), from_raw(5), start);
        assert_eq!(stamps.pair(start).1, 100, "beyond what was acknowledged");
    }

    #[test]
    fn the_clock_ticks_in_milliseconds_and_wraps() {
        let stamps = Timestamps::new(u32::MAX);
        assert_eq!(stamps.value(Instant::from_micros(999)), u32::MAX);
        assert_eq!(stamps.value(Instant::from_micros(1000)), 0);
        assert!(older(u32::MAX, 0) && !older(0, u32::MAX));
    }

    #[test]
    fn of_values_half_the_space_apart_neither_is_older() {
        assert!(!older(5, 5 + (1 << 31)) && !older(5 + (1 << 31), 5));
        assert!(older(5, 4 + (1 << 31)) && older(6 + (1 << 31), 5));
    }

    /// A segment: how much later it comes, its timestamp counted from the latest one, and its place from Last.ACK.sent.
    fn step() -> impl Strategy<Value = (u64, i64, i64)> {
        let day = 24 * 3600;
        let waits = vec![0, 1, 24 * day - 1, 24 * day, 24 * day + 1];
        (prop::sample::select(waits), near(vec![0]), -3..=3_i64)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// RFC 7323 §5.2 to §5.5, counted in numbers that do not wrap.
        #[test]
        fn old_is_what_is_less_than_half_the_space_before_what_was_taken_lately(
            place in near(vec![0]),
            steps in prop::collection::vec(step(), 1..20),
        ) {
            let mut stamps = Timestamps::new(0);
            let (mut now, mut recent) = (Instant::from_micros(5_000_000), None);
            for (seconds, later, from_ack) in steps {
                now = now + Duration::from_secs(seconds);
                let tsval = recent.map_or(0, |(value, _)| value) + later;
                let raw = crate::seq::raw(at(tsval));
                let old = recent.is_some_and(|(value, taken): (i64, Instant)| {
                    let age = (value - tsval).rem_euclid(2 * HALF);
                    (1..HALF).contains(&age) && now - taken < Duration::from_hours(24 * 24)
                });
                prop_assert_eq!(stamps.is_old(raw, now), old);
                stamps.take(raw, at(place + from_ack), at(place), now);
                if !old && from_ack <= 0 {
                    recent = Some((tsval, now));
                }
                let echo = recent.map_or(0, |(value, _)| crate::seq::raw(at(value)));
                prop_assert_eq!(stamps.pair(now).1, echo);
            }
        }
    }
}

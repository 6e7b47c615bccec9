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
        if seq <= last_ack && newer {
            self.recent = Some((tsval, now));
        }
    }
}

/// True if `a` was taken before `b`, on a clock that wraps.
pub(crate) fn older(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq::from_raw;

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
}

//! Timestamps: our clock, the peer's latest, and protection against wrapped sequence numbers (RFC
//! 7323).

use std::time::Duration;

use crate::time::Instant;
use crate::wire::seq::Seq;

/// The clock's tick.
pub(crate) const TICK: Duration = Duration::from_nanos(TICK_NANOS);
const TICK_NANOS: u64 = 1_000_000;
/// How long the peer's timestamp is trusted without a newer one (RFC 7323 §5.5): its clock may wrap
/// in this time.
const OUTDATED: Duration = Duration::from_hours(24 * 24);
/// Maximum age of an echo relative to the latest one, in ticks. A segment or SYN cookie travels for
/// two minutes at most (RFC 9293 §3.4.2), and so does the segment that it answers.
const LATE: u32 = 256 * 1024;

/// Timestamps of one connection. The clock ticks in milliseconds, the fastest rate that RFC 7323
/// §5.4 allows.
#[derive(Clone, Debug)]
pub(crate) struct Timestamps {
    /// Offset added to the clock, so that it reveals nothing about the host (RFC 7323 §5.4).
    offset: u32,
    /// `TS.Recent`, and when it was updated.
    recent: Option<(u32, Instant)>,
    /// The latest `TSval` sent, and the latest echoed.
    sent: u32,
    echoed: u32,
}

impl Timestamps {
    pub(crate) fn new(offset: u32, now: Instant) -> Self {
        let mut stamps = Self {
            offset,
            recent: None,
            sent: 0,
            echoed: 0,
        };
        stamps.sent = stamps.value(now);
        stamps.echoed = stamps.sent;
        stamps
    }

    /// `TSval` of a segment sent now.
    pub(crate) fn value(&self, now: Instant) -> u32 {
        let millis = now.nanos_since_origin() / TICK_NANOS;
        u32::try_from(millis & u64::from(u32::MAX))
            .unwrap_or_default()
            .wrapping_add(self.offset)
    }

    /// `TSval` and `TSecr` of a segment sent now.
    pub(crate) fn pair(&mut self, now: Instant) -> (u32, u32) {
        self.sent = self.value(now);
        (self.sent, self.recent())
    }

    /// `TSval` of the last segment sent.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// Value to echo: `TS.Recent`, or 0.
    pub(crate) fn recent(&self) -> u32 {
        self.recent.map_or(0, |(recent, _)| recent)
    }

    /// True if the peer can have sent this `TSecr`. It echoes data received in order, which never
    /// gets older. An attacker who does not see our segments must guess.
    pub(crate) fn is_echo(&self, tsecr: u32) -> bool {
        let span = self.sent.wrapping_sub(self.echoed).saturating_add(LATE);
        tsecr.wrapping_sub(self.echoed.wrapping_sub(LATE)) <= span
    }

    /// Time since this echo's `TSval` was sent, in whole ticks.
    pub(crate) fn age(&self, tsecr: u32, now: Instant) -> Duration {
        TICK * self.value(now).wrapping_sub(tsecr)
    }

    /// True if this is the echo of the latest segment.
    pub(crate) fn is_latest(&self, tsecr: u32) -> bool {
        tsecr == self.sent
    }

    /// Records the echo of an acceptable segment, if it is newer than the latest one, however long
    /// the connection was idle before.
    pub(crate) fn take_echo(&mut self, tsecr: u32) {
        if tsecr.wrapping_sub(self.echoed) <= self.sent.wrapping_sub(self.echoed) {
            self.echoed = tsecr;
        }
    }

    /// Records the timestamp of the peer's SYN.
    pub(crate) fn begin(&mut self, tsval: u32, now: Instant) {
        self.recent = Some((tsval, now));
    }

    /// True if a segment with this `TSval` is older than one that was received (PAWS, RFC 7323 §5.3
    /// R1).
    pub(crate) fn is_old(&self, tsval: u32, now: Instant) -> bool {
        self.recent
            .is_some_and(|(recent, at)| older(tsval, recent) && now - at < OUTDATED)
    }

    /// Updates `TS.Recent` from an acceptable segment that begins at `seq`. `last_ack`: a lower
    /// bound of Last.ACK.sent (RFC 7323 §4.3, RFC 9293 §3.10.7.4).
    pub(crate) fn take(&mut self, tsval: u32, seq: Seq, last_ack: Seq, now: Instant) {
        let newer = self
            .recent
            .is_none_or(|(recent, at)| !older(tsval, recent) || now - at >= OUTDATED);
        if newer && !last_ack.is_before(seq) {
            self.recent = Some((tsval, now));
        }
    }
}

/// True if `a` is older than `b`, on a clock that wraps (RFC 7323 §5.2). Of values 2^31 apart
/// neither is.
pub(crate) fn older(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::seq::from_raw;
    use crate::wire::seq::testing::{HALF, alike, at, near};

    #[test]
    fn older_value_is_refused_until_the_known_one_is_outdated() {
        let start = Instant::from_micros(5_000_000);
        let mut stamps = Timestamps::new(0, start);
        assert!(!stamps.is_old(7, start));
        stamps.take(100, from_raw(5), from_raw(5), start);
        assert!(stamps.is_old(99, start) && !stamps.is_old(100, start));
        assert!(!stamps.is_old(99, start + OUTDATED));
        stamps.take(200, from_raw(6), from_raw(5), start);
        assert_eq!(stamps.pair(start).1, 100, "beyond what was acknowledged");
    }

    #[test]
    fn clock_ticks_in_milliseconds_and_wraps() {
        let stamps = Timestamps::new(u32::MAX, Instant::ORIGIN);
        assert_eq!(stamps.value(Instant::from_micros(999)), u32::MAX);
        assert_eq!(stamps.value(Instant::from_micros(1000)), 0);
        assert!(older(u32::MAX, 0) && !older(0, u32::MAX));
    }

    #[test]
    fn of_values_half_the_space_apart_neither_is_older() {
        assert!(!older(5, 5 + (1 << 31)) && !older(5 + (1 << 31), 5));
        assert!(older(5, 4 + (1 << 31)) && older(6 + (1 << 31), 5));
    }

    /// A segment: its delay, its timestamp relative to the latest one, and its place relative to
    /// Last.ACK.sent.
    fn step() -> impl Strategy<Value = (u64, i64, i64)> {
        let day = 24 * 3600;
        let waits = vec![0, 1, 24 * day - 1, 24 * day, 24 * day + 1];
        (prop::sample::select(waits), near(vec![0]), -3..=3_i64)
    }

    /// Milliseconds of silence, up to 40 days of the 49 after which the clock wraps; and an echo
    /// relative to the latest one.
    fn silence() -> impl Strategy<Value = (i64, i64)> {
        let days = |days: i64| days * 24 * 3_600_000;
        let month = prop::sample::select(vec![days(24), days(25), days(40)]);
        let silence = prop_oneof![4 => 0..5_000_000_i64, 1 => month];
        silence.prop_flat_map(|silence| {
            let edges = vec![0, -i64::from(LATE), 5000, silence];
            (Just(silence), near(edges))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2048 }))]

        /// Valid echoes lie between a while before the latest one and the last timestamp sent,
        /// wherever the clock began and however long it was silent.
        #[test]
        fn echo_is_of_what_was_sent_lately(offset: u32, steps in prop::collection::vec(silence(), 1..20)) {
            let mut now = Instant::ORIGIN;
            let mut stamps = Timestamps::new(offset, now);
            let stamp = |place: i64| crate::wire::seq::raw(at(place + i64::from(offset)));
            let mut echoed = 0;
            for (millis, echo) in steps {
                now = now + Duration::from_millis(millis.unsigned_abs());
                stamps.pair(now);
                let sent = i64::try_from(now.since_origin().as_millis()).unwrap();
                let echo = echoed + echo;
                let lately = alike(echo).find(|echo| (echoed - i64::from(LATE)..=sent).contains(echo));
                prop_assert_eq!(stamps.is_echo(stamp(echo)), lately.is_some());
                if let Some(echo) = lately {
                    stamps.take_echo(stamp(echo));
                    echoed = echoed.max(echo);
                    prop_assert_eq!(stamps.echoed, stamp(echoed));
                }
                // The peer answers: timestamps sent before the silence are no longer echoed.
                stamps.take_echo(stamp(sent));
                echoed = sent;
                prop_assert_eq!(stamps.echoed, stamp(sent));
            }
        }

        /// RFC 7323 §5.2 to §5.5, in numbers that do not wrap.
        #[test]
        fn old_is_what_is_less_than_half_the_space_before_what_was_taken_lately(
            place in near(vec![0]),
            steps in prop::collection::vec(step(), 1..20),
        ) {
            let mut stamps = Timestamps::new(0, Instant::ORIGIN);
            let (mut now, mut recent) = (Instant::from_micros(5_000_000), None);
            for (seconds, later, from_ack) in steps {
                now = now + Duration::from_secs(seconds);
                let tsval = recent.map_or(0, |(value, _)| value) + later;
                let raw = crate::wire::seq::raw(at(tsval));
                let old = recent.is_some_and(|(value, taken): (i64, Instant)| {
                    let age = (value - tsval).rem_euclid(2 * HALF);
                    (1..HALF).contains(&age) && now - taken < Duration::from_hours(24 * 24)
                });
                prop_assert_eq!(stamps.is_old(raw, now), old);
                stamps.take(raw, at(place + from_ack), at(place), now);
                if !old && from_ack <= 0 {
                    recent = Some((tsval, now));
                }
                let echo = recent.map_or(0, |(value, _)| crate::wire::seq::raw(at(value)));
                prop_assert_eq!(stamps.pair(now).1, echo);
            }
        }
    }
}

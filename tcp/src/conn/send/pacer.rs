//! Pacing: spaces segments where congestion control sets a rate.
//!
//! Segments leave by a schedule, one after the other at the rate. At some Gb/s a timer for each
//! would cost more than the segment, so a waiting sender is woken for a batch. A sender that is
//! woken late catches up with the schedule, but sends at most a burst.

use std::time::Duration;

use crate::time::Instant;

/// Duration of a batch at the rate, less one segment: a few segments at 1 Gb/s, and a small part of
/// the round trip within a rack.
const BATCH: Duration = Duration::from_micros(32);
/// Maximum delay that the schedule makes up for. Only slow connections make up for much of it at
/// once.
const BEHIND: Duration = Duration::from_millis(1);
/// Bytes of a catch-up burst, as time at the rate: covers a timer's resolution and the wake-up of a
/// thread.
const BURST: Duration = Duration::from_micros(128);
/// Bounds of a burst in bytes: at most 45 full segments at an MTU of 1500, a small part of a peer's
/// ring.
const BURST_BYTES: (u64, u64) = (16 << 10, 64 << 10);

/// Schedule of a connection's segments.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    next: Option<Instant>,
    /// Duration of a batch, less one segment.
    batch: Duration,
}

/// Time for `bytes` at `rate` bytes per second.
fn time(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1))
}

/// Maximum delay that a schedule at this rate makes up for.
fn behind(rate: u64) -> Duration {
    let bytes = u128::from(rate) * BURST.as_nanos() / 1_000_000_000;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    BEHIND.min(time(bytes.clamp(BURST_BYTES.0, BURST_BYTES.1), rate))
}

impl Pacer {
    /// Records that a segment of `len` bytes was sent at `rate` bytes per second.
    pub(crate) fn sent(&mut self, len: usize, rate: Option<u64>, now: Instant) {
        let Some(rate) = rate else {
            self.next = None;
            return;
        };
        let behind = behind(rate);
        self.batch = BATCH.min(behind / 2); // the other half is for a late wake-up
        let from = self.next.map_or(now, |next| next.max(now - behind));
        self.next = Some(from + time(len as u64, rate));
    }

    /// True if a segment may be sent now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// When a batch may be sent, if no segment may be sent `now`.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        let next = self.next.filter(|next| *next > now)?;
        Some(next + self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Gb/s: a segment in 12 us.
    const GIGABIT: u64 = 125_000_000;
    const SEGMENT: usize = 1500;

    fn start() -> Instant {
        Instant::from_micros(1_000_000)
    }

    /// Sends as long as pacing allows, and returns the number of segments.
    fn burst(pacer: &mut Pacer, rate: u64, now: Instant) -> u64 {
        let mut sent = 0;
        while pacer.is_open(now) {
            pacer.sent(SEGMENT, Some(rate), now);
            sent += 1;
        }
        sent
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs minutes, and is arithmetic")]
    fn batches_keep_the_rate_and_are_small() {
        for rate in [GIGABIT / 10, GIGABIT, 10 * GIGABIT, 100 * GIGABIT] {
            let (mut pacer, mut now, mut sent, mut wakes) = (Pacer::default(), start(), 0, 0);
            let end = now + Duration::from_millis(100);
            let per_batch = 2 + rate * 32 / 1_000_000 / SEGMENT as u64;
            while now < end {
                let batch = burst(&mut pacer, rate, now);
                assert!((1..=per_batch).contains(&batch), "{batch} at {rate}");
                sent += batch * SEGMENT as u64;
                wakes += 1;
                now = pacer.wake(now).unwrap();
            }
            let most = (100_000 / 32).max(rate / 10 / (24 << 10));
            let wanted = rate / 10;
            assert!(sent.abs_diff(wanted) < wanted / 100, "{sent} of {wanted}");
            assert!(wakes <= most, "{wakes} at {rate}");
        }
    }

    #[test]
    fn who_comes_late_sends_a_bounded_burst() {
        for (rate, most) in [
            (GIGABIT / 1000, 1),
            (GIGABIT / 10, 9),
            (GIGABIT, 11),
            (10 * GIGABIT, 44),
            (100 * GIGABIT, 44),
        ] {
            let (mut pacer, now) = (Pacer::default(), start());
            pacer.sent(SEGMENT, Some(rate), now);
            let late = now + Duration::from_secs(1);
            let sent = burst(&mut pacer, rate, late);
            assert!((most..=most + 1).contains(&sent), "{sent} at {rate}");
        }
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::default();
        pacer.sent(SEGMENT, Some(1000), start());
        assert!(!pacer.is_open(start()));
        pacer.sent(SEGMENT, None, start());
        assert!(pacer.is_open(start()));
        assert_eq!(pacer.wake(start()), None);
    }
}

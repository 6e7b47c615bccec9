//! Delivery rate estimation (draft-cheng-iccrg-delivery-rate-estimation-02).

use std::time::Duration;

use crate::time::Instant;

/// Delivery rate over about one round trip (§2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateSample {
    /// Bytes delivered over `interval`.
    pub(crate) delivered: usize,
    /// The longer of two times: to send these bytes, and to have them acknowledged.
    pub(crate) interval: Duration,
    /// The application sent too little to use the path, which may be faster.
    pub(crate) app_limited: bool,
    /// Value of `delivered` when the newest acknowledged segment was sent.
    pub(crate) prior_delivered: u64,
}

impl RateSample {
    /// Bytes per second.
    pub(crate) fn per_second(&self) -> u64 {
        let nanos = self.interval.as_nanos().max(1);
        let rate = (self.delivered as u128).saturating_mul(1_000_000_000) / nanos;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// State of the estimator when a segment was last sent; kept with the segment (§3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentRate {
    sent: Instant,
    /// When the first segment of the flight was sent.
    first_sent: Instant,
    delivered: u64,
    delivered_at: Instant,
    app_limited: bool,
}

/// Delivery rate estimator of one connection. The caller counts delivered bytes and passes them as
/// `delivered`.
#[derive(Clone, Debug)]
pub(crate) struct RateSampler {
    delivered_at: Instant,
    first_sent: Instant,
    /// The application limits sending until `delivered` reaches this value.
    app_limited_until: Option<u64>,
    /// The newest segment that the current ACK acknowledges.
    newest: Option<SentRate>,
}

impl RateSampler {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            delivered_at: now,
            first_sent: now,
            app_limited_until: None,
            newest: None,
        }
    }

    /// Records the transmission of a segment, also of a repeated one. `in_flight`: bytes in flight
    /// before it (§3.2).
    pub(crate) fn on_sent(&mut self, now: Instant, in_flight: usize, delivered: u64) -> SentRate {
        if in_flight == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        SentRate {
            sent: now,
            first_sent: self.first_sent,
            delivered,
            delivered_at: self.delivered_at,
            app_limited: self.app_limited_until.is_some(),
        }
    }

    /// Records that a segment was acknowledged for the first time, cumulatively or selectively
    /// (§3.3). The caller calls [`sample`](Self::sample) after the last segment of the ACK.
    pub(crate) fn on_acked(&mut self, segment: &SentRate, now: Instant) {
        self.delivered_at = now;
        let order = |rate: &SentRate| (rate.delivered, rate.sent);
        if self
            .newest
            .is_none_or(|newest| order(segment) >= order(&newest))
        {
            self.newest = Some(*segment);
            self.first_sent = segment.sent;
        }
    }

    /// Rate sample of the current ACK, whose bytes `delivered` includes. Returns `None` if the ACK
    /// acknowledged nothing new, or if the interval is shorter than the minimum round trip. Such an
    /// interval means that an original was mistaken for its retransmission (§3.3).
    pub(crate) fn sample(
        &mut self,
        delivered: u64,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        if self
            .app_limited_until
            .is_some_and(|until| delivered > until)
        {
            self.app_limited_until = None;
        }
        let newest = self.newest.take()?;
        let sending = newest.sent - newest.first_sent;
        let acking = self.delivered_at - newest.delivered_at;
        let interval = sending.max(acking);
        if interval.is_zero() || min_rtt.is_some_and(|least| interval < least) {
            return None;
        }
        let bytes = delivered.saturating_sub(newest.delivered);
        Some(RateSample {
            delivered: usize::try_from(bytes).unwrap_or(usize::MAX),
            interval,
            app_limited: newest.app_limited,
            prior_delivered: newest.delivered,
        })
    }

    /// The application has no more data, the window has room, and no retransmission waits (§3.4).
    /// Samples are marked as limited until these bytes are delivered.
    pub(crate) fn set_app_limited(&mut self, in_flight: usize, delivered: u64) {
        self.app_limited_until = Some(delivered.saturating_add(in_flight as u64));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    #[test]
    fn steady_flight_shows_the_rate_of_the_path() {
        // a segment of 1000 bytes per millisecond, a round trip of 10 ms
        let mut rate = RateSampler::new(at(0));
        let (mut sent, mut last, mut delivered) = (Vec::new(), None, 0);
        for millis in 0..30_usize {
            if let Some(early) = millis.checked_sub(10) {
                delivered += 1000;
                rate.on_acked(&sent[early], at(millis as u64));
            }
            last = rate.sample(delivered, Some(Duration::from_millis(10)));
            let in_flight = if millis == 0 { 0 } else { 9000 };
            sent.push(rate.on_sent(at(millis as u64), in_flight, delivered));
        }
        let last = last.unwrap();
        assert_eq!(last.per_second(), 1_000_000);
        assert_eq!(last.interval, Duration::from_millis(10));
        assert_eq!(last.prior_delivered, 10_000);
        assert!(!last.app_limited);
    }

    #[test]
    fn acks_that_come_in_one_burst_are_not_taken_for_a_fast_path() {
        let mut rate = RateSampler::new(at(0));
        let first = rate.on_sent(at(0), 0, 0);
        let second = rate.on_sent(at(8), 1000, 0); // 8 ms later
        rate.on_acked(&first, at(20));
        rate.on_acked(&second, at(20));
        let sample = rate.sample(2000, None).unwrap();
        assert_eq!(
            (sample.delivered, sample.interval),
            (2000, Duration::from_millis(20))
        );
    }

    #[test]
    fn interval_below_the_least_round_trip_is_no_sample() {
        let mut rate = RateSampler::new(at(0));
        let segment = rate.on_sent(at(0), 0, 0);
        rate.on_acked(&segment, at(3));
        assert_eq!(rate.sample(1000, Some(Duration::from_millis(4))), None);
        assert_eq!(rate.sample(1000, None), None, "nothing new");
    }

    #[test]
    fn what_is_sent_for_want_of_data_is_marked_until_it_is_delivered() {
        let mut rate = RateSampler::new(at(0));
        let before = rate.on_sent(at(0), 0, 0);
        rate.set_app_limited(1000, 0);
        let during = rate.on_sent(at(1), 1000, 0);
        rate.on_acked(&before, at(10));
        assert!(!rate.sample(1000, None).unwrap().app_limited);
        rate.on_acked(&during, at(11));
        assert!(rate.sample(2000, None).unwrap().app_limited);
        let after = rate.on_sent(at(12), 0, 2000);
        rate.on_acked(&after, at(22));
        assert!(!rate.sample(3000, None).unwrap().app_limited);
    }

    proptest! {
        #[test]
        fn no_order_of_calls_panics(steps: Vec<(u32, usize, usize, u8)>) {
            let mut rate = RateSampler::new(at(0));
            let mut sent = vec![rate.on_sent(at(0), 0, 0)];
            let mut delivered = 0_u64;
            for (time, bytes, pick, kind) in steps {
                let now = Instant::from_micros(u64::from(time));
                match kind % 3 {
                    0 => sent.push(rate.on_sent(now, bytes, delivered)),
                    1 => {
                        delivered = delivered.saturating_add(bytes as u64);
                        rate.on_acked(&sent[pick % sent.len()], now);
                    }
                    _ => rate.set_app_limited(bytes, delivered),
                }
                if let Some(sample) = rate.sample(delivered, None) {
                    prop_assert!(!sample.interval.is_zero());
                    sample.per_second();
                }
            }
        }
    }
}

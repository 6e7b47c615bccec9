//! Path model of BBR: bandwidth, round trip, and whether the path is full (§4.1).

use std::time::Duration;

use crate::congestion::Acked;
use crate::delivery_rate::RateSample;
use crate::time::Instant;
use crate::windowed_max::WindowedMax;

/// Window of the maximum filter of delivery rates, in round trips (§4.1.1.3).
const RATE_ROUNDS: u64 = 10;
/// Window of the minimum filter of round trips (§4.1.2.3).
const RTT_WINDOW: Duration = Duration::from_secs(10);
/// The pipe is full after this many rounds in a row whose rate grew by less than a quarter
/// (§4.3.2.2).
const FULL_ROUNDS: u32 = 3;

/// Estimators of bottleneck bandwidth and round-trip propagation time.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Delivery rate in bytes per second, per round trip.
    rate: WindowedMax<u64>,
    least: Option<(Duration, Instant)>,
    rounds: u64,
    /// A round trip ends when a segment is acknowledged that was sent after this many bytes were
    /// delivered (§4.1.1.2).
    round_ends: u64,
    /// The latest ACK ended a round trip.
    round_start: bool,
    /// The rate that growth is measured against, and the number of rounds without growth.
    plateau: (u64, u32),
}

impl Path {
    pub(super) fn new() -> Self {
        Self {
            rate: WindowedMax::new(RATE_ROUNDS),
            least: None,
            rounds: 0,
            round_ends: 0,
            round_start: false,
            plateau: (0, 0),
        }
    }

    /// Updates the model by an ACK. Returns true if the minimum round trip has expired and was not
    /// measured again (§4.1.2.3).
    pub(super) fn on_ack(&mut self, acked: &Acked) -> bool {
        self.round_start = false;
        if let Some(sample) = &acked.rate {
            self.count_round(sample, acked.delivered);
            self.note_rate(sample);
        }
        self.note_rtt(acked)
    }

    fn count_round(&mut self, sample: &RateSample, delivered: u64) {
        if sample.prior_delivered >= self.round_ends {
            self.round_ends = delivered;
            self.rounds += 1;
            self.round_start = true;
        }
    }

    /// A sample limited by the application counts only if it raises the maximum (§4.1.1.4).
    fn note_rate(&mut self, sample: &RateSample) {
        let rate = sample.per_second();
        if !sample.app_limited || self.rate.best().is_some_and(|best| rate >= best) {
            self.rate.update(rate, self.rounds);
        }
        if self.round_start && !sample.app_limited {
            self.measure_growth();
        }
    }

    fn measure_growth(&mut self) {
        let now = self.rate.best().unwrap_or(0);
        let (before, rounds) = self.plateau;
        self.plateau = if now >= before.saturating_add(before / 4).max(1) {
            (now, 0)
        } else {
            (before, rounds.saturating_add(1))
        };
    }

    fn note_rtt(&mut self, acked: &Acked) -> bool {
        let Some(rtt) = acked.rtt else {
            return false;
        };
        let expired = self
            .least
            .is_some_and(|(_, seen)| acked.now - seen > RTT_WINDOW);
        if expired || self.least.is_none_or(|(least, _)| rtt <= least) {
            let device = self.least.is_none_or(|(least, _)| rtt <= least);
            self.least = Some((rtt, acked.now));
            return expired && !device;
        }
        false
    }

    /// Confirms the minimum round trip: too little was in flight to lengthen it.
    pub(super) fn confirm_rtt(&mut self, now: Instant) {
        if let Some((_, seen)) = &mut self.least {
            *seen = now;
        }
    }

    /// Bandwidth of the path in bytes per second.
    pub(super) fn rate(&self) -> Option<u64> {
        self.rate.best().filter(|rate| *rate > 0)
    }

    /// Round trip without a queue.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    /// Bandwidth-delay product in bytes, times `gain` thousandths.
    pub(super) fn product(&self, gain: u64) -> Option<usize> {
        let rate = self.rate()?;
        let rtt = self.rtt()?;
        let product = u128::from(rate).saturating_mul(rtt.as_nanos()) / 1_000_000_000;
        let bytes = product.saturating_mul(u128::from(gain)) / 1000;
        Some(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// True if the latest ACK ended a round trip.
    pub(super) fn round_start(&self) -> bool {
        self.round_start
    }

    /// Begins a round trip with the segments that are sent from now on.
    pub(super) fn begin_round(&mut self, delivered: u64) {
        self.round_ends = delivered;
    }

    pub(super) fn is_full(&self) -> bool {
        self.plateau.1 >= FULL_ROUNDS
    }
}

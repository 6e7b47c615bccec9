//! `HyStart++` (RFC 9406): leaves slow start when the round trip grows, before the queue overflows.

use std::time::Duration;

use super::Acked;

/// Bounds of the round trip's growth that counts as a queue (§4.3).
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// Divisor of the round trip that gives this growth (§4.3).
const MIN_RTT_DIVISOR: u32 = 8;
/// Samples that a round needs before it is judged (§4.3).
const N_RTT_SAMPLE: u32 = 8;
/// Factor by which conservative slow start is slower (§4.3).
const CSS_GROWTH_DIVISOR: usize = 4;
/// Rounds of conservative slow start before congestion avoidance (§4.3).
const CSS_ROUNDS: u32 = 5;

/// State of conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// Round trip at its start. A lower one later means that the growth was spurious.
    baseline: Duration,
    rounds: u32,
}

/// Judges slow start round by round. A round ends when the data in flight at its start is
/// delivered.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    round_end: u64,
    last_round: Option<Duration>,
    this_round: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
    ended: bool,
}

impl HyStart {
    /// True once slow start must end.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Growth of the window in bytes for an ACK of `bytes` in slow start.
    pub(super) fn growth(&self, bytes: usize) -> usize {
        match self.conservative {
            Some(_) => bytes / CSS_GROWTH_DIVISOR,
            None => bytes,
        }
    }

    /// Processes an ACK of slow start. Only the first slow start, whose end is unknown, is judged
    /// (§4.3).
    pub(super) fn on_ack(&mut self, acked: &Acked, first: bool) {
        self.ended &= first;
        if !first {
            self.conservative = None;
            return;
        }
        if acked.delivered >= self.round_end {
            self.end_round(acked);
        }
        let Some(rtt) = acked.rtt else { return };
        self.samples = self.samples.saturating_add(1);
        let least = self.this_round.map_or(rtt, |least| least.min(rtt));
        self.this_round = Some(least);
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match (self.conservative, self.last_round) {
            (Some(conservative), _) if least < conservative.baseline => self.conservative = None,
            (None, Some(before)) if least >= before.saturating_add(threshold(before)) => {
                self.conservative = Some(Conservative {
                    baseline: least,
                    rounds: 0,
                });
            }
            _ => {}
        }
    }

    fn end_round(&mut self, acked: &Acked) {
        self.round_end = acked.delivered.saturating_add(acked.in_flight as u64);
        self.last_round = self.this_round.take().or(self.last_round);
        self.samples = 0;
        if let Some(conservative) = &mut self.conservative {
            conservative.rounds += 1;
            self.ended |= conservative.rounds >= CSS_ROUNDS;
        }
    }
}

fn threshold(rtt: Duration) -> Duration {
    (rtt / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
}

#[cfg(test)]
mod tests {
    use super::super::testing::ack;
    use super::*;

    /// A round with these round trips in milliseconds, one byte each.
    fn round(hystart: &mut HyStart, rtts: &[u64]) {
        let start = hystart.round_end;
        for (i, rtt) in rtts.iter().enumerate() {
            let acked = Acked {
                rtt: Some(Duration::from_millis(*rtt)),
                delivered: start + i as u64,
                in_flight: rtts.len(),
                ..ack(0, 1)
            };
            hystart.on_ack(&acked, true);
        }
    }

    #[test]
    fn round_trip_that_grows_ends_slow_start_after_five_slow_rounds() {
        let mut hystart = HyStart::default();
        round(&mut hystart, &[80; 8]);
        round(&mut hystart, &[89; 8]);
        assert_eq!(
            hystart.growth(8),
            8,
            "9 ms are less than an eighth of 80 ms"
        );
        round(&mut hystart, &[101; 8]);
        assert_eq!(hystart.growth(8), 2);
        for _ in 0..4 {
            round(&mut hystart, &[101; 8]);
            assert!(!hystart.ended());
        }
        round(&mut hystart, &[101; 8]);
        assert!(hystart.ended());
    }

    #[test]
    fn growth_that_was_a_mistake_is_forgotten() {
        let mut hystart = HyStart::default();
        round(&mut hystart, &[80; 8]);
        round(&mut hystart, &[100; 8]);
        assert_eq!(hystart.growth(8), 2);
        round(&mut hystart, &[80; 8]);
        assert_eq!(hystart.growth(8), 8);
    }

    #[test]
    fn fewer_than_eight_samples_say_nothing() {
        let mut hystart = HyStart::default();
        round(&mut hystart, &[80; 8]);
        round(&mut hystart, &[900; 7]);
        assert_eq!(hystart.growth(8), 8);
    }
}

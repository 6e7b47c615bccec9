//! CUBIC (RFC 9438) with `HyStart++` (RFC 9406).

use std::time::Duration;

use super::Acked;
use super::cubic_epoch::Epoch;
use super::hystart::HyStart;
use super::window::{MAX_WINDOW, Window};
use super::window_based::Rule;
use crate::time::{Instant, nanos};

/// β of the multiplicative decrease, 0.7 (§4.6), in tenths.
const BETA: (usize, usize) = (7, 10);
/// Fast convergence, (1 + β) / 2 (§4.7).
const CONVERGE: (usize, usize) = (17, 20);
/// Upper bound of a round trip, in nanoseconds.
const MAX_ROUND_TRIP: u64 = 3_600_000_000_000;
/// State before a reduction, to restore if it was spurious (§4.9).
type Before = (usize, Option<Box<Epoch>>, usize);

/// CUBIC: the window is a cubic function of the time since the last loss.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    hystart: HyStart,
    /// Window at the last reduction, lowered by fast convergence. Zero if unknown, and after a
    /// timeout.
    w_max: usize,
    cwnd_prior: usize,
    // Boxed, as most connections never lose a segment.
    epoch: Option<Box<Epoch>>,
    before: Option<Box<Before>>,
    /// Smoothed round trip in nanoseconds; zero before the first sample.
    srtt: u64,
    last_ack: Option<Instant>,
}

/// The fraction `part` of `bytes`.
fn scale(bytes: usize, part: (usize, usize)) -> usize {
    bytes.min(MAX_WINDOW * 4) / part.1 * part.0 + bytes % part.1 * part.0 / part.1
}

impl Cubic {
    fn smooth(&mut self, rtt: Option<Duration>) {
        let Some(rtt) = rtt.map(|rtt| nanos(rtt).min(MAX_ROUND_TRIP)) else {
            return;
        };
        self.srtt = match self.srtt {
            0 => rtt,
            srtt => (srtt * 7 + rtt) / 8,
        };
    }

    /// Begins a stage of congestion avoidance (§4.2).
    fn begin(&self, window: &Window, now: Instant) -> Epoch {
        Epoch::new(now, window, self.w_max, self.cwnd_prior)
    }

    fn avoid(&mut self, window: &mut Window, bytes: usize, now: Instant) {
        let mut epoch = match self.epoch.take() {
            Some(epoch) => epoch,
            None => Box::new(self.begin(window, now)),
        };
        let cwnd = window.cwnd;
        let elapsed = now - epoch.start;
        let friendly = epoch.friendly(bytes, window);
        let grown = if epoch.curve(elapsed, window.mss) < friendly {
            friendly.saturating_sub(cwnd) // Reno-friendly region
        } else {
            let ahead = elapsed.saturating_add(Duration::from_nanos(self.srtt));
            let target = epoch.curve(ahead, window.mss);
            epoch.towards(target.clamp(cwnd, cwnd + cwnd / 2), bytes, cwnd)
        };
        window.grow(grown);
        self.epoch = Some(epoch);
    }

    /// Excludes from the curve the time in which the window was not used (§5.8).
    fn pause(&mut self, now: Instant) {
        if let (Some(epoch), Some(last)) = (&mut self.epoch, self.last_ack) {
            epoch.start = epoch.start + (now - last);
        }
    }

    fn state(&self) -> Before {
        (self.w_max, self.epoch.clone(), self.cwnd_prior)
    }

    /// Computes window and threshold after congestion (§4.6), with fast convergence (§4.7).
    fn decrease(&mut self, window: &Window, in_flight: usize) -> usize {
        let cwnd = window.cwnd;
        self.w_max = if cwnd < self.w_max {
            scale(cwnd, CONVERGE)
        } else {
            cwnd
        };
        self.cwnd_prior = cwnd;
        self.epoch = None;
        scale(in_flight, BETA)
    }
}

impl Rule for Cubic {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        self.smooth(acked.rtt);
        if !window.may_grow(acked) {
            if !acked.cwnd_limited {
                self.pause(acked.now);
            }
        } else if window.slow_start() {
            self.hystart.on_ack(acked, window.ssthresh == MAX_WINDOW);
            let left = window.grow_slow_start(self.hystart.growth(acked.bytes));
            if self.hystart.ended() {
                window.ssthresh = window.cwnd;
            } else if left > 0 {
                self.avoid(window, left, acked.now);
            }
        } else {
            self.avoid(window, acked.bytes, acked.now);
        }
        self.last_ack = Some(acked.now);
    }

    fn on_loss(&mut self, window: &mut Window, in_flight: usize) {
        self.before = Some(Box::new(self.state()));
        window.lose(self.decrease(window, in_flight));
    }

    fn on_timeout(&mut self, window: &mut Window, in_flight: usize) {
        let before = self.state();
        let recovering = window.recovering();
        if window.time_out(scale(in_flight, BETA)) && !recovering {
            self.before = Some(Box::new(before));
        }
        self.w_max = 0; // the next stage starts at its plateau (§4.8)
        self.cwnd_prior = 0;
        self.epoch = None;
    }

    fn on_ecn(&mut self, window: &mut Window, in_flight: usize) {
        self.before = None;
        window.reduce(self.decrease(window, in_flight));
    }

    fn on_undone(&mut self) {
        if let Some(before) = self.before.take() {
            (self.w_max, self.epoch, self.cwnd_prior) = *before;
        }
    }

    fn on_idle(&mut self, now: Instant, restarted: bool) {
        self.pause(now);
        self.last_ack = Some(now);
        if restarted {
            // slow start restores the window; a curve begins where slow start ends
            self.epoch = None;
        }
    }

    fn on_mss(&mut self) {
        self.epoch = None; // its K counted segments
    }
}

#[cfg(test)]
mod tests {
    use super::super::Congestion;
    use super::super::new_reno::NewReno;
    use super::super::testing::{ack, at};
    use super::super::window_based::WindowBased;
    use super::*;

    const MSS: usize = 1000;

    /// A loss with 100 segments in flight and in the window, recovered at 0 ms, with a round trip
    /// of 100 ms.
    fn after_loss() -> WindowBased<Cubic> {
        let mut cubic = WindowBased::<Cubic>::new(MSS);
        cubic.rule.srtt = 100_000_000;
        cubic.window.cwnd = 100 * MSS;
        cubic.on_loss(at(0), 100 * MSS);
        cubic.on_recovered(at(0));
        cubic
    }

    #[test]
    fn curve_is_that_of_the_rfc() {
        // W_max = 100 segments, cwnd = 70: K = cbrt(30 / 0.4) = 4.217163 s
        let mut cubic = after_loss();
        assert_eq!(cubic.window(), 70 * MSS);
        cubic.on_ack(&ack(0, 0));
        let epoch = cubic.rule.begin(&cubic.window, at(0));
        assert_eq!(epoch.k, 4_217_163);
        let segments = |millis| epoch.curve(Duration::from_millis(millis), MSS);
        assert_eq!(segments(0), 70_001, "70 but for K's last digit");
        assert_eq!(segments(1000), 86_681); // 100 - 0.4 * 3.217163^3, rounded up
        assert_eq!(segments(2000), 95_641); // 100 - 0.4 * 2.217163^3
        assert_eq!(segments(4217), 100_000);
        assert_eq!(segments(6000), 102_266); // 100 + 0.4 * 1.782837^3
        assert_eq!(segments(10_000), 177_354); // 100 + 0.4 * 5.782837^3
    }

    #[test]
    fn window_follows_the_curve_one_round_trip_ahead() {
        let mut cubic = after_loss();
        for millis in (0..30).map(|round| round * 100) {
            cubic.on_ack(&ack(millis, cubic.window()));
        }
        let epoch = cubic.rule.epoch.clone().unwrap();
        // the last ACK was at 2.9 s: the curve at 3 s; Reno would have 70 + 9/17 * 30 = 85.9
        assert_eq!(cubic.window(), epoch.curve(Duration::from_secs(3), MSS));
        assert_eq!(cubic.window(), 99_279); // 100 - 0.4 * 1.217163^3
    }

    #[test]
    fn with_short_round_trips_the_window_is_renos() {
        let mut cubic = after_loss();
        cubic.rule.srtt = 1_000_000;
        for millis in 0..50 {
            cubic.on_ack(&ack(millis, cubic.window()));
        }
        // 50 windows at 9/17 of a segment each
        let expected = 70 * MSS + 50 * 9 * MSS / 17;
        assert!(
            cubic.window().abs_diff(expected) < MSS,
            "{}",
            cubic.window()
        );
    }

    #[test]
    fn past_the_window_before_the_loss_reno_adds_a_whole_segment() {
        let mut cubic = after_loss();
        cubic.rule.srtt = 1_000_000;
        let mut at_prior = None;
        for round in 0..80 {
            cubic.on_ack(&ack(round, cubic.window()));
            at_prior =
                at_prior.or((cubic.window() >= 100 * MSS).then_some((round, cubic.window())));
        }
        let (round, window) = at_prior.unwrap();
        assert_eq!(round, 56, "30 segments at 9/17");
        let grown = cubic.window() - window;
        assert!(grown.abs_diff((79 - 56) * MSS) < MSS, "{grown}");
    }

    #[test]
    fn second_loss_below_the_plateau_lowers_it() {
        let mut cubic = after_loss();
        cubic.on_loss(at(1), 70 * MSS);
        assert_eq!(cubic.rule.w_max, 59_500, "70 * (1 + 0.7) / 2");
        assert_eq!(cubic.window(), 49 * MSS);
    }

    #[test]
    fn after_a_timeout_the_curve_starts_at_its_plateau() {
        let mut cubic = after_loss();
        cubic.on_timeout(at(0), 100 * MSS);
        assert_eq!(cubic.window(), MSS);
        cubic.on_ack(&ack(100, 69 * MSS));
        assert_eq!(cubic.window(), 70 * MSS);
        cubic.on_ack(&ack(200, MSS));
        let epoch = cubic.rule.epoch.unwrap();
        assert_eq!((epoch.k, epoch.w_max), (0, 70 * MSS));
    }

    #[test]
    fn undone_reduction_restores_the_curve() {
        let mut cubic = after_loss();
        cubic.on_ack(&ack(1000, 70 * MSS));
        let (window, k) = (cubic.window(), cubic.rule.epoch.as_ref().unwrap().k);
        cubic.on_loss(at(1100), window);
        cubic.on_timeout(at(1300), window);
        cubic.on_undo(at(1400));
        assert_eq!(cubic.window(), window);
        assert_eq!(cubic.rule.epoch.as_ref().unwrap().k, k);
        assert_eq!(cubic.rule.w_max, 100 * MSS);
    }

    #[test]
    fn time_without_use_of_the_window_does_not_move_the_curve() {
        let mut cubic = after_loss();
        cubic.on_ack(&ack(0, MSS));
        let idle = Acked {
            cwnd_limited: false,
            ..ack(9000, MSS)
        };
        cubic.on_ack(&idle);
        assert_eq!(cubic.rule.epoch.as_ref().unwrap().start, at(9000));
    }
    #[test]
    fn reduction_for_a_mark_stays_when_a_loss_is_undone() {
        let mut cubic = after_loss();
        cubic.on_ecn(at(1), 70 * MSS);
        let plateau = cubic.rule.w_max;
        cubic.on_undo(at(2));
        assert_eq!((cubic.window(), cubic.rule.w_max), (49 * MSS, plateau));
    }

    /// One segment in 20,000 is lost, at even intervals, and round trips take 1 ms. Reno's mean
    /// window is then sqrt(3/2 * 20,000) = 173.2 segments. CUBIC's is the same, as its increase is
    /// chosen for that (RFC 9438 §4.3).
    #[test]
    fn over_many_losses_the_mean_window_is_renos() {
        let mean = |control: &mut dyn Congestion| {
            let (mut sum, mut until_loss) = (0, 20_000_usize);
            control.on_loss(at(0), 250 * MSS); // no slow start
            control.on_recovered(at(0));
            for round in 0..6_000_u64 {
                let window = control.window() / MSS;
                for _ in 0..window {
                    control.on_ack(&Acked {
                        rtt: Some(Duration::from_millis(1)),
                        ..ack(round, MSS)
                    });
                }
                if let Some(left) = until_loss.checked_sub(window) {
                    until_loss = left;
                } else {
                    until_loss += 20_000 - window;
                    control.on_loss(at(round), control.window());
                    control.on_recovered(at(round));
                }
                sum += window;
            }
            sum / 6_000
        };
        let reno = mean(&mut WindowBased::<NewReno>::new(MSS));
        let cubic = mean(&mut WindowBased::<Cubic>::new(MSS));
        assert!(reno.abs_diff(173) < 6, "{reno}");
        assert!(cubic.abs_diff(173) < 6, "{cubic}");
    }
}

//! BBR on a path with a fixed rate and round trip.

use super::super::testing::at;
use super::*;
use crate::delivery_rate::RateSample;

const MSS: usize = 1000;
const RTT: Duration = Duration::from_millis(10);
/// Bytes per second: ten segments per round trip.
const RATE: u64 = 1_000_000;
const PRODUCT: usize = 10 * MSS;

/// BBR on a path of [`RATE`] and [`RTT`], with ACKs of one round trip each.
struct Flow {
    bbr: Bbr,
    now: Instant,
    delivered: u64,
}

impl Flow {
    fn new() -> Self {
        Self {
            bbr: Bbr::new(MSS),
            now: Instant::ORIGIN,
            delivered: 0,
        }
    }

    /// One round trip, in which the path delivers what was in flight, at this rate.
    fn round_at(&mut self, rate: u64, rtt: Duration, in_flight: usize, app_limited: bool) {
        self.now = self.now + rtt;
        let bytes = usize::try_from(u128::from(rate) * rtt.as_nanos() / 1_000_000_000).unwrap();
        let prior_delivered = self.delivered;
        self.delivered += bytes as u64;
        self.bbr.on_ack(&Acked {
            now: self.now,
            bytes,
            in_flight,
            rtt: Some(rtt),
            delivered: self.delivered,
            rate: Some(RateSample {
                delivered: bytes,
                interval: rtt,
                app_limited,
                prior_delivered,
            }),
            ece_bytes: 0,
            cwnd_limited: true,
            in_recovery: false,
        });
    }

    fn round(&mut self, in_flight: usize) {
        self.round_at(RATE, RTT, in_flight, false);
    }

    /// A flow in `ProbeBw`, with one phase per round trip.
    fn steady() -> Self {
        let mut flow = Self::new();
        for _ in 0..6 {
            flow.round(PRODUCT);
        }
        assert!(matches!(flow.bbr.mode, Mode::ProbeBw { .. }));
        flow
    }

    fn phase(&self) -> Option<usize> {
        match self.bbr.mode {
            Mode::ProbeBw { phase, .. } => Some(phase),
            _ => None,
        }
    }

    /// Advances to the beginning of a phase.
    fn until_phase(&mut self, phase: usize) {
        while self.phase() != Some(phase) {
            self.round_at(RATE, RTT + Duration::from_micros(1), 2 * PRODUCT, false);
        }
    }
}

#[test]
fn start_up_doubles_the_rate_until_three_rounds_do_not_raise_it() {
    let mut flow = Flow::new();
    assert_eq!(flow.bbr.window(), 10 * MSS);
    assert_eq!(
        flow.bbr.pacing_rate(),
        Some(28_850_000),
        "the first window in a millisecond"
    );
    for rate in [RATE / 4, RATE / 2, RATE] {
        flow.round_at(rate, RTT, 4 * PRODUCT, false);
        assert_eq!(flow.bbr.pacing_rate(), Some(rate * 2885 / 1000));
    }
    for _ in 0..2 {
        flow.round_at(RATE, RTT, 4 * PRODUCT, false);
        assert!(flow.bbr.slow_start());
    }
    flow.round_at(RATE, RTT, 4 * PRODUCT, false);
    assert_eq!(flow.bbr.mode, Mode::Drain);
    assert_eq!(flow.bbr.pacing_rate(), Some(347_000));
    assert!(!flow.bbr.slow_start());
}

#[test]
fn queue_of_start_up_is_drained_before_probing_begins() {
    let mut flow = Flow::new();
    for _ in 0..6 {
        flow.round(4 * PRODUCT);
    }
    assert_eq!(flow.bbr.mode, Mode::Drain);
    flow.round(PRODUCT + 3 * MSS + 1);
    assert_eq!(
        flow.bbr.mode,
        Mode::Drain,
        "more than the path and three bursts hold"
    );
    flow.round(PRODUCT + 3 * MSS);
    assert!(flow.phase().is_some());
}

#[test]
fn slow_application_does_not_end_start_up() {
    let mut flow = Flow::new();
    for _ in 0..20 {
        flow.round_at(RATE, RTT, MSS, true);
    }
    assert!(flow.bbr.slow_start());
    assert_eq!(flow.bbr.path.rate(), None, "it says nothing of the path");
    flow.round(MSS);
    flow.round_at(2 * RATE, RTT, MSS, true);
    assert_eq!(flow.bbr.path.rate(), Some(2 * RATE), "unless it shows more");
}

#[test]
fn steady_state_keeps_twice_the_product_in_flight_and_probes_in_turn() {
    let mut flow = Flow::steady();
    flow.until_phase(0);
    assert_eq!(flow.bbr.pacing_rate(), Some(1_250_000));
    assert_eq!(flow.bbr.window(), 2 * PRODUCT + 3 * MSS);
    let mut seen = Vec::new();
    for _ in 0..8 {
        seen.push(flow.bbr.pacing_rate().unwrap());
        flow.round_at(RATE, RTT + Duration::from_micros(1), 2 * PRODUCT, false);
    }
    let unity = [1_000_000; 6];
    assert_eq!(seen[..2], [1_250_000, 750_000]);
    assert_eq!(seen[2..], unity);
}

#[test]
fn probing_up_lasts_until_the_path_is_filled_or_something_is_lost() {
    let late = RTT + Duration::from_micros(1);
    let mut flow = Flow::steady();
    flow.until_phase(0);
    for _ in 0..3 {
        flow.round_at(RATE, late, 0, false);
        assert_eq!(flow.phase(), Some(0), "not yet a quarter more in flight");
    }
    flow.bbr.on_loss(flow.now, PRODUCT);
    flow.round_at(RATE, late, 0, false);
    assert_eq!(flow.phase(), Some(1));
    flow.round(0);
    assert_eq!(flow.phase(), Some(2), "draining ends early");
}

#[test]
fn higher_rate_is_found_and_a_lower_one_believed_after_ten_rounds() {
    let mut flow = Flow::steady();
    flow.round_at(2 * RATE, RTT, PRODUCT, false);
    assert_eq!(flow.bbr.path.rate(), Some(2 * RATE));
    for _ in 0..10 {
        flow.round(PRODUCT);
        assert_eq!(flow.bbr.path.rate(), Some(2 * RATE));
    }
    flow.round(PRODUCT);
    assert_eq!(flow.bbr.path.rate(), Some(RATE));
}

#[test]
fn round_trip_not_seen_for_ten_seconds_is_measured_with_four_segments_in_flight() {
    let longer = RTT * 2;
    let mut flow = Flow::steady();
    let window = flow.bbr.window();
    while !matches!(flow.bbr.mode, Mode::ProbeRtt { .. }) {
        assert!(flow.now < at(11_000));
        flow.round_at(RATE, longer, PRODUCT, false);
    }
    assert!(flow.now > at(10_000));
    assert_eq!(flow.bbr.window(), 4 * MSS);
    flow.round_at(RATE, longer, 4 * MSS, false);
    let began = flow.now;
    while matches!(flow.bbr.mode, Mode::ProbeRtt { .. }) {
        assert_eq!(flow.bbr.window(), 4 * MSS);
        flow.round_at(RATE, longer, 4 * MSS, false);
    }
    assert!(flow.now - began >= Duration::from_millis(200));
    assert_eq!(flow.bbr.path.rtt(), Some(longer));
    assert!(flow.bbr.window() >= window);
}

#[test]
fn repair_conserves_for_one_round_trip_and_then_gives_the_window_back() {
    let mut flow = Flow::steady();
    flow.round(2 * PRODUCT);
    let window = flow.bbr.window();
    flow.bbr.on_loss(flow.now, 12 * MSS);
    assert_eq!(flow.bbr.window(), 12 * MSS);
    flow.bbr.on_recovered(flow.now);
    assert_eq!(flow.bbr.window(), window);
    assert_eq!(
        flow.bbr.path.rate(),
        Some(RATE),
        "a loss says nothing of the path"
    );
}

#[test]
fn timeout_leaves_one_segment_and_forgets_nothing() {
    let mut flow = Flow::steady();
    let window = flow.bbr.window();
    flow.bbr.on_timeout(flow.now, window);
    assert_eq!(flow.bbr.window(), MSS);
    flow.round(0);
    assert!(
        flow.bbr.window() >= PRODUCT,
        "what is acknowledged may be sent"
    );
    flow.bbr.on_timeout(flow.now, MSS);
    flow.bbr.on_undo(flow.now);
    assert!(flow.bbr.window() >= window);
}

#[test]
fn pause_does_not_count_as_a_long_round_trip() {
    let mut flow = Flow::steady();
    flow.now = flow.now + Duration::from_secs(30);
    flow.bbr.on_idle(flow.now, Duration::from_secs(30), RTT);
    let rate = flow.bbr.path.rate();
    flow.round_at(RATE, RTT * 2, PRODUCT, false);
    assert!(flow.phase().is_some(), "{:?}", flow.bbr.mode);
    assert_eq!(flow.bbr.path.rate(), rate);
}

//! BBR: congestion control by the delivery rate (draft-cardwell-iccrg-bbr-congestion-control-00;
//! bare section numbers are the draft's).
//!
//! BBR sends at the rate that the path was measured to deliver, and keeps about twice the path's
//! bandwidth-delay product in flight. Random loss does not slow it.
//!
//! Gains are in thousandths.

mod path;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::window::{MAX_WINDOW, clamp_mss, initial_window};
use super::{Acked, Congestion, Marks};
use crate::time::Instant;
use path::Path;

/// 2/ln 2: doubles the rate in each round trip (§4.3.2.1).
const HIGH_GAIN: u64 = 2885;
/// Inverse of [`HIGH_GAIN`]: drains within a round trip the queue that `Startup` has built
/// (§4.3.3).
const DRAIN_GAIN: u64 = 347;
const UNITY: u64 = 1000;
/// Room for ACKs that are delayed or aggregated (§4.2.3.2).
const WINDOW_GAIN: u64 = 2000;
/// Pacing gains of the phases of `ProbeBw`, each of about a round trip (§4.3.4.1).
const CYCLE: [u64; 8] = [1250, 750, UNITY, UNITY, UNITY, UNITY, UNITY, UNITY];
/// Smallest window in segments that keeps ACKs coming (§4.2.3.3).
const MIN_SEGMENTS: usize = 4;
/// Minimum duration of `ProbeRtt` (§4.3.5).
const PROBE_RTT: Duration = Duration::from_millis(200);
/// Round trip assumed before the first measurement (§4.2.1).
const FIRST_RTT: Duration = Duration::from_millis(1);
/// Maximum number of bytes sent at once, however fast the path (§4.2.2).
const MAX_QUANTUM: u64 = 64 << 10;

/// State of the BBR machine (§3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Searches for the bandwidth of the path.
    Startup,
    /// Drains the queue that `Startup` has built.
    Drain,
    /// Probes for more bandwidth.
    ProbeBw { phase: usize, since: Instant },
    /// Measures the round trip without a queue. `until` is known once the bytes in flight are few
    /// enough.
    ProbeRtt { until: Option<Instant> },
}

/// Loss recovery, and how it limits the window (§4.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    No,
    /// The first round trip of a recovery: packet conservation.
    Conserving {
        until: u64,
    },
    /// Later round trips: losses are still being repaired, and the path is known to deliver.
    Growing,
}

#[derive(Clone, Debug)]
pub(super) struct Bbr {
    mss: usize,
    cwnd: usize,
    /// The window before a recovery or `ProbeRtt`.
    saved: usize,
    path: Path,
    mode: Mode,
    repair: Repair,
    /// A segment was lost since the phase began.
    lost: bool,
    /// The connection was idle.
    restarted: bool,
    delivered: u64,
}

impl Bbr {
    pub(super) fn new(mss: usize) -> Self {
        let mss = clamp_mss(mss);
        Self {
            mss,
            cwnd: initial_window(mss),
            saved: 0,
            path: Path::new(),
            mode: Mode::Startup,
            repair: Repair::No,
            lost: false,
            restarted: false,
            delivered: 0,
        }
    }

    fn pacing_gain(&self) -> u64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => UNITY,
        }
    }

    fn window_gain(&self) -> u64 {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw { .. } => WINDOW_GAIN,
            Mode::ProbeRtt { .. } => UNITY,
        }
    }

    fn min_window(&self) -> usize {
        MIN_SEGMENTS * self.mss
    }

    /// Maximum number of bytes sent at once: what the path carries in a millisecond (§4.2.2).
    fn quantum(&self) -> usize {
        let millisecond = self.path.rate().unwrap_or(0) / 1000;
        usize::try_from(millisecond.min(MAX_QUANTUM)).map_or(self.mss, |bytes| bytes.max(self.mss))
    }

    /// Window in bytes for a gain (§4.2.3.2).
    fn target(&self, gain: u64) -> usize {
        let product = self.path.product(gain);
        let bytes = product.map(|product| product.saturating_add(3 * self.quantum()));
        bytes.unwrap_or(initial_window(self.mss)).min(MAX_WINDOW)
    }

    fn enter_probe_bw(&mut self, now: Instant) {
        // Flows that begin together must not probe together. Any phase will do except the one that
        // drains (§4.3.4.2).
        let chance = usize::try_from(now.since_origin().as_micros() % 7).unwrap_or(0);
        let phase = if chance == 1 { 7 } else { chance };
        self.mode = Mode::ProbeBw { phase, since: now };
        self.lost = false;
    }

    fn advance_mode(&mut self, acked: &Acked) {
        if self.mode == Mode::Startup && self.path.is_full() {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && acked.in_flight <= self.target(UNITY) {
            self.enter_probe_bw(acked.now);
        }
        if let Mode::ProbeBw { phase, since } = self.mode
            && self.phase_is_over(phase, acked.now - since, acked)
        {
            let phase = (phase + 1) % CYCLE.len();
            let since = acked.now;
            self.mode = Mode::ProbeBw { phase, since };
            self.lost = false;
        }
    }

    /// §4.3.4.3: probing ends once the path is full or a segment is lost, draining once the queue
    /// is empty.
    fn phase_is_over(&self, phase: usize, age: Duration, acked: &Acked) -> bool {
        let passed = self.path.rtt().is_some_and(|rtt| age > rtt);
        let before = acked.in_flight.saturating_add(acked.bytes);
        match CYCLE[phase] {
            UNITY => passed,
            gain if gain > UNITY => passed && (self.lost || before >= self.target(gain)),
            _ => passed || before <= self.target(UNITY),
        }
    }

    /// §4.3.5.
    fn probe_rtt(&mut self, acked: &Acked, expired: bool) {
        let idle = std::mem::take(&mut self.restarted);
        if expired && !idle && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.save_window();
            self.mode = Mode::ProbeRtt { until: None };
        }
        let Mode::ProbeRtt { until } = self.mode else {
            return;
        };
        match until {
            None if acked.in_flight <= self.min_window() => {
                let until = Some(acked.now + PROBE_RTT);
                self.mode = Mode::ProbeRtt { until };
                self.path.begin_round(acked.delivered);
            }
            Some(until) if until <= acked.now && self.path.round_start() => {
                self.path.confirm_rtt(acked.now);
                self.cwnd = self.cwnd.max(self.saved);
                self.leave_probe_rtt(acked.now);
            }
            _ => {}
        }
    }

    fn leave_probe_rtt(&mut self, now: Instant) {
        if self.path.is_full() {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn save_window(&mut self) {
        let within = self.repair != Repair::No || matches!(self.mode, Mode::ProbeRtt { .. });
        self.saved = if within {
            self.saved.max(self.cwnd)
        } else {
            self.cwnd
        };
    }

    /// §4.2.3.
    fn set_window(&mut self, acked: &Acked) {
        if let Repair::Conserving { until } = self.repair
            && self.path.rounds() >= until
        {
            self.repair = Repair::Growing;
        }
        let target = self.target(self.window_gain());
        if matches!(self.repair, Repair::Conserving { .. }) {
            let conserved = acked.in_flight.saturating_add(acked.bytes);
            self.cwnd = self.cwnd.max(conserved);
        } else if self.path.is_full() {
            self.cwnd = self.cwnd.saturating_add(acked.bytes).min(target);
        } else if self.cwnd < target || acked.delivered < initial_window(self.mss) as u64 {
            self.cwnd = self.cwnd.saturating_add(acked.bytes);
        }
        self.cwnd = self.cwnd.max(self.min_window());
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.cwnd = self.cwnd.min(self.min_window());
        }
        self.bound_window();
    }

    fn bound_window(&mut self) {
        self.cwnd = self.cwnd.clamp(self.mss, MAX_WINDOW);
    }
}

impl Congestion for Bbr {
    fn on_ack(&mut self, acked: &Acked) {
        self.delivered = acked.delivered;
        let expired = self.path.on_ack(acked);
        self.advance_mode(acked);
        self.probe_rtt(acked, expired);
        self.set_window(acked);
    }

    fn on_loss(&mut self, _now: Instant, in_flight: usize) {
        self.save_window();
        self.lost = true;
        self.repair = Repair::Conserving {
            until: self.path.rounds() + 1,
        };
        self.path.begin_round(self.delivered);
        self.cwnd = self.cwnd.min(in_flight);
        self.bound_window();
    }

    fn on_recovered(&mut self, _now: Instant) {
        if self.repair != Repair::No {
            self.repair = Repair::No;
            self.cwnd = self.cwnd.max(self.saved);
            self.bound_window();
        }
    }

    fn on_timeout(&mut self, _now: Instant, _in_flight: usize) {
        self.save_window();
        self.lost = true;
        self.repair = Repair::Growing;
        self.cwnd = self.mss;
    }

    fn on_undo(&mut self, now: Instant) {
        self.on_recovered(now);
    }

    /// BBR follows the delivery rate, which marks do not lower.
    fn on_ecn(&mut self, _now: Instant, _in_flight: usize) {}

    /// The model of the path still holds: sending resumes at its rate (§4.3.4.4).
    fn on_idle(&mut self, now: Instant, _idle: Duration, _rto: Duration) {
        self.restarted = true;
        if let Mode::ProbeBw { since, .. } = &mut self.mode {
            *since = now;
        }
    }

    fn on_mss(&mut self, mss: usize) {
        self.mss = clamp_mss(mss);
        self.bound_window();
    }

    fn window(&self) -> usize {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<u64> {
        let rate = self.path.rate().unwrap_or_else(|| {
            let rtt = self
                .path
                .rtt()
                .unwrap_or(FIRST_RTT)
                .max(Duration::from_micros(1));
            let bytes = initial_window(self.mss) as u128;
            u64::try_from(bytes * 1_000_000_000 / rtt.as_nanos()).unwrap_or(u64::MAX)
        });
        let gained = u128::from(rate) * u128::from(self.pacing_gain()) / 1000;
        Some(u64::try_from(gained).unwrap_or(u64::MAX).max(1))
    }

    fn marks(&self) -> Marks {
        Marks::Ignored
    }

    fn slow_start(&self) -> bool {
        self.mode == Mode::Startup
    }
}

//! DCTCP (RFC 8257): reduces the window in proportion to the marked bytes.

use super::new_reno::NewReno;
use super::window::Window;
use super::window_based::Rule;
use super::{Acked, Marks};

/// Unit of α (§3.3).
const ONE: usize = 1 << 20;
/// Weight of the newest estimate: 1/16 (§4.2).
const G_SHIFT: u32 = 4;

/// Reno, with a reduction by α/2 once per window that has marks.
#[derive(Clone, Debug)]
pub(super) struct Dctcp {
    reno: NewReno,
    /// α: the smoothed fraction of bytes that met congestion.
    alpha: usize,
    acked: u128,
    marked: u128,
    /// Value of `delivered` at which the observation window ends.
    window_end: u64,
    /// Value of `delivered` until which the window is not reduced again (RFC 3168 §6.1.2).
    reduced_until: Option<u64>,
}

impl Default for Dctcp {
    fn default() -> Self {
        Self {
            reno: NewReno::default(),
            alpha: ONE, // §4.2: until the first estimate, react as strongly as Reno
            acked: 0,
            marked: 0,
            window_end: 0,
            reduced_until: None,
        }
    }
}

impl Dctcp {
    /// §3.3, steps 2 to 8.
    fn observe(&mut self, acked: &Acked) {
        self.acked += acked.bytes as u128;
        self.marked += acked.ece_bytes.min(acked.bytes) as u128;
        if acked.delivered < self.window_end || self.acked == 0 {
            return;
        }
        let part = (self.marked << (20 - G_SHIFT)) / self.acked;
        let part = usize::try_from(part).unwrap_or(ONE >> G_SHIFT);
        let decay = (self.alpha >> G_SHIFT).max(1); // at least 1, so that it reaches 0
        self.alpha = (self.alpha.saturating_sub(decay) + part).min(ONE);
        self.acked = 0;
        self.marked = 0;
        self.window_end = acked.delivered.saturating_add(acked.in_flight as u64);
    }

    /// §3.3, step 9. The first marks end slow start.
    fn reduce(&mut self, window: &mut Window, acked: &Acked) {
        let cwnd = window.cwnd;
        let less = (cwnd as u128) * (self.alpha as u128) / (2 * ONE as u128);
        let target = cwnd - usize::try_from(less).unwrap_or(cwnd);
        self.reno.reduce(window, target);
        self.reduced_until = Some(acked.delivered.saturating_add(acked.in_flight as u64));
    }
}

impl Rule for Dctcp {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        self.observe(acked);
        if self
            .reduced_until
            .is_some_and(|until| acked.delivered > until)
        {
            self.reduced_until = None;
        }
        if self.reduced_until.is_some() {
            return;
        }
        if acked.ece_bytes > 0 && !window.repairing() {
            self.reduce(window, acked);
        } else {
            self.reno.on_ack(window, acked);
        }
    }

    /// A loss is no mark: reacts as Reno does (§3.5).
    fn on_loss(&mut self, window: &mut Window, in_flight: usize) {
        self.reno.on_loss(window, in_flight);
    }

    fn on_timeout(&mut self, window: &mut Window, in_flight: usize) {
        self.reno.on_timeout(window, in_flight);
        self.reduced_until = None;
    }

    /// [`Acked::ece_bytes`] has counted the marks.
    fn on_ecn(&mut self, _window: &mut Window, _in_flight: usize) {}

    fn marks(&self) -> Marks {
        Marks::Counted
    }
}

#[cfg(test)]
mod tests {
    use super::super::Congestion;
    use super::super::testing::{ack, at};
    use super::super::window_based::WindowBased;
    use super::*;

    const MSS: usize = 1000;

    /// One window of ten segments in ten ACKs, `marked` of them with ECE.
    fn window(dctcp: &mut WindowBased<Dctcp>, delivered: &mut u64, marked: usize) {
        for i in 0..10 {
            *delivered += MSS as u64;
            dctcp.on_ack(&Acked {
                delivered: *delivered,
                in_flight: 10 * MSS,
                ece_bytes: if i < marked { MSS } else { 0 },
                ..ack(0, MSS)
            });
        }
    }

    #[test]
    fn alpha_is_smoothed_by_a_sixteenth_per_window() {
        let (mut dctcp, mut delivered) = (WindowBased::<Dctcp>::new(MSS), 0);
        window(&mut dctcp, &mut delivered, 0); // the first ACK ends a window at once: 15/16
        assert_eq!(dctcp.rule.alpha, ONE / 16 * 15);
        window(&mut dctcp, &mut delivered, 0); // the first window's end
        assert_eq!(dctcp.rule.alpha, ONE / 256 * 225);
        dctcp.rule.alpha = ONE / 2;
        dctcp.rule.acked = 0;
        dctcp.rule.marked = 0;
        dctcp.rule.window_end = delivered + 10 * MSS as u64;
        window(&mut dctcp, &mut delivered, 4);
        // 1/2 * 15/16 + 4/10 * 1/16 = 0.49375
        assert_eq!(dctcp.rule.alpha, ONE / 2 - ONE / 32 + ONE / 40);
    }

    #[test]
    fn alpha_comes_down_to_nothing() {
        let (mut dctcp, mut delivered) = (WindowBased::<Dctcp>::new(MSS), 0);
        for _ in 0..250 {
            window(&mut dctcp, &mut delivered, 0);
        }
        assert_eq!(dctcp.rule.alpha, 0);
    }

    #[test]
    fn marks_reduce_once_per_window_by_half_of_alpha() {
        let mut dctcp = WindowBased::<Dctcp>::new(MSS);
        dctcp.rule.alpha = ONE / 4;
        dctcp.rule.window_end = u64::MAX;
        dctcp.window.cwnd = 80 * MSS;
        let marked = |delivered| Acked {
            delivered,
            in_flight: 50 * MSS,
            ece_bytes: MSS,
            ..ack(0, MSS)
        };
        dctcp.on_ack(&marked(1));
        assert_eq!(dctcp.window(), 70 * MSS, "80 * (1 - 1/8)");
        assert!(!dctcp.slow_start());
        dctcp.on_ack(&marked(50 * MSS as u64 + 1));
        assert_eq!(dctcp.window(), 70 * MSS);
        dctcp.on_ack(&marked(50 * MSS as u64 + 2));
        assert_eq!(dctcp.window(), 61_250);
    }

    #[test]
    fn loss_halves_whatever_alpha_is() {
        let mut dctcp = WindowBased::<Dctcp>::new(MSS);
        dctcp.rule.alpha = 0;
        dctcp.on_loss(at(0), 40 * MSS);
        assert_eq!(dctcp.window(), 20 * MSS);
    }
}

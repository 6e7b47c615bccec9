//! `NewReno` (RFC 5681, RFC 6582).

use super::Acked;
use super::window::{Linear, Window};
use super::window_based::Rule;

/// Slow start, one segment per round trip after it, and half of the bytes in flight after a loss.
#[derive(Clone, Debug, Default)]
pub(super) struct NewReno {
    linear: Linear,
}

impl NewReno {
    /// Reduces the window to `target` because of a mark: no segment was lost.
    pub(super) fn reduce(&mut self, window: &mut Window, target: usize) {
        window.reduce(target);
        self.linear.reset();
    }
}

impl Rule for NewReno {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        if window.may_grow(acked) {
            self.linear.grow_as_reno(window, acked.bytes);
        }
    }

    fn on_loss(&mut self, window: &mut Window, in_flight: usize) {
        window.lose(in_flight / 2);
        self.linear.reset();
    }

    fn on_timeout(&mut self, window: &mut Window, in_flight: usize) {
        window.time_out(in_flight / 2);
        self.linear.reset();
    }

    fn on_ecn(&mut self, window: &mut Window, in_flight: usize) {
        self.reduce(window, in_flight / 2);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Congestion;
    use super::super::testing::{ack, at};
    use super::super::window_based::WindowBased;
    use super::*;

    const MSS: usize = 1000;

    /// Congestion avoidance with a window of ten segments.
    fn steady() -> WindowBased<NewReno> {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_loss(at(0), 20 * MSS);
        reno.on_recovered(at(0));
        reno
    }

    #[test]
    fn slow_start_doubles_the_window_per_window_acknowledged() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        assert_eq!(reno.window(), 10 * MSS);
        for _ in 0..10 {
            reno.on_ack(&ack(1, MSS));
        }
        assert_eq!(reno.window(), 20 * MSS);
        reno.on_ack(&ack(2, 20 * MSS));
        assert_eq!(reno.window(), 40 * MSS, "one ACK for all does as well");
        assert!(reno.slow_start());
    }

    #[test]
    fn congestion_avoidance_adds_a_segment_per_window_acknowledged() {
        let mut reno = steady();
        assert!(!reno.slow_start());
        reno.on_ack(&ack(1, 10 * MSS - 1));
        assert_eq!(reno.window(), 10 * MSS);
        reno.on_ack(&ack(1, 1));
        assert_eq!(reno.window(), 11 * MSS);
        reno.on_ack(&ack(2, 11 * MSS + 12 * MSS));
        assert_eq!(reno.window(), 13 * MSS);
    }

    #[test]
    fn loss_halves_what_was_in_flight_and_holds_until_recovered() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_loss(at(0), 30 * MSS);
        assert_eq!(reno.window(), 15 * MSS);
        reno.on_ack(&ack(1, 15 * MSS));
        assert_eq!(reno.window(), 15 * MSS);
        reno.on_recovered(at(1));
        reno.on_ack(&ack(2, 15 * MSS));
        assert_eq!(reno.window(), 16 * MSS);
        reno.on_loss(at(3), 0);
        assert_eq!(reno.window(), 2 * MSS, "never less than two segments");
    }

    #[test]
    fn slow_start_after_a_timeout_ends_at_half_of_what_was_in_flight() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_timeout(at(0), 16 * MSS);
        assert_eq!(reno.window(), MSS);
        let repairing = |bytes| Acked {
            in_recovery: true, // the window grows all the same
            ..ack(1, bytes)
        };
        reno.on_ack(&repairing(MSS));
        reno.on_ack(&repairing(2 * MSS));
        reno.on_ack(&repairing(4 * MSS));
        assert_eq!(reno.window(), 8 * MSS);
        assert!(!reno.slow_start());
        reno.on_ack(&repairing(8 * MSS));
        assert_eq!(reno.window(), 9 * MSS);
    }

    #[test]
    fn second_timeout_for_the_same_bytes_leaves_the_threshold() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_timeout(at(0), 16 * MSS);
        reno.on_timeout(at(1), MSS);
        reno.on_ack(&ack(2, 7 * MSS));
        assert_eq!(reno.window(), 8 * MSS);
        assert!(!reno.slow_start());
    }

    #[test]
    fn undone_reduction_leaves_no_trace() {
        let mut reno = steady();
        reno.on_loss(at(1), 10 * MSS);
        reno.on_timeout(at(2), 5 * MSS);
        reno.on_timeout(at(3), MSS);
        reno.on_undo(at(4));
        assert_eq!(reno.window(), 10 * MSS);
        assert!(!reno.slow_start());
        reno.on_undo(at(5));
        assert_eq!(reno.window(), 10 * MSS, "there is nothing to undo");
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_ack(&Acked {
            cwnd_limited: false,
            ..ack(1, 10 * MSS)
        });
        assert_eq!(reno.window(), 10 * MSS);
    }

    #[test]
    fn silence_longer_than_the_timeout_restarts_with_the_initial_window() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_ack(&ack(1, 90 * MSS));
        let second = Duration::from_secs(1);
        reno.on_idle(at(9), second, second);
        assert_eq!(reno.window(), 100 * MSS);
        reno.on_idle(at(9), second * 2, second);
        assert_eq!(reno.window(), 10 * MSS);
    }

    #[test]
    fn pause_below_a_second_keeps_the_window_however_short_the_timeout() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_ack(&ack(1, 90 * MSS));
        let (rto, second) = (Duration::from_millis(5), Duration::from_secs(1));
        for pause in 1..100 {
            reno.on_idle(at(pause * 1000), second, rto);
        }
        assert_eq!(reno.window(), 100 * MSS);
        reno.on_idle(at(200_000), second + rto, rto);
        assert_eq!(reno.window(), 10 * MSS);
    }

    #[test]
    fn reduction_for_a_mark_stays_when_a_loss_is_undone() {
        let mut reno = steady();
        reno.on_ecn(at(1), 10 * MSS);
        reno.on_undo(at(2));
        assert_eq!(reno.window(), 5 * MSS);

        let mut reno = steady();
        reno.on_loss(at(1), 10 * MSS);
        reno.on_recovered(at(2));
        reno.on_ecn(at(3), 5 * MSS);
        reno.on_undo(at(4));
        assert_eq!(
            reno.window(),
            2500,
            "the mark was true whatever the loss was"
        );

        reno.on_timeout(at(5), 2500);
        reno.on_undo(at(6));
        assert_eq!(reno.window(), 2500, "what came after the mark is undone");
    }

    #[test]
    fn mark_halves_the_window_without_a_recovery() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_ecn(at(0), 10 * MSS);
        assert_eq!(reno.window(), 5 * MSS);
        reno.on_ack(&ack(1, 5 * MSS));
        assert_eq!(reno.window(), 6 * MSS);
    }

    #[test]
    fn echo_lets_the_window_be_as_it_is() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_ack(&Acked {
            ece_bytes: MSS,
            ..ack(1, MSS)
        });
        assert_eq!(reno.window(), 10 * MSS);
    }

    #[test]
    fn larger_segment_size_leaves_at_least_one_segment() {
        let mut reno = WindowBased::<NewReno>::new(MSS);
        reno.on_timeout(at(0), 0);
        reno.on_mss(9000);
        assert_eq!(reno.window(), 9000);
    }
}

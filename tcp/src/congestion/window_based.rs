//! Algorithms that are a rule for one [`Window`], and the code that they share.

use std::fmt::Debug;
use std::time::Duration;

use super::window::Window;
use super::{Acked, Congestion, Marks};
use crate::time::Instant;

/// How an algorithm changes its window. Methods without a comment are those of [`Congestion`].
pub(super) trait Rule: Debug + Default + Send {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked);

    fn on_loss(&mut self, window: &mut Window, in_flight: usize);

    fn on_timeout(&mut self, window: &mut Window, in_flight: usize);

    fn on_ecn(&mut self, window: &mut Window, in_flight: usize);

    /// The last reduction was undone.
    fn on_undone(&mut self) {}

    /// An idle time is over. `restarted`: it was so long that the window was reset.
    fn on_idle(&mut self, _now: Instant, _restarted: bool) {}

    /// The segment size has changed.
    fn on_mss(&mut self) {}

    fn marks(&self) -> Marks {
        Marks::Classic
    }
}

/// A window and its rule.
#[derive(Clone, Debug)]
pub(super) struct WindowBased<R> {
    pub(super) window: Window,
    pub(super) rule: R,
}

impl<R: Rule> WindowBased<R> {
    pub(super) fn new(mss: usize) -> Self {
        Self {
            window: Window::new(mss),
            rule: R::default(),
        }
    }
}

impl<R: Rule> Congestion for WindowBased<R> {
    fn on_ack(&mut self, acked: &Acked) {
        self.rule.on_ack(&mut self.window, acked);
    }

    fn on_loss(&mut self, _now: Instant, in_flight: usize) {
        self.rule.on_loss(&mut self.window, in_flight);
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.window.recovered();
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: usize) {
        self.rule.on_timeout(&mut self.window, in_flight);
    }

    fn on_undo(&mut self, _now: Instant) {
        if self.window.undo() {
            self.rule.on_undone();
        }
    }

    fn on_ecn(&mut self, _now: Instant, in_flight: usize) {
        self.rule.on_ecn(&mut self.window, in_flight);
    }

    fn on_idle(&mut self, now: Instant, idle: Duration, rto: Duration) {
        let restarted = self.window.restart(idle, rto);
        self.rule.on_idle(now, restarted);
    }

    fn on_mss(&mut self, mss: usize) {
        self.window.set_mss(mss);
        self.rule.on_mss();
    }

    fn window(&self) -> usize {
        self.window.cwnd
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    fn marks(&self) -> Marks {
        self.rule.marks()
    }

    fn slow_start(&self) -> bool {
        self.window.slow_start()
    }
}

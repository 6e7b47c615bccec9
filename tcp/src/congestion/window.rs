//! The window of an algorithm that halves or shrinks it on loss: what `NewReno`, CUBIC and DCTCP have in common.

use std::time::Duration;

use super::Acked;

/// Bytes: no more can be in flight (RFC 7323 §2.3), so no window grows further.
pub(super) const MAX_WINDOW: usize = 1 << 30;
/// Bytes: the largest segment there can be.
const MAX_MSS: usize = 65535;

/// The least timeout that RFC 6298 §2.4 recommends, and so the least pause that RFC 5681 §4.1 was made for.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Initial window in bytes (RFC 6928 §2).
pub(super) fn initial_window(mss: usize) -> usize {
    (10 * mss).min(14600.max(2 * mss))
}

/// `mss` in a range in which arithmetic needs no care.
pub(super) fn clamp_mss(mss: usize) -> usize {
    mss.clamp(1, MAX_MSS)
}

/// What is being repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Losses found by duplicate ACKs or RACK: the window stays.
    Recovery,
    /// After a timeout: the window grows by slow start while the loss is repaired (RFC 5681 §3.1).
    Loss {
        /// Something was acknowledged since the timer expired.
        progress: bool,
    },
}

/// Congestion window and slow start threshold in bytes.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) mss: usize,
    pub(super) cwnd: usize,
    pub(super) ssthresh: usize,
    /// Both as they were before the reduction that may be undone.
    before: Option<(usize, usize)>,
    phase: Phase,
}

impl Window {
    pub(super) fn new(mss: usize) -> Self {
        let mss = clamp_mss(mss);
        Self {
            mss,
            cwnd: initial_window(mss),
            ssthresh: MAX_WINDOW,
            before: None,
            phase: Phase::Open,
        }
    }

    pub(super) fn slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// True if the window may grow for this ACK: it was used (RFC 9438 §5.8), and no loss found by ACKs is being repaired.
    /// An ACK with ECE asks for less, not for more. Also notes that a timeout has been answered.
    pub(super) fn may_grow(&mut self, acked: &Acked) -> bool {
        if let Phase::Loss { progress } = &mut self.phase {
            *progress |= acked.bytes > 0;
        } else if acked.in_recovery || self.phase == Phase::Recovery {
            return false;
        }
        acked.cwnd_limited && acked.bytes > 0 && acked.ece_bytes == 0
    }

    /// Losses found by ACKs are being repaired.
    pub(super) fn recovering(&self) -> bool {
        self.phase == Phase::Recovery
    }

    /// Losses are being repaired, whoever found them.
    pub(super) fn repairing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Grows by `bytes`, at most to the threshold, and returns the bytes left over. All bytes count however few ACKs bring
    /// them (RFC 3465 with L unbounded, as RFC 9406 §4.3 has it for senders that do not send in bursts): a receiver that
    /// acknowledges once per burst would slow a sender that counts ACKs.
    pub(super) fn grow_slow_start(&mut self, bytes: usize) -> usize {
        let room = self.ssthresh.min(MAX_WINDOW).saturating_sub(self.cwnd);
        let used = bytes.min(room);
        self.cwnd += used;
        bytes - used
    }

    pub(super) fn grow(&mut self, bytes: usize) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_WINDOW);
    }

    /// Loss found by ACKs: window and threshold become `target`, at least two segments (RFC 5681 §3.1, equation 4).
    pub(super) fn lose(&mut self, target: usize) {
        self.before = Some((self.cwnd, self.ssthresh));
        self.lower(target);
        self.phase = Phase::Recovery;
    }

    /// As for a loss, when nothing is lost but congestion was met (RFC 3168 §6.1.2). A mark is never made for nothing, so neither
    /// this nor what was reduced before it can be undone.
    pub(super) fn reduce(&mut self, target: usize) {
        self.before = None;
        self.lower(target);
    }

    fn lower(&mut self, target: usize) {
        self.ssthresh = target.clamp(2 * self.mss, MAX_WINDOW);
        self.cwnd = self.ssthresh;
    }

    /// The timer expired: the window becomes one segment, the threshold `target` unless the timer expired for the same bytes
    /// before (RFC 5681 §3.1). True if it had not.
    pub(super) fn time_out(&mut self, target: usize) -> bool {
        let first = self.phase != Phase::Loss { progress: false };
        if first {
            let before = match self.phase {
                Phase::Recovery => self.before,
                Phase::Open | Phase::Loss { .. } => None,
            };
            let now = (self.cwnd, self.ssthresh);
            self.lower(target);
            self.before = before.or(Some(now));
        }
        self.cwnd = self.mss;
        self.phase = Phase::Loss { progress: false };
        first
    }

    pub(super) fn recovered(&mut self) {
        self.phase = Phase::Open;
    }

    /// Takes the last reduction back; false if there is none.
    pub(super) fn undo(&mut self) -> bool {
        let Some((cwnd, ssthresh)) = self.before.take() else {
            return false;
        };
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.phase = Phase::Open;
        true
    }

    /// RFC 5681 §4.1: after more than one timeout of silence the window says nothing of the path. True if it was so long.
    ///
    /// The timeout meant there is at least a second. With one of 5 ms, requests would begin anew after each pause, which RFC 7661 §1 finds
    /// to serve nobody. That RFC keeps the window for minutes, as long as no more than is used is added to it.
    pub(super) fn restart(&mut self, idle: Duration, rto: Duration) -> bool {
        let stale = idle > rto.max(MIN_IDLE);
        if stale {
            self.cwnd = self.cwnd.min(initial_window(self.mss));
        }
        stale
    }

    /// Segments are now of `mss` bytes; the window keeps its bytes, at least one segment.
    pub(super) fn set_mss(&mut self, mss: usize) {
        self.mss = clamp_mss(mss);
        self.cwnd = self.cwnd.max(self.mss);
        self.ssthresh = self.ssthresh.max(2 * self.mss);
    }
}

/// Bytes by which Reno's window grows: one segment per window acknowledged (RFC 5681 §3.1, counted as in RFC 3465 §2.1).
#[derive(Clone, Debug, Default)]
pub(super) struct Linear {
    acked: usize,
}

impl Linear {
    /// Grows by slow start up to the threshold, and linearly from there on.
    pub(super) fn grow_as_reno(&mut self, window: &mut Window, bytes: usize) {
        let left = if window.slow_start() {
            window.grow_slow_start(bytes)
        } else {
            bytes
        };
        self.grow(window, left);
    }

    fn grow(&mut self, window: &mut Window, bytes: usize) {
        self.acked = self.acked.saturating_add(bytes).min(MAX_WINDOW);
        while self.acked >= window.cwnd && window.cwnd < MAX_WINDOW {
            self.acked -= window.cwnd;
            window.grow(window.mss);
        }
    }

    pub(super) fn reset(&mut self) {
        self.acked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_windows_are_those_of_rfc_6928() {
        assert_eq!(initial_window(1460), 14600);
        assert_eq!(initial_window(536), 5360);
        assert_eq!(initial_window(8960), 17920, "two segments");
        assert_eq!(initial_window(1), 10);
    }
}

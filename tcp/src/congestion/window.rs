//! Congestion window of the algorithms that shrink it on loss: `NewReno`, CUBIC and DCTCP.

use std::time::Duration;

use super::Acked;

/// Maximum window in bytes: no more can be in flight (RFC 7323 §2.3).
pub(super) const MAX_WINDOW: usize = 1 << 30;
/// Bytes in the largest possible segment.
const MAX_MSS: usize = 65535;

/// The minimum timeout that RFC 6298 §2.4 recommends, and so the shortest pause that RFC 5681 §4.1
/// was written for.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Initial window in bytes (RFC 6928 §2).
pub(super) fn initial_window(mss: usize) -> usize {
    (10 * mss).min(14600.max(2 * mss))
}

/// Limits `mss` to a range in which arithmetic cannot overflow.
pub(super) fn clamp_mss(mss: usize) -> usize {
    mss.clamp(1, MAX_MSS)
}

/// Kind of repair in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Repair of losses that duplicate ACKs or RACK found: the window stays.
    Recovery,
    /// Repair after a timeout: the window grows by slow start meanwhile (RFC 5681 §3.1).
    Loss {
        /// Data was acknowledged since the timer expired.
        progress: bool,
    },
}

/// Congestion window and slow start threshold in bytes.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) mss: usize,
    pub(super) cwnd: usize,
    pub(super) ssthresh: usize,
    /// Window and threshold before a reduction that may be undone.
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

    /// Returns true if this ACK may grow the window: the window was in use (RFC 9438 §5.8), and no
    /// loss found by ACKs is being repaired. An ACK with ECE must not grow it. Also records that a
    /// timeout has been answered.
    pub(super) fn may_grow(&mut self, acked: &Acked) -> bool {
        if let Phase::Loss { progress } = &mut self.phase {
            *progress |= acked.bytes > 0;
        } else if acked.in_recovery || self.phase == Phase::Recovery {
            return false;
        }
        acked.cwnd_limited && acked.bytes > 0 && acked.ece_bytes == 0
    }

    /// True while losses found by ACKs are being repaired.
    pub(super) fn recovering(&self) -> bool {
        self.phase == Phase::Recovery
    }

    /// True while losses are being repaired, found by ACKs or by a timeout.
    pub(super) fn repairing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Grows the window by `bytes`, at most to the threshold, and returns the rest. All bytes
    /// count, however few ACKs report them (RFC 3465 with L unbounded, as RFC 9406 §4.3 has it for
    /// senders that pace). Otherwise a receiver that acknowledges once per burst would slow the
    /// sender.
    pub(super) fn grow_slow_start(&mut self, bytes: usize) -> usize {
        let room = self.ssthresh.min(MAX_WINDOW).saturating_sub(self.cwnd);
        let used = bytes.min(room);
        self.cwnd += used;
        bytes - used
    }

    pub(super) fn grow(&mut self, bytes: usize) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_WINDOW);
    }

    /// Reduces window and threshold to `target`, at least two segments, after a loss found by ACKs
    /// (RFC 5681 §3.1, equation 4).
    pub(super) fn lose(&mut self, target: usize) {
        self.before = Some((self.cwnd, self.ssthresh));
        self.lower(target);
        self.phase = Phase::Recovery;
    }

    /// Reduces the window because of congestion without a loss (RFC 3168 §6.1.2). A mark is never
    /// spurious, so this reduction and those before it cannot be undone.
    pub(super) fn reduce(&mut self, target: usize) {
        self.before = None;
        self.lower(target);
    }

    fn lower(&mut self, target: usize) {
        self.ssthresh = target.clamp(2 * self.mss, MAX_WINDOW);
        self.cwnd = self.ssthresh;
    }

    /// Handles a timeout: the window becomes one segment. The threshold becomes `target`, unless
    /// the timer expired for the same bytes before (RFC 5681 §3.1). Returns true if it had not.
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

    /// Undoes the last reduction. Returns false if there is none.
    pub(super) fn undo(&mut self) -> bool {
        let Some((cwnd, ssthresh)) = self.before.take() else {
            return false;
        };
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.phase = Phase::Open;
        true
    }

    /// Restarts after idle time of more than one timeout, as the window no longer describes the
    /// path (RFC 5681 §4.1). Returns true if it did.
    ///
    /// That timeout is taken to be at least 1 s. With one of 5 ms, a request would start from the
    /// initial window after each short pause, which RFC 7661 §1 finds harmful. RFC 7661 keeps the
    /// window for minutes, as long as no more than the used part of it grows.
    pub(super) fn restart(&mut self, idle: Duration, rto: Duration) -> bool {
        let stale = idle > rto.max(MIN_IDLE);
        if stale {
            self.cwnd = self.cwnd.min(initial_window(self.mss));
        }
        stale
    }

    /// Sets the segment size. The window keeps its bytes, at least one segment.
    pub(super) fn set_mss(&mut self, mss: usize) {
        self.mss = clamp_mss(mss);
        self.cwnd = self.cwnd.max(self.mss);
        self.ssthresh = self.ssthresh.max(2 * self.mss);
    }
}

/// Growth of Reno's window: one segment per window acknowledged (RFC 5681 §3.1, counted by bytes as
/// in RFC 3465 §2.1).
#[derive(Clone, Debug, Default)]
pub(super) struct Linear {
    acked: usize,
}

impl Linear {
    /// Grows the window by slow start up to the threshold, and linearly beyond.
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

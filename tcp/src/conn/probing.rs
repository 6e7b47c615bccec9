//! Probes: segments that a peer must answer, sent when there is no data to send.

use std::time::Duration;

use crate::time::Instant;

/// Maximum interval between probes of a closed window.
const WINDOW_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Minimum number of probes before a silent peer times out.
const PROBES: u32 = 3;

/// Why a connection is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The peer's window has no room for waiting data (RFC 9293 §3.8.6.1).
    Window {
        /// Time to the first probe. Later intervals double.
        first: Duration,
        /// Maximum silence of the peer (RFC 9293 §3.9.1, USER TIMEOUT): probes are sent more often.
        user_timeout: Duration,
    },
    /// The peer has been silent (keep-alive, RFC 9293 §3.8.4).
    Silence {
        /// Silence before a probe.
        timeout: Duration,
        /// Maximum silence of the peer.
        user_timeout: Duration,
    },
}

impl Reason {
    fn is_like(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Window { .. }, Self::Window { .. })
                | (Self::Silence { .. }, Self::Silence { .. })
        )
    }

    /// Time to the next probe after `sent` probes.
    fn interval(self, sent: u32) -> Duration {
        match self {
            Self::Window {
                first,
                user_timeout,
            } => first
                .saturating_mul(1 << sent.min(16))
                .min(WINDOW_INTERVAL_MAX.max(first))
                .min(user_timeout / PROBES),
            Self::Silence {
                timeout,
                user_timeout,
            } if sent > 0 => timeout.min(user_timeout / PROBES),
            Self::Silence { timeout, .. } => timeout,
        }
    }
}

/// State of probing.
#[derive(Debug, Default)]
pub(crate) struct Probing {
    reason: Option<Reason>,
    next: Option<Instant>,
    /// Start of the present reason.
    since: Instant,
    sent: u32,
    /// Probes since the last answer.
    unanswered: u32,
}

impl Probing {
    /// True while answers to probes are awaited.
    pub(crate) fn is_active(&self) -> bool {
        self.sent > 0
    }

    /// When the next probe is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Updates the reason. `last_activity`: the peer's last sign of life.
    pub(crate) fn update(&mut self, reason: Option<Reason>, last_activity: Instant, now: Instant) {
        let same = match (self.reason, reason) {
            (Some(old), Some(new)) => old.is_like(new),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        let begin = |reason: Reason| match reason {
            Reason::Window { .. } => now + reason.interval(0),
            Reason::Silence { timeout, .. } => last_activity + timeout,
        };
        *self = Self {
            reason,
            next: reason.map(begin),
            since: now,
            ..Self::default()
        };
    }

    /// Time for which the peer's window has had no room.
    pub(crate) fn without_room(&self, now: Instant) -> Duration {
        match self.reason {
            Some(Reason::Window { .. }) => now - self.since,
            Some(Reason::Silence { .. }) | None => Duration::ZERO,
        }
    }

    /// True while the peer's window has no room for data that waits, or for the FIN.
    pub(crate) fn lacks_room(&self) -> bool {
        matches!(self.reason, Some(Reason::Window { .. }))
    }

    /// Returns true if a probe must be sent now, and schedules the next one. The first probe
    /// records that probing has begun.
    pub(crate) fn is_due(&mut self, last_activity: Instant, now: Instant) -> bool {
        let Some(reason) = self.reason else {
            return false;
        };
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        if let Reason::Silence { timeout, .. } = reason
            && self.sent == 0
            && last_activity + timeout > now
        {
            self.next = Some(last_activity + timeout);
            return false;
        }
        self.sent += 1;
        self.unanswered += 1;
        self.next = Some(now + reason.interval(self.sent));
        true
    }

    /// True if the probe that is due is the first since the last answer.
    pub(crate) fn is_first_unanswered(&self) -> bool {
        self.unanswered == 1
    }

    /// Number of unanswered probes before the one that is due.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered.saturating_sub(1)
    }

    /// Moves the next probe forward to `at`, if it is later.
    pub(crate) fn no_later_than(&mut self, at: Instant) {
        self.next = self.next.map(|next| next.min(at));
    }

    /// Records that the peer has sent something, which ends its silence.
    pub(crate) fn on_peer_activity(&mut self) {
        self.unanswered = 0;
        if self.sent > 0 && matches!(self.reason, Some(Reason::Silence { .. })) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_window_is_probed_at_doubling_intervals() {
        let mut now = Instant::ORIGIN;
        let mut probing = Probing::default();
        let second = Duration::from_secs(1);
        let reason = Reason::Window {
            first: second,
            user_timeout: Duration::from_secs(100),
        };
        probing.update(Some(reason), now, now);
        let mut gaps = Vec::new();
        for _ in 0..6 {
            let next = probing.next().unwrap();
            gaps.push((next - now).as_secs());
            now = next;
            assert!(probing.is_due(Instant::ORIGIN, now));
        }
        assert_eq!(gaps, [1, 2, 4, 8, 10, 10]);
        probing.update(None, now, now);
        assert_eq!(probing.next(), None);
    }

    #[test]
    fn silence_is_counted_from_the_last_sign_of_life() {
        let start = Instant::ORIGIN;
        let timeout = Duration::from_secs(10);
        let mut probing = Probing::default();
        let user_timeout = Duration::from_secs(100);
        let reason = Reason::Silence {
            timeout,
            user_timeout,
        };
        probing.update(Some(reason), start, start);
        let last_activity = start + Duration::from_secs(4);
        assert!(!probing.is_due(last_activity, start + timeout));
        assert_eq!(probing.next(), Some(last_activity + timeout));
        assert!(probing.is_due(last_activity, last_activity + timeout));
        probing.on_peer_activity();
        assert!(!probing.is_active());
    }
}

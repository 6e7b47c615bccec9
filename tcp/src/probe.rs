//! Probes: segments that a peer must answer, sent where there is nothing else to send.

use std::time::Duration;

use crate::time::Instant;

/// How long a window that is too small is waited upon before it is probed, and between probes: the retransmission timeout's
/// lower bound (RFC 9293 §3.8.6.1, RFC 6298 §2.4).
const PERSIST: Duration = Duration::from_secs(1);

/// Why a connection is to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The peer's window has no room for what is to be written (RFC 9293 §3.8.6.1).
    Window,
    /// The peer has been silent for so long (keep-alive, RFC 9293 §3.8.4).
    Silence(Duration),
}

impl Reason {
    /// Time from the last sign of life to the first probe, and between probes.
    pub(crate) fn interval(self) -> Duration {
        match self {
            Self::Window => PERSIST,
            Self::Silence(limit) => limit,
        }
    }
}

/// Whether a connection is being probed, or will be.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    reason: Option<Reason>,
    begin: Option<Instant>,
    active: bool,
}

impl Probes {
    /// True while probes are being sent.
    pub(crate) fn active(&self) -> bool {
        self.active
    }

    /// When to begin; `None` if there is no reason, or they have begun.
    pub(crate) fn begin(&self) -> Option<Instant> {
        self.begin
    }

    /// Takes note of the present reason, for which probes would begin at `begin`. True if probes that are being sent must stop.
    pub(crate) fn update(&mut self, reason: Option<Reason>, begin: Instant) -> bool {
        let stop = self.active && self.reason != reason;
        if self.reason != reason {
            self.clear();
            self.reason = reason;
        }
        if reason.is_some() && !self.active && self.begin.is_none() {
            self.begin = Some(begin);
        }
        stop
    }

    /// The reason, if its time has come: probes begin. `heard` is the peer's last sign of life.
    pub(crate) fn start(&mut self, now: Instant, heard: Instant) -> Option<Reason> {
        let reason = self.reason?;
        self.begin.filter(|begin| *begin <= now)?;
        if let Reason::Silence(limit) = reason
            && heard + limit > now
        {
            self.begin = Some(heard + limit);
            return None;
        }
        self.begin = None;
        self.active = true;
        Some(reason)
    }

    /// The peer has been heard. True if probes that are being sent must stop.
    pub(crate) fn heard(&mut self) -> bool {
        let stop = self.active && matches!(self.reason, Some(Reason::Silence(_)));
        if stop {
            self.clear();
        }
        stop
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

//! Congestion control: how much may be in flight, told by what ACKs say and by what is lost.
//!
//! The engine counts what is in flight (RFC 6675 §4, `pipe`), finds losses and repairs them. An algorithm only says how large the window
//! is, and how fast to pace. So no window is ever inflated by duplicate ACKs. Where RFC 5681 §3.2 and RFC 6582 §3.2 inflate and deflate it,
//! bytes leaving the network lower `in_flight` instead.

mod bbr;
#[cfg(test)]
mod bottleneck;
mod cubic;
mod cubic_epoch;
mod dctcp;
mod hystart;
#[cfg(test)]
#[path = "../../tests/link/kept.rs"]
mod kept;
mod new_reno;
#[cfg(test)]
mod properties;
mod window;
mod window_based;

use std::fmt::Debug;
use std::time::Duration;

use crate::delivery_rate::RateSample;
use crate::time::Instant;
use cubic::Cubic;
use dctcp::Dctcp;
use new_reno::NewReno;
use window_based::WindowBased;

/// Which congestion control a stack uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CongestionControl {
    /// RFC 9438, with RFC 9406 in slow start. It negotiates ECN if [`StackConfig::ecn`](crate::StackConfig::ecn) says so.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582; ECN as with CUBIC.
    NewReno,
    /// RFC 8257, for networks that mark; it negotiates ECN.
    Dctcp,
    /// draft-cardwell-iccrg-bbr-congestion-control-00, for paths that lose at random.
    Bbr,
}

impl CongestionControl {
    /// The state of a new connection that sends segments of at most `mss` bytes.
    pub(crate) fn start(self, mss: usize, _now: Instant) -> Box<dyn Congestion> {
        match self {
            Self::Bbr => Box::new(bbr::Bbr::new(mss)),
            Self::Cubic => Box::new(WindowBased::<Cubic>::new(mss)),
            Self::Dctcp => Box::new(WindowBased::<Dctcp>::new(mss)),
            Self::NewReno => Box::new(WindowBased::<NewReno>::new(mss)),
        }
    }

    /// True if its ACKs need [`Acked::rate`].
    pub(crate) fn goes_by_rate(self) -> bool {
        matches!(self, Self::Bbr)
    }
}

/// What an algorithm makes of marks on packets (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Nothing: ECN is not negotiated.
    Ignored,
    /// As much as of a loss, once per window; they are echoed until the sender says that it has reduced its window (RFC 3168 §6.1).
    Classic,
    /// Each counts, and is echoed as it came (RFC 8257 §3).
    Counted,
}

/// What an ACK says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    pub(crate) now: Instant,
    /// Bytes newly acknowledged, cumulatively or selectively.
    pub(crate) bytes: usize,
    /// Bytes in flight after this ACK.
    pub(crate) in_flight: usize,
    /// A valid round-trip sample of this ACK.
    pub(crate) rtt: Option<Duration>,
    /// Bytes delivered on the connection in all, after this ACK.
    pub(crate) delivered: u64,
    /// How fast bytes were delivered; for an algorithm that [goes by it](Algorithm::goes_by_rate).
    pub(crate) rate: Option<RateSample>,
    /// Of `bytes`, those acknowledged with ECE set.
    pub(crate) ece_bytes: usize,
    /// The window, not the application, limited sending (RFC 9438 §5.8, RFC 7661 §4.1).
    pub(crate) cwnd_limited: bool,
    /// Losses found otherwise than by a timeout are being repaired.
    pub(crate) in_recovery: bool,
}

/// A congestion control algorithm. None has a clock: instants are given, and never go back.
pub(crate) trait Congestion: Debug + Send {
    fn on_ack(&mut self, acked: &Acked);

    /// Loss found by RACK or duplicate ACKs: once per recovery. `in_flight` is what it was before the lost bytes are taken off.
    fn on_loss(&mut self, now: Instant, in_flight: usize);

    /// What was sent before the last loss or timeout has been acknowledged.
    fn on_recovered(&mut self, now: Instant);

    /// The retransmission timer expired, perhaps again. `in_flight` is what it was before.
    fn on_timeout(&mut self, now: Instant, in_flight: usize);

    /// The last reduction was for nothing (F-RTO, DSACK, Eifel): undo it.
    fn on_undo(&mut self, now: Instant);

    /// ECE seen outside of a recovery, at most once per window (RFC 3168 §6.1.2). `in_flight` is what it was before the ACK that
    /// had it. DCTCP goes by [`Acked::ece_bytes`] instead.
    fn on_ecn(&mut self, now: Instant, in_flight: usize);

    /// Nothing was sent for `idle` (RFC 5681 §4.1).
    fn on_idle(&mut self, now: Instant, idle: Duration, rto: Duration);

    /// The path now takes segments of `mss` bytes (RFC 1191 §3): counts in segments are kept where they mean segments.
    fn on_mss(&mut self, mss: usize);

    /// Congestion window in bytes: at least one segment.
    fn window(&self) -> usize;

    /// Bytes per second; `None`: not paced.
    fn pacing_rate(&self) -> Option<u64>;

    /// What marks mean to it.
    fn marks(&self) -> Marks;

    /// The window grows as fast as it can.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask"))]
    fn slow_start(&self) -> bool;
}

#[cfg(test)]
pub(crate) mod testing {
    //! ACKs for unit tests.

    use super::*;

    pub(crate) const ALL: [CongestionControl; 4] = [
        CongestionControl::NewReno,
        CongestionControl::Cubic,
        CongestionControl::Dctcp,
        CongestionControl::Bbr,
    ];

    /// What an ACK of `bytes` at `millis` says when all is well and the window is the limit.
    pub(crate) fn ack(millis: u64, bytes: usize) -> Acked {
        Acked {
            now: at(millis),
            bytes,
            in_flight: 0,
            rtt: None,
            delivered: 0,
            rate: None,
            ece_bytes: 0,
            cwnd_limited: true,
            in_recovery: false,
        }
    }

    pub(crate) fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }
}

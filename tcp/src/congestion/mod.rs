//! Congestion control: how much may be in flight, by what ACKs report and by losses.
//!
//! The engine counts the bytes in flight (RFC 6675 §4, `pipe`), detects losses and repairs them. An
//! algorithm only sets the window and the pacing rate. So no window is ever inflated by duplicate
//! ACKs: where RFC 5681 §3.2 and RFC 6582 §3.2 inflate and deflate it, bytes that leave the network
//! lower `in_flight` instead.
//!
//! ECN belongs to the algorithm, too: it decides what a mark means, and so how the receiver echoes
//! it. DCTCP counts marks and needs each one echoed as it came (RFC 8257 §3). A sender that treats
//! a mark as a loss needs the echo until it has sent CWR (RFC 3168 §6.1). CWR announces reductions
//! after losses as well, so one event reduces the window once. A retransmitted SYN still asks for
//! ECN, which RFC 3168 §6.1.1.1 leaves open.

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

/// Congestion control algorithm of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CongestionControl {
    /// CUBIC (RFC 9438) with `HyStart++` (RFC 9406). It negotiates ECN if
    /// [`StackConfig::ecn`](crate::StackConfig::ecn) is set.
    #[default]
    Cubic,
    /// `NewReno` (RFC 5681, RFC 6582). It negotiates ECN as CUBIC does.
    NewReno,
    /// DCTCP (RFC 8257), for networks that mark. It always negotiates ECN.
    Dctcp,
    /// BBR (draft-cardwell-iccrg-bbr-congestion-control-00), for paths with random loss.
    Bbr,
}

impl CongestionControl {
    /// Initial state for a connection whose segments have at most `mss` bytes.
    pub(crate) fn start(self, mss: usize, _now: Instant) -> Box<dyn Congestion> {
        match self {
            Self::Bbr => Box::new(bbr::Bbr::new(mss)),
            Self::Cubic => Box::new(WindowBased::<Cubic>::new(mss)),
            Self::Dctcp => Box::new(WindowBased::<Dctcp>::new(mss)),
            Self::NewReno => Box::new(WindowBased::<NewReno>::new(mss)),
        }
    }

    /// True if the algorithm needs [`Acked::rate`].
    pub(crate) fn goes_by_rate(self) -> bool {
        matches!(self, Self::Bbr)
    }
}

/// Meaning of ECN marks to an algorithm (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// None: ECN is not negotiated.
    Ignored,
    /// A mark counts as a loss, once per window. The receiver echoes it until the sender has
    /// announced its reduction (RFC 3168 §6.1).
    Classic,
    /// Every mark counts, and is echoed as it came (RFC 8257 §3).
    Counted,
}

/// Summary of an ACK for the algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    pub(crate) now: Instant,
    /// Bytes newly acknowledged, cumulatively or selectively.
    pub(crate) bytes: usize,
    /// Bytes in flight after this ACK.
    pub(crate) in_flight: usize,
    /// A valid round-trip sample from this ACK.
    pub(crate) rtt: Option<Duration>,
    /// Bytes delivered on the connection so far, including this ACK.
    pub(crate) delivered: u64,
    /// Delivery rate, for an algorithm that [needs it](CongestionControl::goes_by_rate).
    pub(crate) rate: Option<RateSample>,
    /// Of `bytes`, those acknowledged with ECE set.
    pub(crate) ece_bytes: usize,
    /// The window, not the application, limited sending (RFC 9438 §5.8, RFC 7661 §4.1).
    pub(crate) cwnd_limited: bool,
    /// Losses found by ACKs, not by a timeout, are being repaired.
    pub(crate) in_recovery: bool,
}

/// A congestion control algorithm. It has no clock: the caller passes instants, which never go
/// back.
pub(crate) trait Congestion: Debug + Send {
    fn on_ack(&mut self, acked: &Acked);

    /// RACK or duplicate ACKs found a loss; called once per recovery. `in_flight` still includes
    /// the lost bytes.
    fn on_loss(&mut self, now: Instant, in_flight: usize);

    /// All data sent before the last loss or timeout has been acknowledged.
    fn on_recovered(&mut self, now: Instant);

    /// The retransmission timer expired, perhaps again. `in_flight` is the value before the
    /// timeout.
    fn on_timeout(&mut self, now: Instant, in_flight: usize);

    /// The last reduction was spurious (F-RTO, DSACK, Eifel): undoes it.
    fn on_undo(&mut self, now: Instant);

    /// ECE arrived outside of a recovery; called at most once per window (RFC 3168 §6.1.2).
    /// `in_flight` is the value before the ACK that carried it. DCTCP uses [`Acked::ece_bytes`]
    /// instead.
    fn on_ecn(&mut self, now: Instant, in_flight: usize);

    /// The connection sent nothing for `idle` (RFC 5681 §4.1).
    fn on_idle(&mut self, now: Instant, idle: Duration, rto: Duration);

    /// The path now takes segments of `mss` bytes (RFC 1191 §3). Limits in segments keep their
    /// number of segments.
    fn on_mss(&mut self, mss: usize);

    /// Congestion window in bytes, at least one segment.
    fn window(&self) -> usize;

    /// Pacing rate in bytes per second, or `None` without pacing.
    fn pacing_rate(&self) -> Option<u64>;

    /// Meaning of ECN marks to this algorithm.
    fn marks(&self) -> Marks;

    /// True in slow start.
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

    /// A regular ACK of `bytes` at `millis`, with sending limited by the window.
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

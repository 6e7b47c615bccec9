//! Asynchronous events (verbs draft §8.3.3, §9.5.3): what happens without being the result of a work request.

use xwarp_iwarp::TermCode;

use crate::engine::{CqId, SrqId};
use crate::inbound_error::InboundError;
use crate::qp_state::QpId;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The queue pair, which may be gone by now, its id being nobody else's; `None` for the RNIC as a whole, or for what `kind` names.
    pub qp: Option<QpId>,
    /// What.
    pub kind: AsyncEventKind,
}

/// What can happen. A failure that a completion tells of is no event. [`QueuePair::query`](crate::QueuePair::query) has the Terminate
/// that was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsyncEventKind {
    /// LLP Close Complete: both sides have closed; the queue pair is Idle again.
    Closed,
    /// Terminate Message Received: the peer found an error and ended the stream.
    TerminateReceived(TermCode),
    /// We found an error in what the peer sent, or in what it asked for, and ended the stream: one of the draft's integrity, remote
    /// operation and protection errors.
    Terminated {
        /// Which.
        error: InboundError,
        /// What the peer was told.
        code: TermCode,
        /// What was wrong.
        reason: String,
    },
    /// LLP Connection Reset: the peer has reset the connection.
    ConnectionReset,
    /// LLP Connection Lost: the peer no longer answers, or did not close its side, or the connection broke during a close.
    ConnectionLost {
        /// What was seen.
        reason: &'static str,
    },
    /// Bad Close: this side closed, or the stream ended, in the middle of something.
    BadClose {
        /// What was cut off.
        reason: &'static str,
    },
    /// Bad LLP Close: the peer has closed its side while work was left that needs it. It is told 0/2/07.
    BadPeerClose {
        /// What was cut off.
        reason: &'static str,
    },
    /// The completion queue of its send queue had no room: the completion and the queue pair are lost (CQ/SQ Error).
    SendCqError,
    /// The same of its receive queue (CQ/RQ Error).
    RecvCqError,
    /// A completion queue had no room, for the first time.
    CqOverflow(CqId),
    /// A shared receive queue has fewer unused buffers than its limit. Told once, until that is armed again.
    SrqLimitReached(SrqId),
    /// RNIC Catastrophic Failure: nothing works any more.
    Failed {
        /// Why.
        reason: String,
    },
}

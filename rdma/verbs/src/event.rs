//! Asynchronous events (verbs draft §9.5.3): what happens to a queue pair without being the result of a work request.

use xwarp_iwarp::TermCode;

use crate::engine::{CqId, SrqId};
use crate::qp::QpId;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The queue pair; `None` for the RNIC as a whole, or for what `kind` names.
    pub qp: Option<QpId>,
    /// What.
    pub kind: AsyncEventKind,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsyncEventKind {
    /// Both sides have closed; the queue pair is Idle again.
    Closed,
    /// The peer found an error and ended the stream.
    TerminateReceived(TermCode),
    /// We found an error in what the peer sent and ended the stream.
    Terminated {
        /// What the peer was told.
        code: TermCode,
        /// What was wrong.
        reason: String,
    },
    /// The connection broke: reset by the peer, or no longer answered.
    ConnectionLost {
        /// What was seen.
        reason: &'static str,
    },
    /// The connection ended in the middle of something.
    BadClose {
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
    /// The RNIC has failed: nothing works any more.
    Failed {
        /// Why.
        reason: String,
    },
}

//! Asynchronous events (verbs draft §8.3.3, §9.5.3): what happens without being the result of a
//! work request.

use xwarp_iwarp::TermCode;

use super::ids::{CqId, QpId, SrqId};
use super::inbound_error::InboundError;
use super::qp_info::QpInfo;

/// Something that happened: the draft's Event Record (§9.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// What it has happened to.
    pub resource: EventResource,
    /// What has happened.
    pub kind: AsyncEventKind,
}

impl AsyncEvent {
    /// An event of this kind, such as for a test of a handler.
    pub fn new(resource: EventResource, kind: AsyncEventKind) -> Self {
        Self { resource, kind }
    }

    /// The queue pair, if it has happened to one.
    pub fn qp(&self) -> Option<QpId> {
        match self.resource {
            EventResource::Qp(qp) => Some(qp),
            EventResource::Cq(_) | EventResource::Srq(_) | EventResource::Rnic => None,
        }
    }
}

/// Resource Indicator and Resource Identifier of an event. The object may be gone by now; no later
/// object has its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventResource {
    /// A queue pair.
    Qp(QpId),
    /// A completion queue.
    Cq(CqId),
    /// A shared receive queue.
    Srq(SrqId),
    /// The RNIC itself.
    Rnic,
}

/// Kind of an event. A failure that a completion reports raises no event. `QueuePair::query`
/// returns the Terminate that was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// LLP Close Complete: both sides have closed; the queue pair is Idle again.
    Closed,
    /// Terminate Message Received: the peer found an error and ended the stream.
    TerminateReceived(TermCode),
    /// We found an error in what the peer sent, or in what it asked for, and ended the stream. It
    /// is one of the draft's integrity, remote operation and protection errors.
    Terminated {
        /// Which.
        error: InboundError,
        /// Code of the Terminate that was sent to the peer.
        code: TermCode,
        /// What was wrong.
        reason: String,
    },
    /// The connection has ended, and no other event says so: a completion says why, the application
    /// has asked for it, or the RNIC fails. All work was flushed. Only where
    /// [`QpConfig::report_ends`](crate::model::QpConfig::report_ends) asks for it.
    Ended,
    /// LLP Connection Reset: the peer has reset the connection.
    ConnectionReset,
    /// LLP Connection Lost: the peer no longer answers, or did not close its side, or the
    /// connection broke during a close.
    ConnectionLost {
        /// What was seen.
        reason: &'static str,
    },
    /// Bad Close: this side closed, or the stream ended, in the middle of something.
    BadClose {
        /// What was cut off.
        reason: &'static str,
    },
    /// Bad LLP Close: the peer has closed its side while work was left that needs it. It gets
    /// Terminate 0/2/07.
    BadPeerClose {
        /// What was cut off.
        reason: &'static str,
    },
    /// The completion queue of its send queue had no room: the completion and the queue pair are
    /// lost (CQ/SQ Error).
    SendCqError,
    /// The completion queue of its receive queue had no room: the completion and the queue pair are
    /// lost (CQ/RQ Error).
    RecvCqError,
    /// S-RQ error on a QP: its shared receive queue has failed, and it needed a buffer. The peer
    /// gets Terminate 0/2/07.
    SrqError,
    /// Local QP Catastrophic Error: the state of the queue pair is inconsistent, by a defect of
    /// this library. No work request can report it. The application should destroy the queue pair.
    QpCatastrophic {
        /// What was found.
        reason: &'static str,
    },
    /// CQ Operation Error: the completion queue's handler has panicked, and is cleared. Completions
    /// can be polled, but raise no event.
    CqFailed,
    /// Shared Receive Queue Catastrophic Failure: what is posted to it is inconsistent, by a defect
    /// of this library.
    SrqFailed,
    /// CQ Overflow Detected: a completion queue had no room, for the first time.
    CqOverflow,
    /// A shared receive queue has fewer unused buffers than its limit. Reported once, until the
    /// limit is armed again.
    SrqLimitReached,
    /// QP RQ Limit Reached: more messages of a queue pair that has a shared receive queue are in
    /// progress than its limit ([`QpConfig::rq_limit`](crate::model::QpConfig::rq_limit)). Reported
    /// once, until the limit is armed again.
    RqLimitReached,
    /// Events were lost in this place, as earlier ones were not taken (`RnicConfig::max_events`).
    /// The state of each object can be queried: `QueuePair::query` returns state and Terminate,
    /// `CompletionQueue::overflowed` and `SharedReceiveQueue::query` the rest.
    EventsLost {
        /// How many.
        count: u64,
    },
    /// RNIC Catastrophic Failure: the interface is gone or stalled, its XDP program was detached or
    /// replaced, or this library has panicked. A panic ends all connections with 0/2/08. All that
    /// is left to do is to close the RNIC, and to open it anew.
    Failed {
        /// Why.
        reason: String,
    },
}

/// What is called with each asynchronous event.
pub type EventHandler = Box<dyn FnMut(&EventContext<'_>, &AsyncEvent) + Send>;

/// The RNIC of an event, as its handler has it: other verbs of that RNIC cannot be called there.
pub struct EventContext<'a> {
    query: &'a dyn Fn(QpId) -> Option<QpInfo>,
}

impl<'a> EventContext<'a> {
    /// Answers Query QP by `query`.
    #[doc(hidden)]
    pub fn new(query: &'a dyn Fn(QpId) -> Option<QpInfo>) -> Self {
        Self { query }
    }

    /// Query QP (verbs draft §9.2.5.2): what the queue pair is like after what has happened; `None`
    /// if it was destroyed.
    pub fn query_qp(&self, qp: QpId) -> Option<QpInfo> {
        (self.query)(qp)
    }
}

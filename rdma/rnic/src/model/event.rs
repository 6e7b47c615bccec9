//! Asynchronous events (verbs draft §8.3.3, §9.5.3): events that are not the result of a work
//! request.

use xwarp_iwarp::TermCode;

use super::ids::{CqId, QpId, SrqId};
use super::inbound_error::InboundError;
use super::qp_info::QpInfo;

/// An event: the draft's Event Record (§9.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// The object that the event concerns.
    pub resource: EventResource,
    /// What has happened.
    pub kind: AsyncEventKind,
}

impl AsyncEvent {
    /// An event of this kind, for example to test a handler.
    pub fn new(resource: EventResource, kind: AsyncEventKind) -> Self {
        Self { resource, kind }
    }

    /// The queue pair, if the event concerns one.
    pub fn qp(&self) -> Option<QpId> {
        match self.resource {
            EventResource::Qp(qp) => Some(qp),
            EventResource::Cq(_) | EventResource::Srq(_) | EventResource::Rnic => None,
        }
    }
}

/// Resource Indicator and Resource Identifier of an event. The object may be destroyed by now; no
/// later object has its identity.
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
    /// LLP Close Complete: both sides have closed, and the queue pair is Idle again.
    Closed,
    /// Terminate Message Received: the peer found an error and ended the stream.
    TerminateReceived(TermCode),
    /// This side found an error in what the peer sent or requested, and ended the stream. It is one
    /// of the draft's integrity, remote operation and protection errors.
    Terminated {
        /// The error.
        error: InboundError,
        /// Code of the Terminate that was sent to the peer.
        code: TermCode,
        /// Description of the error.
        reason: String,
    },
    /// The connection has ended without any other event: a completion reports the cause, the
    /// application ended it, or the RNIC fails. All work was flushed. Reported only if
    /// [`QpConfig::report_ends`](crate::model::QpConfig::report_ends) is set.
    Ended,
    /// LLP Connection Reset: the peer has reset the connection.
    ConnectionReset,
    /// LLP Connection Lost: the peer does not answer, or did not close its side, or the connection
    /// failed during a close.
    ConnectionLost {
        /// What was observed.
        reason: &'static str,
    },
    /// Bad Close: this side closed, or the stream ended, while work or a message was incomplete.
    BadClose {
        /// What was incomplete.
        reason: &'static str,
    },
    /// Bad LLP Close: the peer has closed its side although outstanding work needs the peer. It
    /// receives Terminate 0/2/07.
    BadPeerClose {
        /// What was incomplete.
        reason: &'static str,
    },
    /// The completion queue of the send queue was full: the completion and the queue pair are lost
    /// (CQ/SQ Error).
    SendCqError,
    /// The completion queue of the receive queue was full: the completion and the queue pair are
    /// lost (CQ/RQ Error).
    RecvCqError,
    /// S-RQ error on a QP: the queue pair needed a buffer, and its shared receive queue has failed.
    /// The peer receives Terminate 0/2/07.
    SrqError,
    /// Local QP Catastrophic Error: the state of the queue pair is inconsistent, by a defect of
    /// this library. No work request can report it. The application should destroy the queue pair.
    QpCatastrophic {
        /// The inconsistency.
        reason: &'static str,
    },
    /// CQ Operation Error: the completion queue's handler has panicked, and is cleared. Completions
    /// can be polled, but raise no event.
    CqFailed,
    /// Shared Receive Queue Catastrophic Failure: its posted buffers are inconsistent, by a defect
    /// of this library.
    SrqFailed,
    /// CQ Overflow Detected: a completion queue was full for the first time.
    CqOverflow,
    /// A shared receive queue has fewer unused buffers than its limit. Reported once, until the
    /// limit is armed again.
    SrqLimitReached,
    /// QP RQ Limit Reached: more messages of a queue pair that has a shared receive queue are in
    /// progress than its limit ([`QpConfig::rq_limit`](crate::model::QpConfig::rq_limit)). Reported
    /// once, until the limit is armed again.
    RqLimitReached,
    /// Events were lost at this point, as earlier events were not taken (`RnicConfig::max_events`).
    /// The state of each object can be queried: `QueuePair::query` returns state and Terminate;
    /// `CompletionQueue::overflowed` and `SharedReceiveQueue::query` return the rest.
    EventsLost {
        /// Number of lost events.
        count: u64,
    },
    /// RNIC Catastrophic Failure: the interface is gone or stalled, its XDP program was detached or
    /// replaced, or this library has panicked. A panic ends all connections with 0/2/08. The
    /// application can only close the RNIC, and open it again.
    Failed {
        /// Cause of the failure.
        reason: String,
    },
}

/// Handler that is called with each asynchronous event.
pub type EventHandler = Box<dyn FnMut(&EventContext<'_>, &AsyncEvent) + Send>;

/// View of the RNIC for an event handler, which cannot call other verbs of that RNIC.
pub struct EventContext<'a> {
    query: &'a dyn Fn(QpId) -> Option<QpInfo>,
}

impl<'a> EventContext<'a> {
    /// Answers Query QP by calling `query`.
    #[doc(hidden)]
    pub fn new(query: &'a dyn Fn(QpId) -> Option<QpInfo>) -> Self {
        Self { query }
    }

    /// Query QP (verbs draft §9.2.5.2): the attributes of the queue pair after the event. `None` if
    /// it was destroyed.
    pub fn query_qp(&self, qp: QpId) -> Option<QpInfo> {
        (self.query)(qp)
    }
}

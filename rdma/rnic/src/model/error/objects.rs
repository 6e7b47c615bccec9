//! Errors of the verbs that create, change and destroy queues and queue pairs (verbs draft §9.2.2
//! to §9.2.5).

use super::{CapabilityError, OutOfMemory, RnicUnavailable};
use crate::model::qp_state::QpState;

/// Why a protection domain, completion queue, shared receive queue or queue pair was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// A value exceeds what the RNIC supports.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The host has no memory for the queues.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// There is no such completion event handler.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// The completion queue belongs to another RNIC, or was destroyed.
    #[error("the completion queue belongs to another RNIC")]
    InvalidCq,
    /// The completion channel belongs to another RNIC.
    #[error("the completion channel belongs to another RNIC")]
    InvalidChannel,
    /// The shared receive queue belongs to another RNIC.
    #[error("the shared receive queue belongs to another RNIC")]
    InvalidSrq,
    /// The limit exceeds the depth of the shared receive queue.
    #[error("a limit of {limit} is out of range: the shared receive queue holds {depth}")]
    LimitOutOfRange {
        /// The requested limit.
        limit: usize,
        /// Depth of the shared receive queue in work requests.
        depth: usize,
    },
    /// A limit of messages in progress was set for a queue pair with its own receive queue.
    #[error(
        "a limit of {0} messages in progress needs a shared receive queue (verbs draft §6.3.8)"
    )]
    LimitWithoutSrq(usize),
    /// The peer-to-peer model without an RTR type (R6581-9.2-1).
    #[error("a queue pair of the peer-to-peer model needs at least one RTR type (RFC 6581 §9.2)")]
    NoRtr,
    /// The peer-to-peer model is required, but the RNIC uses MPA revision 1 only.
    #[error(
        "the peer-to-peer model needs MPA revision 2 (RFC 6581 §9.2), and this RNIC was opened with revision 1 as the highest"
    )]
    NeedsRevisionTwo,
    /// A resource of the host is exhausted.
    #[error("the object could not be set up")]
    System(#[from] std::io::Error),
}

/// Why a queue was not resized. The queue is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The size exceeds what the RNIC supports.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The host has no memory for that size.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The entries in the queue do not fit.
    #[error("{present} elements are in the queue, so that it cannot be of {wanted}")]
    TooManyPresent {
        /// Number of entries in the queue.
        present: usize,
        /// The requested size.
        wanted: usize,
    },
}

/// Why a completion event handler was not set, replaced or cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// There is no such handler, or it was cleared.
    #[error("there is no such completion event handler")]
    Unknown,
    /// The RNIC has its maximum number of handlers.
    #[error("there are {0} completion event handlers already; clear some")]
    TooMany(usize),
}

/// Why an object was not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// Windows are bound to the object.
    #[error("memory windows are still bound to the queue pair")]
    WindowsBound,
    /// Queue pairs use the object.
    #[error("queue pairs still use it")]
    InUse,
    /// The protection domain still has this number of queue pairs, shared receive queues, regions
    /// and windows together.
    #[error(
        "{0} queue pairs, shared receive queues, regions and windows are still of the protection domain"
    )]
    DomainInUse(usize),
}

/// Why a queue pair was not modified. The queue pair is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// There is no such transition. In Closing and Terminate the application cannot request any.
    #[error("a queue pair cannot be taken from {from:?} to {to:?}")]
    InvalidStateChange {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// An attribute is not allowed with the transition, or a required one is missing.
    #[error("{what} with a change from {from:?} to {to:?}")]
    InvalidModifier {
        /// The attribute, and whether it is not allowed or missing.
        what: &'static str,
        /// The current state of the queue pair.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// The attribute cannot be changed in this way.
    #[error("{0} cannot be changed like this: it is settled when the queue pair is created")]
    CannotChange(&'static str),
    /// A value exceeds what the RNIC supports.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The host has no memory for work queues of that depth.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The outstanding work of a work queue does not fit.
    #[error("{present} work requests are outstanding in {what}, so that it cannot be of {wanted}")]
    TooManyPresent {
        /// Name of the queue.
        what: &'static str,
        /// Number of outstanding work requests.
        present: usize,
        /// The requested depth.
        wanted: usize,
    },
    /// The limit of messages in progress exceeds the depth of the shared receive queue.
    #[error("a limit of {limit} is out of range: the shared receive queue holds {depth}")]
    LimitOutOfRange {
        /// The requested limit.
        limit: usize,
        /// Depth of the shared receive queue in work requests.
        depth: usize,
    },
    /// Another handle posts to the work queues that are to be resized.
    #[error("the queue pair's data path was taken: its queues can be resized when it is back")]
    DataPathTaken,
    /// The stream belongs to another RNIC or to a queue pair already, or cannot both send and
    /// receive.
    #[error("the stream is not established, belongs to a queue pair already, or to another RNIC")]
    InvalidStream,
    /// The connection manager is connecting the queue pair.
    #[error("the queue pair is being connected")]
    Connecting,
}

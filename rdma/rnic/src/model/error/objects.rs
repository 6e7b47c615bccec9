//! Errors of the verbs that create, change and destroy queues and queue pairs (verbs draft §9.2.2
//! to §9.2.5).

use super::{CapabilityError, OutOfMemory, RnicUnavailable};
use crate::model::qp_state::QpState;

/// Why a protection domain, completion queue, shared receive queue or queue pair could not be
/// created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// More of something than the RNIC supports.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// No memory for its queues.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// No such completion event handler.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// A completion queue of another RNIC, or one that is gone.
    #[error("the completion queue belongs to another RNIC")]
    InvalidCq,
    /// A completion channel of another RNIC.
    #[error("the completion channel belongs to another RNIC")]
    InvalidChannel,
    /// A shared receive queue of another RNIC.
    #[error("the shared receive queue belongs to another RNIC")]
    InvalidSrq,
    /// A limit exceeds the depth of the shared receive queue that it is about.
    #[error("a limit of {limit} is out of range: the shared receive queue holds {depth}")]
    LimitOutOfRange {
        /// What was asked for.
        limit: usize,
        /// Work requests that it holds.
        depth: usize,
    },
    /// A limit of messages in progress for a queue pair with a receive queue of its own.
    #[error(
        "a limit of {0} messages in progress needs a shared receive queue (verbs draft §6.3.8)"
    )]
    LimitWithoutSrq(usize),
    /// The peer-to-peer model without an RTR (R6581-9.2-1).
    #[error("a queue pair of the peer-to-peer model needs at least one RTR type (RFC 6581 §9.2)")]
    NoRtr,
    /// The peer-to-peer model is required, and the RNIC speaks MPA revision 1 only.
    #[error(
        "the peer-to-peer model needs MPA revision 2 (RFC 6581 §9.2), and this RNIC was opened with revision 1 as the highest"
    )]
    NeedsRevisionTwo,
    /// A resource of the host.
    #[error("the object could not be set up")]
    System(#[from] std::io::Error),
}

/// Why a queue was not resized. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// More than the RNIC supports.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// No memory for it.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// What is in the queue does not fit.
    #[error("{present} elements are in the queue, so that it cannot be of {wanted}")]
    TooManyPresent {
        /// How many there are.
        present: usize,
        /// What was asked for.
        wanted: usize,
    },
}

/// Why nothing was done with a completion event handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// No such handler, or one that was cleared.
    #[error("there is no such completion event handler")]
    Unknown,
    /// The RNIC has as many as it can.
    #[error("there are {0} completion event handlers already; clear some")]
    TooMany(usize),
}

/// Why an object was not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// Windows are bound to it.
    #[error("memory windows are still bound to the queue pair")]
    WindowsBound,
    /// Queue pairs use it.
    #[error("queue pairs still use it")]
    InUse,
    /// The protection domain still has queue pairs, shared receive queues, regions or windows, in
    /// these numbers.
    #[error(
        "{0} queue pairs, shared receive queues, regions and windows are still of the protection domain"
    )]
    DomainInUse(usize),
}

/// Why a queue pair was not modified. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// There is no such transition, or the queue pair is in Closing or Terminate, where none can be
    /// asked for.
    #[error("a queue pair cannot be taken from {from:?} to {to:?}")]
    InvalidStateChange {
        /// The state that it is in.
        from: QpState,
        /// The state that was asked for.
        to: QpState,
    },
    /// An attribute does not go with the transition, or one that must is missing.
    #[error("{what} with a change from {from:?} to {to:?}")]
    InvalidModifier {
        /// What is there or is missing.
        what: &'static str,
        /// The state that the queue pair is in.
        from: QpState,
        /// The state that was asked for.
        to: QpState,
    },
    /// An attribute cannot be changed like this.
    #[error("{0} cannot be changed like this: it is settled when the queue pair is created")]
    CannotChange(&'static str),
    /// More of something than the RNIC supports.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// No memory for work queues of that depth.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// What is outstanding in a work queue does not fit.
    #[error("{present} work requests are outstanding in {what}, so that it cannot be of {wanted}")]
    TooManyPresent {
        /// Which queue.
        what: &'static str,
        /// How many there are.
        present: usize,
        /// What was asked for.
        wanted: usize,
    },
    /// A limit of messages in progress exceeds the depth of the shared receive queue.
    #[error("a limit of {limit} is out of range: the shared receive queue holds {depth}")]
    LimitOutOfRange {
        /// What was asked for.
        limit: usize,
        /// Work requests that it holds.
        depth: usize,
    },
    /// Another handle posts to the work queues that are to be resized.
    #[error("the queue pair's data path was taken: its queues can be resized when it is back")]
    DataPathTaken,
    /// The stream is one of another RNIC, or belongs to a queue pair, or is not able to send and to
    /// receive.
    #[error("the stream is not established, belongs to a queue pair already, or to another RNIC")]
    InvalidStream,
    /// A connection is being made for it by the connection manager.
    #[error("the queue pair is being connected")]
    Connecting,
}

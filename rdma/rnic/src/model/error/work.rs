//! Errors of the verbs that post work (verbs draft §9.3.1).

use xwarp_driver::OutOfBounds;

use super::RnicUnavailable;
use crate::model::qp_state::QpState;

/// Why a work request was not posted. Nothing of it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The queue is full.
    #[error("too many work requests posted: the queue holds {0}; poll completions first")]
    TooManyWorkRequests(usize),
    /// What posts is left of a queue pair that is gone.
    #[error("the queue pair is destroyed")]
    Destroyed,
    /// The queue pair has left RTS.
    #[error("the queue pair is in state {0:?}, where nothing can be posted")]
    InvalidState(QpState),
    /// A message of 4 GiB or more.
    #[error("the message is longer than 2^32 - 1 bytes (RFC 5041 §5.2)")]
    TooLong,
    /// A list of more elements than the queue was created for (verbs draft §9.5.1, Invalid
    /// Scatter/Gather list length).
    #[error("the list has {elements} elements, the queue was created for {max} at most")]
    TooManyElements {
        /// Those of the list.
        elements: usize,
        /// Those that a list may have.
        max: usize,
    },
    /// More inline data than the queue pair was created for.
    #[error(
        "the work request has {len} inline bytes, the queue pair was created for {max} at most"
    )]
    TooManyInlineBytes {
        /// Those of the work request.
        len: usize,
        /// Those that one may have.
        max: usize,
    },
    /// `STag` 0 can be neither bound to, registered nor invalidated (verbs draft §7.2.1).
    #[error("STag 0 can be neither bound to, registered nor invalidated (verbs draft §7.2.1)")]
    StagZero,
    /// Another handle posts to the queue pair.
    #[error("the queue pair's data path was taken: post there, or give it back first")]
    DataPathTaken,
    /// The queue pair takes its receive buffers from a shared receive queue.
    #[error("the queue pair has a shared receive queue: post receive buffers there")]
    SharedReceiveQueue,
    /// An operation of RFC 7306 on a queue pair that was made without.
    #[error("the queue pair was created without Immediate Data and Atomic Operations (RFC 7306)")]
    ExtensionsDisabled,
    /// An exclusive buffer of another RNIC.
    #[error("the buffer belongs to another RNIC")]
    OtherRnic,
    /// A message that is longer than the exclusive buffer that it shall be taken from.
    #[error("the message leaves its buffer")]
    OutOfBounds(#[from] OutOfBounds),
}

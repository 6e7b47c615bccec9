//! Errors of the verbs that post work (verbs draft §9.3.1).

use xwarp_driver::OutOfBounds;

use super::RnicUnavailable;
use crate::model::qp_state::QpState;

/// Why a work request was not posted. It has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The queue is full.
    #[error("too many work requests posted: the queue holds {0}; poll completions first")]
    TooManyWorkRequests(usize),
    /// The queue pair of this posting handle was destroyed.
    #[error("the queue pair is destroyed")]
    Destroyed,
    /// The queue pair has left RTS.
    #[error("the queue pair is in state {0:?}, where nothing can be posted")]
    InvalidState(QpState),
    /// The message has 4 GiB or more.
    #[error("the message is longer than 2^32 - 1 bytes (RFC 5041 §5.2)")]
    TooLong,
    /// The list has more elements than the queue was created for (verbs draft §9.5.1, Invalid
    /// Scatter/Gather list length).
    #[error("the list has {elements} elements, the queue was created for {max} at most")]
    TooManyElements {
        /// Elements of the list.
        elements: usize,
        /// Maximum number of elements.
        max: usize,
    },
    /// The request has more inline data than the queue pair was created for.
    #[error(
        "the work request has {len} inline bytes, the queue pair was created for {max} at most"
    )]
    TooManyInlineBytes {
        /// Inline bytes of the work request.
        len: usize,
        /// Maximum number of inline bytes.
        max: usize,
    },
    /// `STag` 0 cannot be bound to, registered or invalidated (verbs draft §7.2.1).
    #[error("STag 0 can be neither bound to, registered nor invalidated (verbs draft §7.2.1)")]
    StagZero,
    /// Another handle posts to the queue pair.
    #[error("the queue pair's data path was taken: post there, or give it back first")]
    DataPathTaken,
    /// The queue pair takes its receive buffers from a shared receive queue.
    #[error("the queue pair has a shared receive queue: post receive buffers there")]
    SharedReceiveQueue,
    /// The operation is one of RFC 7306, and the queue pair was created without them.
    #[error("the queue pair was created without Immediate Data and Atomic Operations (RFC 7306)")]
    ExtensionsDisabled,
    /// A Send with immediate data, which the queue pair's peer may not know.
    #[error("Sends with immediate data are not enabled on the queue pair (`send_immediates`)")]
    SendImmediatesDisabled,
    /// The exclusive buffer belongs to another RNIC.
    #[error("the buffer belongs to another RNIC")]
    OtherRnic,
    /// The message is longer than its exclusive buffer.
    #[error("the message leaves its buffer")]
    OutOfBounds(#[from] OutOfBounds),
}

//! Attributes of a queue pair, as Query QP returns them (verbs draft §9.2.5.2).

use xwarp_iwarp::ddp::UNTAGGED_HEADER_BYTES;
use xwarp_iwarp::{ReceivedTerminate, TermCode, Terminate};

use super::ids::{CqId, PdId, QpId, SrqId, StreamId};
use super::qp_state::QpState;

/// All attributes of a queue pair at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, as Query QP has them"
)]
#[non_exhaustive]
pub struct QpInfo {
    /// The queue pair's identity.
    pub id: QpId,
    /// Its state. A queue pair that `QueuePair::disconnect` closes is in Closing from the call on.
    pub state: QpState,
    /// Its protection domain.
    pub pd: PdId,
    /// Completion queue of its sends.
    pub send_cq: CqId,
    /// Completion queue of its receives.
    pub recv_cq: CqId,
    /// Shared receive queue of its receive buffers, if it has one.
    pub srq: Option<SrqId>,
    /// Work requests that the send queue holds.
    pub send_depth: usize,
    /// Work requests that the receive queue holds; 0 if it is shared.
    pub recv_depth: usize,
    /// Limit of messages in progress, if the receive queue is shared.
    pub rq_limit: Option<RqLimit>,
    /// Elements of a Send's scatter/gather list.
    pub send_sge: usize,
    /// Elements of an RDMA Write's scatter/gather list.
    pub write_sge: usize,
    /// Elements of a receive's scatter/gather list; 0 if the receive queue is shared, which has its
    /// own maximum.
    pub recv_sge: usize,
    /// Bytes of inline data that a work request may carry.
    pub max_inline: usize,
    /// Reads and Atomic Operations that this side may have outstanding: on the current connection,
    /// or without one on the next.
    pub ord: u16,
    /// IRD: Reads and Atomic Operations that the peer may have outstanding.
    pub ird: u16,
    /// Whether `STag` 0 and Fast-Register are allowed.
    pub privileged: bool,
    /// Whether the peer may read.
    pub inbound_read: bool,
    /// Whether the peer may write, by Writes and by the Responses to Reads of this side.
    pub inbound_write: bool,
    /// Whether the peer may use Atomic Operations.
    pub inbound_atomic: bool,
    /// Whether it may bind memory windows.
    pub bind_windows: bool,
    /// Whether the end of a connection is quiet while no request is unfinished.
    pub quiet_end: bool,
    /// Whether a message that finds no receive buffer waits for one.
    pub await_receives: bool,
    /// Whether Sends may carry immediate data.
    pub send_immediates: bool,
    /// Whether Sends and Writes complete when the peer has handled them.
    pub confirm_sends: bool,
    /// Whether the send queue has work requests that are not completed.
    pub has_sends: bool,
    /// The Terminate that was sent, should have been sent, or was received. Only in Terminate and
    /// Error, if there was one.
    pub terminate: Option<TerminateInfo>,
    /// The stream that connects it; `None` in Idle and Error.
    pub stream: Option<StreamId>,
}

/// How many messages may be in progress until
/// [`RqLimitReached`](crate::model::AsyncEventKind::RqLimitReached) is reported (verbs draft
/// §6.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RqLimit {
    /// Messages that have taken a buffer and not completed.
    pub limit: usize,
    /// Whether the event will be reported.
    pub armed: bool,
}

/// The side that found the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminateOrigin {
    /// This side.
    Local,
    /// The peer.
    Peer,
}

/// A Terminate Message (RFC 5040 §4.8). Of several simultaneous failures it reports the first
/// (verbs.md A34).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TerminateInfo {
    /// The side that found the error.
    pub origin: TerminateOrigin,
    /// The error.
    pub code: TermCode,
    /// The message from the Terminate Control field on: 4 bytes, and the returned part of the
    /// refused segment. It may not have reached the peer.
    pub message: Vec<u8>,
}

impl TerminateInfo {
    pub(crate) fn sent(terminate: &Terminate) -> Self {
        let ulpdu = terminate.ulpdu();
        Self {
            origin: TerminateOrigin::Local,
            code: terminate.code(),
            message: ulpdu
                .get(UNTAGGED_HEADER_BYTES..)
                .unwrap_or_default()
                .to_vec(),
        }
    }

    pub(crate) fn received(terminate: &ReceivedTerminate) -> Self {
        Self {
            origin: TerminateOrigin::Peer,
            code: terminate.code,
            message: terminate.message().to_vec(),
        }
    }
}

//! Work completions (verbs draft §8.1.3, §9.5.2).
//!
//! With `NicConfig::timestamps`, the completion of a receive or Read has the NIC's arrival time of
//! the frame with the last byte. There is none for bytes that were copied while they waited for
//! earlier ones, for frames of several chunks, and for frames from another engine: no time is
//! estimated. The time shares its place with the original value of an Atomic Operation, so that a
//! completion and its slot fit a cache line.

use std::fmt;
use std::time::Duration;

use xwarp_iwarp::{AccessError, Stag};

use super::ids::{QpId, WrId};
use super::memory::{PblMode, SpecError};

/// Kind of a completed work request (verbs draft §9.3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Opcode {
    /// A Send.
    Send,
    /// A Send with Solicited Event.
    SendSolicited,
    /// A Send with Invalidate.
    SendInvalidate,
    /// A Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    /// A Send with immediate data.
    SendImmediate,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// An RDMA Read with Invalidate Local `STag`.
    ReadInvalidate,
    /// A memory window was bound.
    Bind,
    /// Memory was registered.
    FastRegister,
    /// An `STag` was invalidated.
    Invalidate,
    /// Immediate Data.
    Immediate,
    /// An RDMA Write followed by Immediate Data.
    WriteImmediate,
    /// An atomic addition.
    FetchAdd,
    /// An atomic comparison and exchange.
    CompareSwap,
    /// A receive buffer.
    Receive,
    /// A receive buffer with the message of a Send that had immediate data.
    ReceiveImmediate,
}

impl Opcode {
    /// True for a Send of any kind.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendSolicited
                | Self::SendInvalidate
                | Self::SendSolicitedInvalidate
                | Self::SendImmediate
        )
    }
}

/// Result of a work request (verbs draft §9.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompletionStatus {
    /// The work request succeeded.
    Success,
    /// The connection ended before the work request was done. `QueuePair::why_ended` returns the
    /// cause.
    Flushed,
    /// The state of this side is inconsistent, by a defect of this library. The queue pair should
    /// be destroyed.
    LocalCatastrophic,
    /// The peer has ended the connection with a Terminate that returns a header of this work
    /// request's message. `QueuePair::query` returns the Terminate.
    RemoteTermination,
    /// A local `STag` is not usable for this operation. It names no region, an Invalid one, or, in
    /// a scatter/gather list, a window. Or a region to invalidate is shared or has windows. Or the
    /// peer asked to invalidate an `STag` that does not exist.
    InvalidStag,
    /// A local buffer or a window to bind leaves its region, or a receive buffer was too short.
    BaseBounds,
    /// A local region lacks a right: for the operation, for windows to be bound to it, or for the
    /// rights of a window. Or the queue pair may not bind windows.
    AccessViolation,
    /// A local region or window belongs to another protection domain, or exclusively to another
    /// queue pair.
    InvalidPd,
    /// A local Tagged Offset plus length exceeds 2^64. This includes a Read's sink, a window to
    /// bind and a region to register.
    Wrap,
    /// A Read or an Atomic Operation was posted to a queue pair that may have none outstanding (ORD
    /// 0).
    ZeroReadResources,
    /// The peer asked to invalidate an `STag` without the right to do so. The `STag` belongs to
    /// another stream or domain, or has no remote rights. Or it has bound windows, is one of shared
    /// memory, or is usable by several queue pairs.
    InvalidateRefused,
    /// A Fast-Register was posted to a queue pair that is not privileged.
    NotPrivileged,
    /// The window to bind is bound already, or the `STag` for a Fast-Register is Valid.
    StagNotInvalid,
    /// A Bind names no window.
    InvalidWindow,
    /// A Bind names no Valid region, or one whose Tagged Offsets begin at 0.
    InvalidRegion,
    /// A Fast-Register's pages have a size that is not supported.
    InvalidPageSize,
    /// A Fast-Register's blocks have a size that is not supported.
    InvalidBufferSize,
    /// A Fast-Register's list has an entry at an address where no entry may begin.
    InvalidListEntry,
    /// A Fast-Register's list has more entries than its `STag` was allocated for.
    ListTooLong,
    /// A Fast-Register's first byte offset lies outside the first entry.
    InvalidFirstByteOffset,
    /// A Fast-Register's region is longer than its list.
    InvalidLength,
    /// A Fast-Register's rights are no valid set, or conflict with its `STag`'s Remote Access Flag.
    InvalidRights,
    /// A Fast-Register's Tagged Offsets do not fit its list.
    InvalidVirtualAddress,
    /// Immediate Data or an Atomic Operation for a peer of the RDMA Consortium, whose protocol
    /// version 0 has neither. Or a Send with immediate data on a queue pair without
    /// [`send_immediates`](crate::model::QpConfig::send_immediates).
    NotInVersion,
}

impl CompletionStatus {
    /// The status of a refused local access.
    pub(crate) fn of_access(error: AccessError) -> Self {
        match error {
            AccessError::InvalidStag => Self::InvalidStag,
            AccessError::NotAssociated => Self::InvalidPd,
            AccessError::Rights => Self::AccessViolation,
            AccessError::Wrap => Self::Wrap,
            AccessError::Bounds => Self::BaseBounds,
        }
    }

    /// The status of a refused Fast-Register (verbs.md A27).
    pub(crate) fn of_spec(error: SpecError) -> Self {
        match error {
            SpecError::Rights(_) | SpecError::ReadOnlyMemory(_) => Self::InvalidRights,
            SpecError::VirtualAddress(_) => Self::InvalidVirtualAddress,
            SpecError::Wrap { .. } => Self::Wrap,
            SpecError::Length { .. } => Self::InvalidLength,
            SpecError::FirstByteOffset { .. } => Self::InvalidFirstByteOffset,
            SpecError::Entry { .. } => Self::InvalidListEntry,
            SpecError::EntrySize { mode, .. } => match mode {
                PblMode::Page => Self::InvalidPageSize,
                PblMode::Block => Self::InvalidBufferSize,
            },
            SpecError::TooManyEntries(_) => Self::ListTooLong,
        }
    }
}

impl fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Flushed => "flushed: the connection ended first",
            Self::LocalCatastrophic => "this side has lost track of the queue pair",
            Self::RemoteTermination => "the peer found an error in it and ended the connection",
            Self::InvalidStag => "a local STag names no usable region",
            Self::BaseBounds => "a local buffer leaves its region or was too short",
            Self::AccessViolation => "a local region lacks the access right",
            Self::InvalidPd => "a local region belongs to another protection domain or queue pair",
            Self::Wrap => "a local offset plus length passes 2^64",
            Self::ZeroReadResources => "the queue pair may have no Read or Atomic outstanding",
            Self::NotInVersion => "the peer's version of RDMAP has no such operation",
            Self::NotPrivileged => "the queue pair is not privileged",
            Self::StagNotInvalid => "the STag is not in state Invalid",
            Self::InvalidWindow => "the STag to bind is that of no memory window",
            Self::InvalidRegion => "the STag to bind to is that of no region that can have windows",
            Self::InvalidPageSize => "pages of that size are not supported",
            Self::InvalidBufferSize => "blocks of that size are not supported",
            Self::InvalidListEntry => {
                "an entry of the physical buffer list is not aligned or outside"
            }
            Self::ListTooLong => "the physical buffer list is longer than the STag was made for",
            Self::InvalidFirstByteOffset => "the first byte offset exceeds the first entry",
            Self::InvalidLength => "the region is longer than its list",
            Self::InvalidRights => "the access rights do not go together",
            Self::InvalidVirtualAddress => "the Tagged Offsets do not fit the list",
            Self::InvalidateRefused => "the peer asked to invalidate what it may not",
        })
    }
}

/// Completion of one work request (verbs draft §9.3.2.1). If it was unsuccessful, only `wr_id`,
/// `qp`, `opcode` and `status` are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkCompletion {
    /// The application's ID of the work request.
    pub wr_id: WrId,
    /// The queue pair that the work was posted to, or that took the buffer.
    pub qp: QpId,
    /// The kind of the work request.
    pub opcode: Opcode,
    /// Success, or the cause of the failure (verbs draft §9.5.2).
    pub status: CompletionStatus,
    /// Bytes of the message: sent, read, or placed into the receive buffer. Immediate Data does not
    /// count. For a receive that it completes: the bytes of the Write right before it, on a queue
    /// pair with [`send_immediates`](crate::model::QpConfig::send_immediates), else 0.
    pub byte_len: u32,
    /// `STag` of a region that the received Send invalidated on this side.
    pub invalidated: Option<Stag>,
    /// Whether the received message requested a Solicited Event.
    pub solicited: bool,
    /// The received Immediate Data. The receive buffer is unchanged then. Or the immediate data of
    /// a Send ([`Opcode::ReceiveImmediate`]): the first four bytes, and the others are 0.
    pub immediate: Option<[u8; 8]>,
    pub(crate) detail: Detail,
}

/// Further information of a completion. There is at most one, as a cache line has room for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    #[default]
    Nothing,
    /// The value in the peer's memory before the Atomic Operation.
    Original(u64),
    /// When the NIC received the frame that completed the work request.
    Arrival(Duration),
}

impl Detail {
    /// An arrival, if its time is known.
    pub(crate) fn of_arrival(time: Option<Duration>) -> Self {
        time.map_or(Self::Nothing, Self::Arrival)
    }
}

impl WorkCompletion {
    /// A completion without further information.
    pub(crate) fn new(
        wr_id: WrId,
        qp: QpId,
        opcode: Opcode,
        status: CompletionStatus,
        byte_len: u32,
    ) -> Self {
        Self {
            wr_id,
            qp,
            opcode,
            status,
            byte_len,
            invalidated: None,
            solicited: false,
            immediate: None,
            detail: Detail::Nothing,
        }
    }

    /// A placeholder for an array that completions are polled into. It belongs to no work request,
    /// and is no success.
    pub fn empty() -> Self {
        let (opcode, status) = (Opcode::Send, CompletionStatus::Flushed);
        Self::new(WrId(0), QpId::new(0, 0), opcode, status, 0)
    }

    /// The value in the peer's memory before the Atomic Operation, as a number.
    pub fn original(&self) -> Option<u64> {
        match self.detail {
            Detail::Original(original) => Some(original),
            Detail::Nothing | Detail::Arrival(_) => None,
        }
    }

    /// When the NIC received the end of the message that completed this receive, or of the response
    /// that completed this Read. The time is the NIC's, whose clock may differ from the host's.
    ///
    /// `None` unless timestamps were enabled when the RNIC was opened (`NicConfig::timestamps`),
    /// and for other work requests. Also `None` if the NIC provided no time, or if bytes were
    /// copied while they waited for earlier ones.
    pub fn timestamp(&self) -> Option<Duration> {
        match self.detail {
            Detail::Arrival(time) => Some(time),
            Detail::Nothing | Detail::Original(_) => None,
        }
    }

    /// True if the work request succeeded.
    pub fn is_success(&self) -> bool {
        self.status == CompletionStatus::Success
    }
}

//! Work completions (verbs draft §8.1.3, §9.5.2).

use std::fmt;

use xwarp_iwarp::Stag;

use crate::qp::QpId;
use crate::work::WrId;

/// Which kind of work request has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A Send.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
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
}

/// How a work request ended (verbs draft §9.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// Done.
    Success,
    /// Not done, because the queue pair left RTS before.
    Flushed,
    /// A local `STag` names no region that may be used for this, or the peer asked to invalidate one that does not exist.
    InvalidStag,
    /// A local buffer leaves its region, or a receive buffer was too short.
    BaseBounds,
    /// A local region lacks the right.
    AccessViolation,
    /// A local region belongs to another protection domain, or to another queue pair alone.
    InvalidPd,
    /// A local Tagged Offset plus length passes 2^64.
    Wrap,
    /// A Read or an Atomic Operation was posted on a queue pair that may have none outstanding (ORD 0).
    ZeroReadResources,
    /// The peer asked to invalidate what it may not: a region of others, without remote rights, or that several queue pairs share.
    InvalidateRefused,
    /// Immediate Data or an Atomic Operation towards a peer of the RDMA Consortium, whose version 0 has neither.
    NotInVersion,
}

impl fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Flushed => "flushed: the connection ended first",
            Self::InvalidStag => "a local STag names no usable region",
            Self::BaseBounds => "a local buffer leaves its region or was too short",
            Self::AccessViolation => "a local region lacks the access right",
            Self::InvalidPd => "a local region belongs to another protection domain or queue pair",
            Self::Wrap => "a local offset plus length passes 2^64",
            Self::ZeroReadResources => "the queue pair may have no Read or Atomic outstanding",
            Self::NotInVersion => "the peer's version of RDMAP has no such operation",
            Self::InvalidateRefused => "the peer asked to invalidate what it may not",
        })
    }
}

/// The end of one work request. Of an unsuccessful one only `wr_id`, `qp`, `opcode` and `status` mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The work request's name.
    pub wr_id: WrId,
    /// Its queue pair.
    pub qp: QpId,
    /// Its kind.
    pub opcode: Opcode,
    /// How it ended.
    pub status: CompletionStatus,
    /// Octets of the message: what was sent, read, or placed into the receive buffer. Immediate Data does not count.
    pub byte_len: u32,
    /// A region that the received Send invalidated here.
    pub invalidated: Option<Stag>,
    /// The received message asked for an event.
    pub solicited: bool,
    /// Immediate Data was received: it is here, and the buffer is as it was.
    pub immediate: Option<[u8; 8]>,
    /// What was in the peer's memory before the Atomic Operation, as a number.
    pub original: Option<u64>,
}

impl WorkCompletion {
    /// A completion that says no more than this.
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
            original: None,
        }
    }

    /// True if the work was done.
    pub fn is_success(&self) -> bool {
        self.status == CompletionStatus::Success
    }
}

//! Work requests: what an application posts (verbs draft §8.1, §9.3.1).

use arrayvec::ArrayVec;
use xwarp_iwarp::rdmap::IMMEDIATE_BYTES;
use xwarp_iwarp::{AtomicOperation, Stag};

use crate::completion::Opcode;
use crate::memory::{Bind, FastRegister, MemoryWork};

/// Octets that an Atomic Operation works on.
pub(crate) const OPERAND: u32 = 8;

/// Elements that a scatter/gather list may have.
pub const MAX_SGE: usize = 4;

/// An application's name for a work request; comes back in its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WrId(pub u64);

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region.
    pub stag: Stag,
    /// Tagged Offset of the first octet.
    pub to: u64,
    /// Octets. With 0 the `STag` is not looked at.
    pub len: u32,
}

/// A scatter/gather list: pieces that follow each other in the message.
pub type Sgl = ArrayVec<Sge, MAX_SGE>;

impl From<Sge> for Sgl {
    fn from(sge: Sge) -> Self {
        Self::from_iter([sge])
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The peer's region.
    pub stag: Stag,
    /// Tagged Offset of the first octet.
    pub to: u64,
}

/// What Immediate Data carries.
pub type Immediate = [u8; IMMEDIATE_BYTES];

/// What a work request of the send queue does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message that the peer receives into a buffer which it posted (RFC 5040 §5.3).
    Send {
        /// The message's octets.
        sgl: Sgl,
        /// Asks for an event at the peer when the message is received.
        solicited: bool,
        /// A region of the peer that it shall invalidate when it receives the message.
        invalidate: Option<Stag>,
    },
    /// Writes into the peer's memory (RFC 5040 §5.1).
    Write {
        /// What to write.
        sgl: Sgl,
        /// Where to.
        remote: RemoteAddress,
    },
    /// Reads from the peer's memory (RFC 5040 §5.2).
    Read {
        /// Where to; the region needs [`Access::REMOTE_WRITE`](crate::Access::REMOTE_WRITE), as the peer writes it.
        sink: Sge,
        /// What to read.
        remote: RemoteAddress,
        /// Whether the sink's `STag` is invalidated when all is there, before the completion (verbs draft §8.1.2.2).
        invalidate_sink: bool,
    },
    /// Sends eight octets that end a receive of the peer's and come in its completion (RFC 7306 §6).
    Immediate {
        /// The octets.
        data: Immediate,
        /// Asks for an event at the peer when they are received.
        solicited: bool,
    },
    /// Writes into the peer's memory, then sends Immediate Data, which the peer receives when the Write is placed (RFC 7306
    /// §6): two messages, one completion.
    WriteImmediate {
        /// What to write.
        sgl: Sgl,
        /// Where to.
        remote: RemoteAddress,
        /// What the peer's completion will say.
        data: Immediate,
        /// Asks for an event at the peer when all is there.
        solicited: bool,
    },
    /// Changes eight octets of the peer's memory atomically with all other such operations of its RNIC (RFC 7306 §5). What they
    /// held before comes in the completion.
    Atomic {
        /// The change. It is made to a number in the order of octets of the peer's memory.
        operation: AtomicOperation,
        /// Which octets: 8-aligned in the peer's memory, in a region with
        /// [`Access::REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC).
        remote: RemoteAddress,
        /// Eight octets of a region with [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE) that also get what was there before,
        /// in this host's order of octets. They need no alignment.
        sink: Option<Sge>,
    },
    /// Changes a region or window of this side. Nothing is sent.
    Memory(MemoryWork),
}

impl Operation {
    /// Octets of the message; `None` when they are more than 2^32 - 1 (RFC 5041 §5.2).
    pub(crate) fn len(&self) -> Option<u32> {
        match self {
            Self::Send { sgl, .. } | Self::Write { sgl, .. } | Self::WriteImmediate { sgl, .. } => {
                total(sgl)
            }
            Self::Read { sink, .. } => Some(sink.len),
            Self::Immediate { .. } | Self::Memory(_) => Some(0),
            Self::Atomic { .. } => Some(OPERAND),
        }
    }

    /// Which completion it has.
    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Write { .. } => Opcode::Write,
            Self::Read {
                invalidate_sink, ..
            } => match invalidate_sink {
                false => Opcode::Read,
                true => Opcode::ReadInvalidate,
            },
            Self::Memory(work) => work.opcode(),
            Self::Immediate { .. } => Opcode::Immediate,
            Self::WriteImmediate { .. } => Opcode::WriteImmediate,
            Self::Atomic { operation, .. } => match operation {
                AtomicOperation::FetchAdd { .. } => Opcode::FetchAdd,
                AtomicOperation::CompareSwap { .. } => Opcode::CompareSwap,
            },
        }
    }

    /// True for what only RFC 7306 knows.
    pub(crate) fn is_extension(&self) -> bool {
        match self {
            Self::Send { .. } | Self::Write { .. } | Self::Read { .. } | Self::Memory(_) => false,
            Self::Immediate { .. } | Self::WriteImmediate { .. } | Self::Atomic { .. } => true,
        }
    }

    /// True for what the peer answers: it is bounded by ORD (R7306-5.2-1).
    pub(crate) fn awaits_response(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Atomic { .. } => true,
            Self::Send { .. }
            | Self::Write { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Memory(_) => false,
        }
    }

    /// What is invalidated when the peer has answered.
    pub(crate) fn sink_to_invalidate(&self) -> Option<Stag> {
        match self {
            Self::Read {
                sink,
                invalidate_sink: true,
                ..
            } => Some(sink.stag),
            Self::Send { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Atomic { .. }
            | Self::Memory(_) => None,
        }
    }

    /// True for what the peer notices.
    pub(crate) fn sends(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// True for what begins only when all earlier work is complete.
    pub(crate) fn has_local_fence(&self) -> bool {
        matches!(self, Self::Memory(work) if work.has_local_fence())
    }

    /// True if it would change what `STag` 0 means, or bind a window to it (verbs draft §7.2.1).
    pub(crate) fn works_on_stag_zero(&self) -> bool {
        matches!(self, Self::Memory(work) if work.names_index_zero())
    }

    /// Where this side places what the peer returns in no tagged message: what an Atomic Operation has found.
    pub(crate) fn result_sink(&self) -> Option<Sge> {
        match self {
            Self::Atomic { sink, .. } => *sink,
            Self::Send { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Memory(_) => None,
        }
    }

    /// True if it has the peer or this side access `STag` 0, which names no region at all (verbs draft §7.10.6). With no octets
    /// nothing is accessed.
    pub(crate) fn names_stag_zero(&self) -> bool {
        let zero = Stag(0);
        self.len() != Some(0)
            && match self {
                Self::Send { .. } | Self::Immediate { .. } | Self::Memory(_) => false,
                Self::Write { remote, .. } | Self::WriteImmediate { remote, .. } => {
                    remote.stag == zero
                }
                Self::Read { sink, remote, .. } => sink.stag == zero || remote.stag == zero,
                Self::Atomic { sink, remote, .. } => {
                    remote.stag == zero || sink.is_some_and(|sink| sink.stag == zero)
                }
            }
    }
}

/// Octets of all elements.
pub(crate) fn total(sgl: &[Sge]) -> Option<u32> {
    sgl.iter()
        .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
}

/// A work request for the send queue. Signaled and without a fence unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's name for it.
    pub wr_id: WrId,
    /// What to do.
    pub operation: Operation,
    /// Whether success is reported by a completion; failure always is.
    pub signaled: bool,
    /// Waits until all earlier Reads and Atomic Operations of this queue pair have completed (verbs draft §8.2.2.1).
    pub read_fence: bool,
}

impl SendRequest {
    /// Any operation.
    pub fn new(wr_id: WrId, operation: Operation) -> Self {
        Self {
            wr_id,
            operation,
            signaled: true,
            read_fence: false,
        }
    }

    /// A Send.
    pub fn send(wr_id: WrId, sgl: impl Into<Sgl>) -> Self {
        let operation = Operation::Send {
            sgl: sgl.into(),
            solicited: false,
            invalidate: None,
        };
        Self::new(wr_id, operation)
    }

    /// An RDMA Write.
    pub fn write(wr_id: WrId, sgl: impl Into<Sgl>, remote: RemoteAddress) -> Self {
        let operation = Operation::Write {
            sgl: sgl.into(),
            remote,
        };
        Self::new(wr_id, operation)
    }

    /// An RDMA Read.
    pub fn read(wr_id: WrId, sink: Sge, remote: RemoteAddress) -> Self {
        let operation = Operation::Read {
            sink,
            remote,
            invalidate_sink: false,
        };
        Self::new(wr_id, operation)
    }

    /// The binding of a memory window.
    pub fn bind(wr_id: WrId, bind: Bind) -> Self {
        Self::new(wr_id, Operation::Memory(MemoryWork::Bind(bind)))
    }

    /// A registration of memory with an `STag` that is there already.
    pub fn fast_register(wr_id: WrId, request: FastRegister) -> Self {
        let work = MemoryWork::FastRegister(Box::new(request));
        Self::new(wr_id, Operation::Memory(work))
    }

    /// The invalidation of an `STag` of this side, without a Local Fence.
    pub fn invalidate(wr_id: WrId, stag: Stag) -> Self {
        let local_fence = false;
        let work = MemoryWork::Invalidate { stag, local_fence };
        Self::new(wr_id, Operation::Memory(work))
    }

    /// Immediate Data.
    pub fn immediate(wr_id: WrId, data: Immediate) -> Self {
        let solicited = false;
        Self::new(wr_id, Operation::Immediate { data, solicited })
    }

    /// An RDMA Write followed by Immediate Data.
    pub fn write_immediate(
        wr_id: WrId,
        sgl: impl Into<Sgl>,
        remote: RemoteAddress,
        data: Immediate,
    ) -> Self {
        let operation = Operation::WriteImmediate {
            sgl: sgl.into(),
            remote,
            data,
            solicited: false,
        };
        Self::new(wr_id, operation)
    }

    /// An atomic addition, without overflow from one masked field into the next, or a masked comparison and exchange.
    pub fn atomic(wr_id: WrId, operation: AtomicOperation, remote: RemoteAddress) -> Self {
        let operation = Operation::Atomic {
            operation,
            remote,
            sink: None,
        };
        Self::new(wr_id, operation)
    }

    /// An atomic addition of 64 bits, modulo 2^64.
    pub fn fetch_add(wr_id: WrId, add: u64, remote: RemoteAddress) -> Self {
        Self::atomic(wr_id, AtomicOperation::FetchAdd { add, mask: 0 }, remote)
    }

    /// Puts `swap` where `compare` is, atomically.
    pub fn compare_swap(wr_id: WrId, compare: u64, swap: u64, remote: RemoteAddress) -> Self {
        let operation = AtomicOperation::CompareSwap {
            compare,
            compare_mask: u64::MAX,
            swap,
            swap_mask: u64::MAX,
        };
        Self::atomic(wr_id, operation, remote)
    }

    /// Puts `swap` into place whatever is there, atomically: a comparison of no bits.
    pub fn swap(wr_id: WrId, swap: u64, remote: RemoteAddress) -> Self {
        let operation = AtomicOperation::CompareSwap {
            compare: 0,
            compare_mask: 0,
            swap,
            swap_mask: u64::MAX,
        };
        Self::atomic(wr_id, operation, remote)
    }

    /// The same, with what an Atomic Operation returns placed into `sink`, too. Means nothing to other operations.
    #[must_use]
    pub fn into_sink(mut self, place: Sge) -> Self {
        if let Operation::Atomic { sink, .. } = &mut self.operation {
            *sink = Some(place);
        }
        self
    }

    /// The same, asking for an event at the peer when it has received the message. Means nothing to operations that the peer's
    /// application does not learn of.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        match &mut self.operation {
            Operation::Send { solicited, .. }
            | Operation::Immediate { solicited, .. }
            | Operation::WriteImmediate { solicited, .. } => *solicited = true,
            Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::Atomic { .. }
            | Operation::Memory(_) => {}
        }
        self
    }

    /// The same, reporting only failure.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.signaled = false;
        self
    }

    /// The same, waiting for earlier Reads and Atomic Operations.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.read_fence = true;
        self
    }

    /// The same, waiting for all earlier work. Means nothing to operations other than the invalidation of an `STag` of this side.
    #[must_use]
    pub fn locally_fenced(mut self) -> Self {
        if let Operation::Memory(MemoryWork::Invalidate { local_fence, .. }) = &mut self.operation {
            *local_fence = true;
        }
        self
    }

    /// The same, with the sink's `STag` invalidated when a Read is complete. Means nothing to other operations.
    #[must_use]
    pub fn invalidating_sink(mut self) -> Self {
        if let Operation::Read {
            invalidate_sink, ..
        } = &mut self.operation
        {
            *invalidate_sink = true;
        }
        self
    }
}

/// A work request for the receive queue: a buffer for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvRequest {
    /// The application's name for it.
    pub wr_id: WrId,
    /// Where the message goes.
    pub sgl: Sgl,
}

impl RecvRequest {
    /// A buffer.
    pub fn new(wr_id: WrId, sgl: impl Into<Sgl>) -> Self {
        Self {
            wr_id,
            sgl: sgl.into(),
        }
    }
}

//! Operations of work requests.

use xwarp_iwarp::rdmap::IMMEDIATE_BYTES;
use xwarp_iwarp::{AtomicOperation, Stag};

use super::payload::Payload;
use crate::model::completion::Opcode;
use crate::model::memory::MemoryOperation;
use crate::model::sge::{RemoteAddress, Sge};

/// Bytes of Immediate Data.
pub type Immediate = [u8; IMMEDIATE_BYTES];

/// Length of an Atomic Operation's operand in bytes.
pub const OPERAND: u32 = 8;

/// Operation of a work request of the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Sends a message into a receive buffer of the peer (RFC 5040 §5.3).
    Send {
        /// The message's bytes.
        payload: Payload,
        /// Whether the peer receives a Solicited Event.
        solicited: bool,
        /// `STag` of the peer's region to invalidate when the peer receives the message.
        invalidate: Option<Stag>,
    },
    /// Sends a message into a receive buffer of the peer, and four bytes for the peer's completion.
    /// No RFC has that. Both sides need
    /// [`QpConfig::send_immediates`](crate::model::QpConfig::send_immediates).
    SendImmediate {
        /// The message's bytes.
        payload: Payload,
        /// Bytes for the peer's completion.
        data: [u8; 4],
        /// Whether the peer receives a Solicited Event.
        solicited: bool,
    },
    /// Writes into the peer's memory (RFC 5040 §5.1).
    Write {
        /// Bytes to write.
        payload: Payload,
        /// Address in the peer's memory.
        remote: RemoteAddress,
    },
    /// Reads from the peer's memory (RFC 5040 §5.2).
    Read {
        /// Local memory for the bytes. The region needs
        /// [`Access::REMOTE_WRITE`](crate::model::Access::REMOTE_WRITE), as the peer writes it,
        /// unless [`QpConfig::local_read_sinks`](crate::model::QpConfig::local_read_sinks) is set.
        sink: Sge,
        /// Address in the peer's memory.
        remote: RemoteAddress,
        /// Whether the sink's `STag` is invalidated when all bytes have arrived, before the
        /// completion (verbs draft §8.1.2.2).
        invalidate_sink: bool,
    },
    /// Sends eight bytes that complete a receive of the peer, and are part of its completion (RFC
    /// 7306 §6).
    Immediate {
        /// The bytes.
        data: Immediate,
        /// Whether the peer receives a Solicited Event.
        solicited: bool,
    },
    /// Writes into the peer's memory, then sends Immediate Data, which the peer receives once the
    /// Write is placed (RFC 7306 §6): two messages, one completion.
    WriteImmediate {
        /// Bytes to write.
        payload: Payload,
        /// Address in the peer's memory.
        remote: RemoteAddress,
        /// Immediate Data of the peer's completion.
        data: Immediate,
        /// Whether the peer receives a Solicited Event.
        solicited: bool,
    },
    /// Changes eight bytes of the peer's memory, atomically with all other Atomic Operations of the
    /// peer's RNIC (RFC 7306 §5). The completion returns the original value.
    Atomic {
        /// The change of a number that is in the byte order of the peer's memory.
        operation: AtomicOperation,
        /// Address of the bytes: 8-aligned in the peer's memory, in a region with
        /// [`Access::REMOTE_ATOMIC`](crate::model::Access::REMOTE_ATOMIC).
        remote: RemoteAddress,
        /// Eight bytes of a region with [`Access::LOCAL_WRITE`](crate::model::Access::LOCAL_WRITE)
        /// where the original value is stored, too, in this host's byte order. They need no
        /// alignment.
        sink: Option<Sge>,
    },
    /// Changes a region or window of this side. Nothing is sent.
    Memory(MemoryOperation),
}

impl Operation {
    /// Length of the message in bytes; `None` if it exceeds 2^32 - 1 (RFC 5041 §5.2).
    #[doc(hidden)]
    pub fn byte_len(&self) -> Option<u32> {
        match self {
            Self::Send { payload, .. }
            | Self::SendImmediate { payload, .. }
            | Self::Write { payload, .. }
            | Self::WriteImmediate { payload, .. } => payload.byte_len(),
            Self::Read { sink, .. } => Some(sink.len),
            Self::Immediate { .. } | Self::Memory(_) => Some(0),
            Self::Atomic { .. } => Some(OPERAND),
        }
    }

    /// Opcode of its completion.
    #[inline]
    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            Self::Send {
                solicited,
                invalidate,
                ..
            } => match (solicited, invalidate) {
                (false, None) => Opcode::Send,
                (true, None) => Opcode::SendSolicited,
                (false, Some(_)) => Opcode::SendInvalidate,
                (true, Some(_)) => Opcode::SendSolicitedInvalidate,
            },
            Self::SendImmediate { .. } => Opcode::SendImmediate,
            Self::Write { .. } => Opcode::Write,
            Self::Read {
                invalidate_sink, ..
            } => match invalidate_sink {
                false => Opcode::Read,
                true => Opcode::ReadInvalidate,
            },
            Self::Memory(work) => match work {
                MemoryOperation::Bind(_) => Opcode::Bind,
                MemoryOperation::FastRegister(_) => Opcode::FastRegister,
                MemoryOperation::Invalidate { .. } => Opcode::Invalidate,
            },
            Self::Immediate { .. } => Opcode::Immediate,
            Self::WriteImmediate { .. } => Opcode::WriteImmediate,
            Self::Atomic { operation, .. } => match operation {
                AtomicOperation::FetchAdd { .. } => Opcode::FetchAdd,
                AtomicOperation::CompareSwap { .. } => Opcode::CompareSwap,
            },
        }
    }

    /// True for the operations of RFC 7306.
    #[doc(hidden)]
    pub fn is_extension(&self) -> bool {
        match self {
            Self::Send { .. }
            | Self::SendImmediate { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Memory(_) => false,
            Self::Immediate { .. } | Self::WriteImmediate { .. } | Self::Atomic { .. } => true,
        }
    }

    /// True if the peer responds, so that ORD bounds the number of operations (R7306-5.2-1).
    pub(crate) fn awaits_response(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Atomic { .. } => true,
            Self::Send { .. }
            | Self::SendImmediate { .. }
            | Self::Write { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Memory(_) => false,
        }
    }

    /// The `STag` to invalidate once the peer has responded.
    pub(crate) fn sink_to_invalidate(&self) -> Option<Stag> {
        match self {
            Self::Read {
                sink,
                invalidate_sink: true,
                ..
            } => Some(sink.stag),
            Self::Send { .. }
            | Self::SendImmediate { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Atomic { .. }
            | Self::Memory(_) => None,
        }
    }

    /// True if the operation sends a message.
    pub(crate) fn sends(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// True if a Read Fence can delay the operation (verbs draft figure 27, and RFC 7306's
    /// additions): Reads are answered in order anyway.
    pub(crate) fn has_read_fence(&self) -> bool {
        match self {
            Self::Send { .. }
            | Self::SendImmediate { .. }
            | Self::Write { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Atomic { .. } => true,
            Self::Read { .. } | Self::Memory(_) => false,
        }
    }

    /// True if the operation begins only when all earlier work is complete.
    pub(crate) fn has_local_fence(&self) -> bool {
        matches!(self, Self::Memory(work) if work.has_local_fence())
    }

    /// True if it would register, invalidate or bind to `STag` 0 (verbs draft §7.2.1).
    #[doc(hidden)]
    pub fn works_on_stag_zero(&self) -> bool {
        matches!(self, Self::Memory(work) if work.names_index_zero())
    }

    /// Where this side places a result that arrives in no tagged message: the original value of an
    /// Atomic Operation.
    pub(crate) fn result_sink(&self) -> Option<Sge> {
        match self {
            Self::Atomic { sink, .. } => *sink,
            Self::Send { .. }
            | Self::SendImmediate { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Memory(_) => None,
        }
    }

    /// True for a Read whose sink exceeds 2^64: no response could be placed there.
    pub(crate) fn has_wrapping_sink(&self) -> bool {
        let Self::Read { sink, .. } = self else {
            return false;
        };
        sink.to.checked_add(sink.len.into()).is_none()
    }

    /// True if it accesses `STag` 0 on the peer or on this side, which names no region (verbs draft
    /// §7.10.6). An operation of no bytes accesses nothing.
    pub(crate) fn names_stag_zero(&self) -> bool {
        let zero = Stag(0);
        self.byte_len() != Some(0)
            && match self {
                Self::Send { .. }
                | Self::SendImmediate { .. }
                | Self::Immediate { .. }
                | Self::Memory(_) => false,
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

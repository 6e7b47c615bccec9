//! Operations of work requests.

use xwarp_iwarp::rdmap::IMMEDIATE_BYTES;
use xwarp_iwarp::{AtomicOperation, Stag};

use super::payload::Payload;
use crate::model::completion::Opcode;
use crate::model::memory::MemoryOperation;
use crate::model::sge::{RemoteAddress, Sge};

/// What Immediate Data carries.
pub type Immediate = [u8; IMMEDIATE_BYTES];

/// Bytes that an Atomic Operation works on.
pub const OPERAND: u32 = 8;

/// What a work request of the send queue does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Sends a message that the peer receives into a buffer which it posted (RFC 5040 §5.3).
    Send {
        /// The message's bytes.
        payload: Payload,
        /// Asks for an event at the peer when the message is received.
        solicited: bool,
        /// A region of the peer that it shall invalidate when it receives the message.
        invalidate: Option<Stag>,
    },
    /// Writes into the peer's memory (RFC 5040 §5.1).
    Write {
        /// What to write.
        payload: Payload,
        /// Where to.
        remote: RemoteAddress,
    },
    /// Reads from the peer's memory (RFC 5040 §5.2).
    Read {
        /// Where to; the region needs [`Access::REMOTE_WRITE`](crate::model::Access::REMOTE_WRITE),
        /// as the peer writes it, unless
        /// [`QpConfig::local_read_sinks`](crate::model::QpConfig::local_read_sinks) is set.
        sink: Sge,
        /// What to read.
        remote: RemoteAddress,
        /// Whether the sink's `STag` is invalidated when all is there, before the completion (verbs
        /// draft §8.1.2.2).
        invalidate_sink: bool,
    },
    /// Sends eight bytes that end a receive of the peer's and come in its completion (RFC 7306 §6).
    Immediate {
        /// The bytes.
        data: Immediate,
        /// Asks for an event at the peer when they are received.
        solicited: bool,
    },
    /// Writes into the peer's memory, then sends Immediate Data, which the peer receives when the
    /// Write is placed (RFC 7306 §6): two messages, one completion.
    WriteImmediate {
        /// What to write.
        payload: Payload,
        /// Where to.
        remote: RemoteAddress,
        /// What the peer's completion will say.
        data: Immediate,
        /// Asks for an event at the peer when all is there.
        solicited: bool,
    },
    /// Changes eight bytes of the peer's memory atomically with all other such operations of its
    /// RNIC (RFC 7306 §5). What they held before comes in the completion.
    Atomic {
        /// The change. It is made to a number in the order of bytes of the peer's memory.
        operation: AtomicOperation,
        /// Which bytes: 8-aligned in the peer's memory, in a region with
        /// [`Access::REMOTE_ATOMIC`](crate::model::Access::REMOTE_ATOMIC).
        remote: RemoteAddress,
        /// Eight bytes of a region with [`Access::LOCAL_WRITE`](crate::model::Access::LOCAL_WRITE)
        /// that also get what was there before, in this host's order of bytes. They need no
        /// alignment.
        sink: Option<Sge>,
    },
    /// Changes a region or window of this side. Nothing is sent.
    Memory(MemoryOperation),
}

impl Operation {
    /// Bytes of the message; `None` when they are more than 2^32 - 1 (RFC 5041 §5.2).
    #[doc(hidden)]
    pub fn byte_len(&self) -> Option<u32> {
        match self {
            Self::Send { payload, .. }
            | Self::Write { payload, .. }
            | Self::WriteImmediate { payload, .. } => payload.byte_len(),
            Self::Read { sink, .. } => Some(sink.len),
            Self::Immediate { .. } | Self::Memory(_) => Some(0),
            Self::Atomic { .. } => Some(OPERAND),
        }
    }

    /// Which completion it has.
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

    /// True for what only RFC 7306 knows.
    #[doc(hidden)]
    pub fn is_extension(&self) -> bool {
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

    /// True for what a Read Fence can hold back (verbs draft figure 27, and what RFC 7306 adds):
    /// Reads are answered in their order anyway.
    pub(crate) fn has_read_fence(&self) -> bool {
        match self {
            Self::Send { .. }
            | Self::Write { .. }
            | Self::Immediate { .. }
            | Self::WriteImmediate { .. }
            | Self::Atomic { .. } => true,
            Self::Read { .. } | Self::Memory(_) => false,
        }
    }

    /// True for what begins only when all earlier work is complete.
    pub(crate) fn has_local_fence(&self) -> bool {
        matches!(self, Self::Memory(work) if work.has_local_fence())
    }

    /// True if it would change what `STag` 0 means, or bind a window to it (verbs draft §7.2.1).
    #[doc(hidden)]
    pub fn works_on_stag_zero(&self) -> bool {
        matches!(self, Self::Memory(work) if work.names_index_zero())
    }

    /// Where this side places what the peer returns in no tagged message: what an Atomic Operation
    /// has found.
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

    /// True for a Read whose sink passes 2^64: no response could be placed there.
    pub(crate) fn has_wrapping_sink(&self) -> bool {
        let Self::Read { sink, .. } = self else {
            return false;
        };
        sink.to.checked_add(sink.len.into()).is_none()
    }

    /// True if it has the peer or this side access `STag` 0, which names no region at all (verbs
    /// draft §7.10.6). With no bytes nothing is accessed.
    pub(crate) fn names_stag_zero(&self) -> bool {
        let zero = Stag(0);
        self.byte_len() != Some(0)
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

//! Opcodes of RDMAP messages, and the queue that each goes to (RFC 5040 §4.1, RFC 7306 §3).

use crate::Stag;
use crate::ddp::Queue;

/// Operation of an RDMAP message (RFC 5040 §4.1, Figure 4; RFC 7306 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Opcode {
    /// Tagged: payload for the peer's region.
    Write = 0x0,
    /// Asks the peer to write to us.
    ReadRequest = 0x1,
    /// Tagged: the answer.
    ReadResponse = 0x2,
    /// Payload for the peer's next receive buffer.
    Send = 0x3,
    /// A Send, and an `STag` of the peer to invalidate.
    SendInvalidate = 0x4,
    /// A Send, and an event wanted.
    SendSolicited = 0x5,
    /// A Send, an `STag` of the peer to invalidate, and an event wanted.
    SendSolicitedInvalidate = 0x6,
    /// The last message of a stream in error.
    Terminate = 0x7,
    /// RFC 7306: eight bytes for the peer's next receive completion.
    ImmediateData = 0x8,
    /// Immediate Data, and an event wanted.
    ImmediateDataSolicited = 0x9,
    /// RFC 7306: asks the peer to change eight bytes of its memory.
    AtomicRequest = 0xA,
    /// RFC 7306: what was there before.
    AtomicResponse = 0xB,
}

impl Opcode {
    const RV_SHIFT: u32 = 6;
    const MASK: u8 = 0x0F;

    /// Reads RDMAP's control byte; `Err` is an opcode that nobody assigned. Its bits 0x30 are not read (R5040-4.1-5).
    pub const fn from_control(control: u8) -> Result<Self, u8> {
        Ok(match control & Self::MASK {
            0x0 => Self::Write,
            0x1 => Self::ReadRequest,
            0x2 => Self::ReadResponse,
            0x3 => Self::Send,
            0x4 => Self::SendInvalidate,
            0x5 => Self::SendSolicited,
            0x6 => Self::SendSolicitedInvalidate,
            0x7 => Self::Terminate,
            0x8 => Self::ImmediateData,
            0x9 => Self::ImmediateDataSolicited,
            0xA => Self::AtomicRequest,
            0xB => Self::AtomicResponse,
            unassigned => return Err(unassigned),
        })
    }

    /// RDMAP's control byte for this opcode and RDMAP version.
    pub const fn control(self, version: u8) -> u8 {
        (version << Self::RV_SHIFT) | self as u8
    }

    /// RV of a control byte.
    pub const fn version_of(control: u8) -> u8 {
        control >> Self::RV_SHIFT
    }

    /// Travels in tagged segments (R5040-4.1-8).
    pub const fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// One of the four Sends, whose payload goes into a receive buffer.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendInvalidate | Self::SendSolicited | Self::SendSolicitedInvalidate
        )
    }

    /// Known only where RFC 7306 is enabled (R7306-1.1-3).
    pub const fn is_extension(self) -> bool {
        matches!(
            self,
            Self::ImmediateData
                | Self::ImmediateDataSolicited
                | Self::AtomicRequest
                | Self::AtomicResponse
        )
    }

    /// The queue of an untagged opcode; `None` for tagged ones (R5040-3.1-2, R7306-4.1-1).
    pub const fn queue(self) -> Option<Queue> {
        match self {
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::ImmediateData
            | Self::ImmediateDataSolicited => Some(Queue::Send),
            Self::ReadRequest | Self::AtomicRequest => Some(Queue::Request),
            Self::Terminate => Some(Queue::Terminate),
            Self::AtomicResponse => Some(Queue::AtomicResponse),
            Self::Write | Self::ReadResponse => None,
        }
    }
}

/// Which of the four Sends (RFC 5040 §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SendKind {
    /// The receiver is asked for an event when the Send completes there.
    pub solicited: bool,
    /// This `STag` of the receiver's becomes invalid when the Send is delivered.
    pub invalidate: Option<Stag>,
}

impl SendKind {
    /// The opcode that says so.
    pub const fn opcode(self) -> Opcode {
        match (self.solicited, self.invalidate) {
            (false, None) => Opcode::Send,
            (false, Some(_)) => Opcode::SendInvalidate,
            (true, None) => Opcode::SendSolicited,
            (true, Some(_)) => Opcode::SendSolicitedInvalidate,
        }
    }

    /// The reverse; `None` for an opcode that is no Send. A plain Send's Invalidate `STag` is not read (R5040-4.1-7).
    pub(super) const fn from_wire(opcode: Opcode, stag: Stag) -> Option<Self> {
        let (solicited, invalidate) = match opcode {
            Opcode::Send => (false, None),
            Opcode::SendInvalidate => (false, Some(stag)),
            Opcode::SendSolicited => (true, None),
            Opcode::SendSolicitedInvalidate => (true, Some(stag)),
            Opcode::Write
            | Opcode::ReadRequest
            | Opcode::ReadResponse
            | Opcode::Terminate
            | Opcode::ImmediateData
            | Opcode::ImmediateDataSolicited
            | Opcode::AtomicRequest
            | Opcode::AtomicResponse => return None,
        };
        Some(Self {
            solicited,
            invalidate,
        })
    }
}

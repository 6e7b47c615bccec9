//! Opcodes of RDMAP messages, and the queue of each (RFC 5040 §4.1, RFC 7306 §3).

use crate::Stag;
use crate::ddp::Queue;

/// Operation of an RDMAP message (RFC 5040 §4.1, Figure 4; RFC 7306 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Opcode {
    /// Tagged: payload for the peer's region.
    Write = 0x0,
    /// Requests data from the peer.
    ReadRequest = 0x1,
    /// Tagged: the requested data.
    ReadResponse = 0x2,
    /// Payload for the peer's next receive buffer.
    Send = 0x3,
    /// A Send that invalidates an `STag` of the peer.
    SendInvalidate = 0x4,
    /// A Send that requests an event.
    SendSolicited = 0x5,
    /// A Send that invalidates an `STag` of the peer and requests an event.
    SendSolicitedInvalidate = 0x6,
    /// Last message of a stream in error.
    Terminate = 0x7,
    /// RFC 7306: eight bytes for the peer's next receive completion.
    ImmediateData = 0x8,
    /// Immediate Data that requests an event.
    ImmediateDataSolicited = 0x9,
    /// RFC 7306: requests a change of eight bytes of the peer's memory.
    AtomicRequest = 0xA,
    /// RFC 7306: the value before the change.
    AtomicResponse = 0xB,
    /// A Send with four bytes for the peer's receive completion. Like the next one it is in no RFC,
    /// and used only between ends that both know it (`StreamConfig::send_immediates`).
    SendImmediate = 0xC,
    /// A Send with such bytes that requests an event.
    SendImmediateSolicited = 0xD,
}

impl Opcode {
    const RV_SHIFT: u32 = 6;
    const MASK: u8 = 0x0F;

    /// Parses RDMAP's control byte. Returns an unassigned opcode in `Err`. Bits 0x30 are ignored
    /// (R5040-4.1-5).
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
            0xC => Self::SendImmediate,
            0xD => Self::SendImmediateSolicited,
            unassigned => return Err(unassigned),
        })
    }

    /// RDMAP's control byte for this opcode and RDMAP version.
    pub const fn control(self, version: u8) -> u8 {
        (version << Self::RV_SHIFT) | self as u8
    }

    /// RV field of a control byte.
    pub const fn version_of(control: u8) -> u8 {
        control >> Self::RV_SHIFT
    }

    /// True for the opcodes of tagged segments (R5040-4.1-8).
    pub const fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// True for the Sends, whose payload goes into a receive buffer.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendInvalidate
                | Self::SendSolicited
                | Self::SendSolicitedInvalidate
                | Self::SendImmediate
                | Self::SendImmediateSolicited
        )
    }

    /// True for the opcodes that no RFC assigns.
    pub const fn is_unassigned(self) -> bool {
        matches!(self, Self::SendImmediate | Self::SendImmediateSolicited)
    }

    /// True for opcodes that exist only with RFC 7306 (R7306-1.1-3).
    pub const fn is_extension(self) -> bool {
        matches!(
            self,
            Self::ImmediateData
                | Self::ImmediateDataSolicited
                | Self::AtomicRequest
                | Self::AtomicResponse
        )
    }

    /// Queue of an untagged opcode; `None` for tagged ones (R5040-3.1-2, R7306-4.1-1).
    pub const fn queue(self) -> Option<Queue> {
        match self {
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::SendImmediate
            | Self::SendImmediateSolicited
            | Self::ImmediateData
            | Self::ImmediateDataSolicited => Some(Queue::Send),
            Self::ReadRequest | Self::AtomicRequest => Some(Queue::Request),
            Self::Terminate => Some(Queue::Terminate),
            Self::AtomicResponse => Some(Queue::AtomicResponse),
            Self::Write | Self::ReadResponse => None,
        }
    }
}

/// Kind of Send (RFC 5040 §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SendKind {
    /// Requests an event from the receiver when the Send completes there.
    pub solicited: bool,
    /// `STag` of the receiver to invalidate when the Send is delivered.
    pub invalidate: Option<Stag>,
    /// Bytes for the receiver's completion. They travel in the place of the `STag`, so a Send has
    /// one of both.
    pub immediate: Option<[u8; 4]>,
}

impl SendKind {
    /// Opcode of this kind.
    pub const fn opcode(self) -> Opcode {
        if self.immediate.is_some() {
            return if self.solicited {
                Opcode::SendImmediateSolicited
            } else {
                Opcode::SendImmediate
            };
        }
        match (self.solicited, self.invalidate) {
            (false, None) => Opcode::Send,
            (false, Some(_)) => Opcode::SendInvalidate,
            (true, None) => Opcode::SendSolicited,
            (true, Some(_)) => Opcode::SendSolicitedInvalidate,
        }
    }

    /// The header's Invalidate `STag`, or what travels in its place; 0 without both (R5040-4.1-6).
    pub(super) const fn field(self) -> Stag {
        match (self.immediate, self.invalidate) {
            (Some(bytes), _) => Stag(u32::from_be_bytes(bytes)),
            (None, Some(stag)) => stag,
            (None, None) => Stag(0),
        }
    }

    /// Kind of an opcode; `None` if it is no Send. A plain Send's Invalidate `STag` is ignored
    /// (R5040-4.1-7).
    pub(super) const fn from_wire(opcode: Opcode, field: Stag) -> Option<Self> {
        let (mut invalidate, mut immediate) = (None, None);
        let solicited = match opcode {
            Opcode::Send => false,
            Opcode::SendInvalidate => {
                invalidate = Some(field);
                false
            }
            Opcode::SendSolicited => true,
            Opcode::SendSolicitedInvalidate => {
                invalidate = Some(field);
                true
            }
            Opcode::SendImmediate | Opcode::SendImmediateSolicited => {
                immediate = Some(field.0.to_be_bytes());
                matches!(opcode, Opcode::SendImmediateSolicited)
            }
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
            immediate,
        })
    }
}

//! Violations: the causes for which an inbound segment is refused, each with its Terminate.

use super::{
    AccessError, AccessKind, InvalidateError, Opcode, READ_REQUEST_BYTES, TermCode, Terminate,
};
use crate::Stag;
use crate::ddp::{DdpSegment, UNTAGGED_HEADER_BYTES};

/// Why a DDP segment or the RDMAP message in it is refused (RFC 5041 §7.1, RFC 5040 §7.2). Fatal for its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViolationCause {
    /// Shorter than its DDP header, or longer than any ULPDU (D4, D13).
    #[error("a DDP segment of {len} bytes")]
    SegmentSize {
        /// Bytes of the ULPDU.
        len: usize,
    },
    /// DV is not the stream's.
    #[error("DDP version {found}")]
    DdpVersion {
        /// The segment's T bit.
        tagged: bool,
        /// Its DV.
        found: u8,
    },
    /// RV is not the stream's.
    #[error("RDMAP version {found}")]
    RdmapVersion {
        /// The segment's RV.
        found: u8,
    },
    /// An opcode that nobody assigned.
    #[error("unknown opcode {0:#x}")]
    UnknownOpcode(u8),
    /// An opcode of the other buffer model.
    #[error("{opcode:?} with T={}", u8::from(*tagged))]
    OpcodeBufferModel {
        /// The message's opcode.
        opcode: Opcode,
        /// The segment's T bit.
        tagged: bool,
    },
    /// An opcode of another queue, or of an extension that is not enabled.
    #[error("{opcode:?} on QN {qn}")]
    OpcodeQueue {
        /// The message's opcode.
        opcode: Opcode,
        /// Its Queue Number.
        qn: u32,
    },
    /// No such queue.
    #[error("QN {qn} does not exist")]
    InvalidQueue {
        /// The Queue Number.
        qn: u32,
    },
    /// A Read or Atomic Request although this side offers no IRD (D7).
    #[error("a Read or Atomic Request, but IRD is 0")]
    ReadsDisabled,
    /// A message that must be one segment lacks its L bit (D22).
    #[error("{opcode:?} without the L bit")]
    NotLast {
        /// The message's opcode.
        opcode: Opcode,
    },
    /// A message number other than the one that is due.
    #[error("MSN {msn} on QN {qn}, expected {expected}")]
    MessageNumber {
        /// The Queue Number.
        qn: u32,
        /// The segment's MSN.
        msn: u32,
        /// The one that is due.
        expected: u32,
    },
    /// `RsvdULP`, and with it opcode or Invalidate `STag`, differs from the message's first segment (D14).
    #[error("RsvdULP changes within message {msn}")]
    MessageChanged {
        /// The message's MSN.
        msn: u32,
    },
    /// No receive buffer is posted.
    #[error("no receive buffer for message {msn}")]
    NoReceive {
        /// The message's MSN.
        msn: u32,
    },
    /// More Read and Atomic Requests than IRD (D7).
    #[error("Read or Atomic Request {msn} exceeds the IRD of {ird}")]
    TooManyRequests {
        /// The request's MSN.
        msn: u32,
        /// Requests that may wait.
        ird: u16,
    },
    /// A gap, an overlap, or outside the buffer.
    #[error("MO {mo} on QN {qn}, expected {expected}")]
    MessageOffset {
        /// The Queue Number.
        qn: u32,
        /// The segment's MO.
        mo: u32,
        /// Bytes of the message placed so far.
        expected: u32,
    },
    /// The payload ends behind its buffer.
    #[error("{opcode:?} of {len} bytes at MO {mo} exceeds the buffer of {buffer} bytes")]
    MessageTooLong {
        /// The message's opcode.
        opcode: Opcode,
        /// The segment's MO.
        mo: u32,
        /// Bytes of payload.
        len: usize,
        /// Bytes of the buffer.
        buffer: u64,
    },
    /// Fewer bytes than the header of a Read or Atomic Request has.
    #[error("{opcode:?} of {len} bytes instead of {expected}")]
    RequestSize {
        /// The message's opcode.
        opcode: Opcode,
        /// Bytes of payload.
        len: usize,
        /// Bytes of the header.
        expected: usize,
    },
    /// Immediate Data or an Atomic Response that is too short (R7306-6.3-3, R7306-5.2.2-7-1).
    #[error("{opcode:?} of {len} bytes instead of {expected}")]
    ExtensionSize {
        /// The message's opcode.
        opcode: Opcode,
        /// Bytes of payload.
        len: usize,
        /// Bytes that it should have.
        expected: usize,
    },
    /// An `AOpCode` that is reserved or unassigned (R7306-5.2.1-3).
    #[error("unknown AOpCode {0:#x}")]
    AtomicOpcode(u32),
    /// An Atomic Request for bytes that are not 8-aligned in memory (R7306-8.2-2).
    #[error("Atomic on {stag:?} at TO {to:#x}, which is not 8-aligned in memory")]
    Misaligned {
        /// Region.
        stag: Stag,
        /// Tagged Offset of the first byte.
        to: u64,
    },
    /// An Atomic Response, but the oldest outstanding request is no Atomic Request.
    #[error("Atomic Response {msn} without an Atomic Request")]
    UnexpectedAtomicResponse {
        /// Its MSN.
        msn: u32,
    },
    /// An Atomic Response with the Request Identifier of another request.
    #[error("Atomic Response to request {found:#x}, expected {expected:#x}")]
    AtomicResponseId {
        /// Its Request Identifier.
        found: u32,
        /// The oldest request's.
        expected: u32,
    },
    /// A region does not admit what the peer is about to do. That of a Read Response, which is as asked for, does not any more.
    #[error("{access} of {len} bytes {} {stag:?} at TO {to:#x}: {cause}", access.preposition())]
    Access {
        /// What that is.
        access: AccessKind,
        /// Region.
        stag: Stag,
        /// Tagged Offset of the first byte.
        to: u64,
        /// Bytes of the segment, or those asked for.
        len: u64,
        /// What its owner says.
        cause: AccessError,
    },
    /// A Read Response, but nothing was asked for (D6).
    #[error("Read Response to {stag:?} without a Read Request")]
    UnexpectedResponse {
        /// Its region.
        stag: Stag,
    },
    /// A Read Response to another region than the oldest Read Request named (D6).
    #[error("Read Response to {stag:?}, expected {expected:?}")]
    ResponseStag {
        /// Its region.
        stag: Stag,
        /// The request's.
        expected: Stag,
    },
    /// A Read Response with a gap or overlap, too long, or ended too early (D6).
    #[error(
        "Read Response of {len} bytes at TO {to:#x}, last {last}: expected {left} bytes at {expected:#x}"
    )]
    ResponseRange {
        /// Tagged Offset of the segment.
        to: u64,
        /// Bytes of the segment.
        len: usize,
        /// Its L bit.
        last: bool,
        /// Tagged Offset that is due.
        expected: u64,
        /// Bytes that the request still waits for.
        left: u32,
    },
    /// A Send asks to invalidate what it may not.
    #[error("Send with Invalidate of {stag:?}: {cause}")]
    Invalidate {
        /// The `STag`.
        stag: Stag,
        /// What its owner says.
        cause: InvalidateError,
    },
}

impl ViolationCause {
    /// What the peer is told in the Terminate.
    pub const fn term_code(self) -> TermCode {
        match self {
            Self::SegmentSize { .. } | Self::RequestSize { .. } => TermCode::ddp_local(),
            Self::DdpVersion { tagged: true, .. } => TermCode::ddp_tagged(0x04),
            Self::DdpVersion { tagged: false, .. } => TermCode::ddp_untagged(0x06),
            Self::RdmapVersion { .. } => TermCode::rdmap_operation(0x05),
            Self::UnknownOpcode(_)
            | Self::OpcodeBufferModel { .. }
            | Self::OpcodeQueue { .. }
            | Self::MessageChanged { .. }
            | Self::AtomicOpcode(_) => TermCode::rdmap_operation(0x06),
            Self::NotLast { .. } | Self::Misaligned { .. } => TermCode::rdmap_operation(0x07),
            Self::ExtensionSize { .. } | Self::AtomicResponseId { .. } => TermCode::UNSPECIFIED,
            Self::InvalidQueue { .. } | Self::ReadsDisabled => TermCode::ddp_untagged(0x01),
            Self::NoReceive { .. } => TermCode::ddp_untagged(0x02),
            Self::MessageNumber { .. }
            | Self::TooManyRequests { .. }
            | Self::UnexpectedAtomicResponse { .. } => TermCode::ddp_untagged(0x03),
            Self::MessageOffset { .. } => TermCode::ddp_untagged(0x04),
            Self::MessageTooLong { .. } => TermCode::ddp_untagged(0x05),
            Self::Access { access, cause, .. } => match access {
                AccessKind::RemoteWrite | AccessKind::ReadSink => placement_code(cause),
                AccessKind::RemoteRead | AccessKind::RemoteAtomic => Self::source_code(cause),
            },
            Self::UnexpectedResponse { .. } | Self::ResponseStag { .. } => {
                TermCode::ddp_tagged(0x00)
            }
            Self::ResponseRange { .. } => TermCode::ddp_tagged(0x01),
            Self::Invalidate { cause, .. } => invalidate_code(cause),
        }
    }

    /// RFC 5040 §7.2: the source of a Read Request; RFC 7306 §8.2: the target of an Atomic Request.
    pub(super) const fn source_code(cause: AccessError) -> TermCode {
        TermCode::rdmap_protection(match cause {
            AccessError::InvalidStag => 0x00,
            AccessError::Bounds => 0x01,
            AccessError::Rights => 0x02,
            AccessError::NotAssociated => 0x03,
            AccessError::Wrap => 0x04,
        })
    }

    /// Bytes of the ULPDU's head that the Terminate returns, and whether a Read Request header is among them
    /// (RFC 5040 §4.8, Figure 10).
    const fn captures(self) -> Capture {
        match self {
            Self::SegmentSize { .. } | Self::RequestSize { .. } => Capture::Nothing,
            Self::Access { access, .. } => Capture::of_access(access),
            Self::DdpVersion { .. }
            | Self::RdmapVersion { .. }
            | Self::UnknownOpcode(_)
            | Self::OpcodeBufferModel { .. }
            | Self::OpcodeQueue { .. }
            | Self::InvalidQueue { .. }
            | Self::ReadsDisabled
            | Self::NotLast { .. }
            | Self::MessageNumber { .. }
            | Self::MessageChanged { .. }
            | Self::NoReceive { .. }
            | Self::TooManyRequests { .. }
            | Self::MessageOffset { .. }
            | Self::MessageTooLong { .. }
            | Self::UnexpectedResponse { .. }
            | Self::ResponseStag { .. }
            | Self::ResponseRange { .. }
            | Self::Invalidate { .. }
            | Self::ExtensionSize { .. }
            | Self::AtomicOpcode(_)
            | Self::Misaligned { .. }
            | Self::UnexpectedAtomicResponse { .. }
            | Self::AtomicResponseId { .. } => Capture::Ddp,
        }
    }
}

/// RFC 5041 §7.1: a tagged segment's payload. A missing right has no code of its own (D5).
const fn placement_code(cause: AccessError) -> TermCode {
    TermCode::ddp_tagged(match cause {
        AccessError::InvalidStag => 0x00,
        AccessError::Bounds => 0x01,
        AccessError::NotAssociated | AccessError::Rights => 0x02,
        AccessError::Wrap => 0x03,
    })
}

/// RFC 5040 leaves open which code means what: D8 decides (also verbs.md §12.4).
const fn invalidate_code(cause: InvalidateError) -> TermCode {
    TermCode::rdmap_protection(match cause {
        InvalidateError::InvalidStag => 0x00,
        InvalidateError::Rights => 0x02,
        InvalidateError::NotAssociated | InvalidateError::Forbidden => 0x09,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Capture {
    Nothing,
    Ddp,
    DdpAndReadRequest,
}

impl Capture {
    const fn of_access(access: AccessKind) -> Self {
        match access {
            AccessKind::RemoteRead => Self::DdpAndReadRequest,
            AccessKind::RemoteWrite | AccessKind::RemoteAtomic | AccessKind::ReadSink => Self::Ddp,
        }
    }
}

/// A refused inbound segment: the first one ends its stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Violation {
    cause: ViolationCause,
    terminate: Terminate,
}

impl Violation {
    /// Copies the headers that go back to the peer out of the offending `ulpdu`.
    pub(super) fn new(cause: ViolationCause, version: u8, ulpdu: &[u8]) -> Self {
        let code = cause.term_code();
        let headers = match (cause.captures(), DdpSegment::parse(ulpdu)) {
            (Capture::Nothing, _) | (_, None) => None,
            (Capture::Ddp, Some(segment)) => Some((segment.header_bytes(), false)),
            (Capture::DdpAndReadRequest, Some(_)) => ulpdu
                .get(..UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES)
                .map(|headers| (headers, true)),
        };
        let terminate = match (headers, u16::try_from(ulpdu.len())) {
            (Some((headers, with_read)), Ok(len)) => {
                Terminate::captured(code, version, len, headers, with_read)
            }
            (None, _) | (_, Err(_)) => Terminate::with_version(code, version),
        };
        Self { cause, terminate }
    }

    /// What is wrong.
    pub const fn cause(&self) -> ViolationCause {
        self.cause
    }

    /// What the peer is told.
    pub fn terminate(&self) -> Terminate {
        self.terminate.clone()
    }
}

//! Violations: the reasons to refuse an inbound segment, each with its Terminate (decision record
//! iwarp/0003).

use super::{
    AccessError, AccessKind, InvalidateError, Opcode, READ_REQUEST_BYTES, TermCode, Terminate,
};
use crate::Stag;
use crate::ddp::{DdpSegment, UNTAGGED_HEADER_BYTES};

/// Why a DDP segment or its RDMAP message is refused (RFC 5041 §7.1, RFC 5040 §7.2). It ends the
/// stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViolationCause {
    /// Shorter than its DDP header, or longer than any ULPDU (D4, D13).
    #[error("a DDP segment of {len} bytes")]
    SegmentSize {
        /// Length in bytes of the ULPDU.
        len: usize,
    },
    /// DV differs from the stream's.
    #[error("DDP version {found}")]
    DdpVersion {
        /// The segment's T bit.
        tagged: bool,
        /// Its DV.
        found: u8,
    },
    /// RV differs from the stream's.
    #[error("RDMAP version {found}")]
    RdmapVersion {
        /// The segment's RV.
        found: u8,
    },
    /// An unassigned opcode.
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
    /// The queue does not exist.
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
    /// A message number other than the expected one.
    #[error("MSN {msn} on QN {qn}, expected {expected}")]
    MessageNumber {
        /// The Queue Number.
        qn: u32,
        /// The segment's MSN.
        msn: u32,
        /// The expected one.
        expected: u32,
    },
    /// `RsvdULP`, and with it opcode or Invalidate `STag`, differs from the message's first segment
    /// (D14).
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
        /// Maximum number of waiting requests.
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
        /// MO of the segment.
        mo: u32,
        /// Length in bytes of the payload.
        len: usize,
        /// Length in bytes of the buffer.
        buffer: u64,
    },
    /// Shorter than the header of a Read or Atomic Request.
    #[error("{opcode:?} of {len} bytes instead of {expected}")]
    RequestSize {
        /// The message's opcode.
        opcode: Opcode,
        /// Length in bytes of the payload.
        len: usize,
        /// Length in bytes of the header.
        expected: usize,
    },
    /// Immediate Data or an Atomic Response that is too short (R7306-6.3-3, R7306-5.2.2-7-1).
    #[error("{opcode:?} of {len} bytes instead of {expected}")]
    ExtensionSize {
        /// The message's opcode.
        opcode: Opcode,
        /// Length in bytes of the payload.
        len: usize,
        /// Expected length in bytes.
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
    /// Access to a region is refused. For a Read Response that matches its request, the region no
    /// longer admits it.
    #[error("{access} of {len} bytes {} {stag:?} at TO {to:#x}: {cause}", access.preposition())]
    Access {
        /// Kind of access.
        access: AccessKind,
        /// Region.
        stag: Stag,
        /// Tagged Offset of the first byte.
        to: u64,
        /// Length in bytes of the segment, or of the requested data.
        len: u64,
        /// Why access is refused.
        cause: AccessError,
    },
    /// A Read Response without an outstanding request (D6).
    #[error("Read Response to {stag:?} without a Read Request")]
    UnexpectedResponse {
        /// Its region.
        stag: Stag,
    },
    /// A Read Response to another region than that of the oldest Read Request (D6).
    #[error("Read Response to {stag:?}, expected {expected:?}")]
    ResponseStag {
        /// Its region.
        stag: Stag,
        /// Region of the request.
        expected: Stag,
    },
    /// A Read Response with a gap or overlap, too long, or ended too early (D6).
    #[error(
        "Read Response of {len} bytes at TO {to:#x}, last {last}: expected {left} bytes at {expected:#x}"
    )]
    ResponseRange {
        /// Tagged Offset of the segment.
        to: u64,
        /// Length in bytes of the segment.
        len: usize,
        /// Its L bit.
        last: bool,
        /// Expected Tagged Offset.
        expected: u64,
        /// Missing bytes of the response.
        left: u32,
    },
    /// A Send that must not invalidate this `STag`.
    #[error("Send with Invalidate of {stag:?}: {cause}")]
    Invalidate {
        /// The `STag`.
        stag: Stag,
        /// Why the `STag` is not invalidated.
        cause: InvalidateError,
    },
}

impl ViolationCause {
    /// Code of the Terminate for the peer.
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

    /// Number of bytes from the ULPDU's head that the Terminate returns, and whether they include a
    /// Read Request header (RFC 5040 §4.8, Figure 10).
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

/// RFC 5040 does not assign meanings to these codes: D8 decides (also verbs.md §12.4).
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

/// A refused inbound segment. The first one ends its stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Violation {
    cause: ViolationCause,
    terminate: Terminate,
}

impl Violation {
    /// Copies the headers to return from the offending `ulpdu`.
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

    /// Reason of the refusal.
    pub const fn cause(&self) -> ViolationCause {
        self.cause
    }

    /// The Terminate for the peer.
    pub fn terminate(&self) -> Terminate {
        self.terminate.clone()
    }
}

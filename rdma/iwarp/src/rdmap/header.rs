//! RDMAP headers on the wire (RFC 5040 §4.4, §4.8).

use crate::Stag;
use arrayvec::ArrayVec;
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length in bytes of a Read Request header: the whole DDP payload of the message (R5040-4.2-2).
pub const READ_REQUEST_BYTES: usize = 28;
/// Length in bytes of Immediate Data: the whole DDP payload of the message (R7306-6.2-1).
pub const IMMEDIATE_BYTES: usize = 8;
/// Length in bytes of a Terminate before the captured headers.
pub const TERMINATE_CONTROL_BYTES: usize = 4;

/// RDMA Read Request header on the wire: 28 bytes (RFC 5040 §4.4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReadRequestHeader {
    /// Requester's `STag` that the response is written to.
    pub sink_stag: U32,
    /// Tagged Offset in the sink.
    pub sink_to: U64,
    /// RDMARDSZ: bytes to read.
    pub len: U32,
    /// Responder's `STag` that is read.
    pub source_stag: U32,
    /// Tagged Offset in the source.
    pub source_to: U64,
}
const _: () = assert!(size_of::<ReadRequestHeader>() == READ_REQUEST_BYTES);

/// Terminate Control on the wire: 4 bytes (RFC 5040 §4.8).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TerminateControl {
    /// Layer (upper four bits) and Error Type.
    pub layer_etype: u8,
    /// Error Code.
    pub code: u8,
    /// M, D, R and reserved bits.
    pub flags: u8,
    /// Sent as 0, ignored.
    pub reserved: u8,
}
const _: () = assert!(size_of::<TerminateControl>() == TERMINATE_CONTROL_BYTES);

impl TerminateControl {
    /// M bit: the DDP Segment Length is valid.
    pub const M: u8 = 0x80;
    /// D bit: a DDP header follows it.
    pub const D: u8 = 0x40;
    /// R bit: a Read Request header follows the DDP header.
    pub const R: u8 = 0x20;
}

/// Contents of a Read Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Requester's region that the response is written to.
    pub sink: Stag,
    /// Tagged Offset of the first byte in the sink.
    pub sink_to: u64,
    /// Number of bytes to read. 0 is a barrier, and accesses no memory (R5040-5.2.1-8).
    pub len: u32,
    /// Responder's region.
    pub source: Stag,
    /// Tagged Offset of the first byte in the source.
    pub source_to: u64,
}

impl ReadRequest {
    /// The zero-length Read of a peer-to-peer initiator, which accesses no memory (RFC 6581 §9.2,
    /// D19).
    pub const RTR: Self = Self {
        sink: Stag::PLACEHOLDER,
        sink_to: 0,
        len: 0,
        source: Stag::PLACEHOLDER,
        source_to: 0,
    };

    /// The rest of the request after `sent` bytes of its response (R5040-4.8-13).
    pub(super) fn after(self, sent: u32) -> Self {
        Self {
            sink_to: self.sink_to.wrapping_add(u64::from(sent)),
            len: self.len.saturating_sub(sent),
            source_to: self.source_to.wrapping_add(u64::from(sent)),
            ..self
        }
    }
}

impl From<&ReadRequestHeader> for ReadRequest {
    fn from(header: &ReadRequestHeader) -> Self {
        Self {
            sink: Stag(header.sink_stag.get()),
            sink_to: header.sink_to.get(),
            len: header.len.get(),
            source: Stag(header.source_stag.get()),
            source_to: header.source_to.get(),
        }
    }
}

impl From<&ReadRequest> for ReadRequestHeader {
    fn from(request: &ReadRequest) -> Self {
        Self {
            sink_stag: request.sink.0.into(),
            sink_to: request.sink_to.into(),
            len: request.len.into(),
            source_stag: request.source.0.into(),
            source_to: request.source_to.into(),
        }
    }
}

/// Appends a header to an outbound message, whose capacity includes it.
pub(super) fn append<const N: usize>(message: &mut ArrayVec<u8, N>, header: &[u8]) {
    let appended = message.try_extend_from_slice(header);
    debug_assert!(
        appended.is_ok(),
        "{} bytes of header after {} of {N}",
        header.len(),
        message.len()
    );
}

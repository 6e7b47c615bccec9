//! RDMAP's own headers as they are on the wire (RFC 5040 §4.4, §4.8).

use crate::Stag;
use arrayvec::ArrayVec;
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a Read Request header: all of that message's DDP payload (R5040-4.2-2).
pub const READ_REQUEST_BYTES: usize = 28;
/// Bytes of Immediate Data: all of that message's DDP payload (R7306-6.2-1).
pub const IMMEDIATE_BYTES: usize = 8;
/// Bytes of a Terminate before the captured headers.
pub const TERMINATE_CONTROL_BYTES: usize = 4;

/// RDMA Read Request header as it is on the wire: 28 bytes (RFC 5040 §4.4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReadRequestHeader {
    /// The requester's `STag` that the response is written to.
    pub sink_stag: U32,
    /// Tagged Offset there.
    pub sink_to: U64,
    /// RDMARDSZ: bytes to read.
    pub len: U32,
    /// The responder's `STag` that is read.
    pub source_stag: U32,
    /// Tagged Offset there.
    pub source_to: U64,
}
const _: () = assert!(size_of::<ReadRequestHeader>() == READ_REQUEST_BYTES);

/// Terminate Control as it is on the wire: 4 bytes (RFC 5040 §4.8).
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
    /// Sent 0, not read.
    pub reserved: u8,
}
const _: () = assert!(size_of::<TerminateControl>() == TERMINATE_CONTROL_BYTES);

impl TerminateControl {
    /// M: the DDP Segment Length is valid.
    pub const M: u8 = 0x80;
    /// D: a DDP header follows it.
    pub const D: u8 = 0x40;
    /// R: a Read Request header follows that.
    pub const R: u8 = 0x20;
}

/// What a Read Request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's region that the response goes to.
    pub sink: Stag,
    /// Tagged Offset there of the first byte.
    pub sink_to: u64,
    /// Bytes to read; 0 is a barrier and names no memory (R5040-5.2.1-8).
    pub len: u32,
    /// The responder's region.
    pub source: Stag,
    /// Tagged Offset there of the first byte.
    pub source_to: u64,
}

impl ReadRequest {
    /// The zero-length Read of a peer-to-peer initiator: names no memory (RFC 6581 §9.2, D19).
    pub const RTR: Self = Self {
        sink: Stag::PLACEHOLDER,
        sink_to: 0,
        len: 0,
        source: Stag::PLACEHOLDER,
        source_to: 0,
    };

    /// What is left of it after `sent` bytes of its response (R5040-4.8-13).
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

/// Appends a header to a message of ours, whose capacity counts it.
pub(super) fn append<const N: usize>(message: &mut ArrayVec<u8, N>, header: &[u8]) {
    let appended = message.try_extend_from_slice(header);
    debug_assert!(
        appended.is_ok(),
        "{} bytes of header after {} of {N}",
        header.len(),
        message.len()
    );
}

//! The Request and Reply Frames of MPA start-up as octets (RFC 5044 §7.1.1).

use arrayvec::ArrayVec;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most private data a start-up frame carries, in octets (R5044-7.1.1-15).
pub const MAX_PRIVATE_DATA: usize = 512;
/// Octets before the private data.
pub(super) const HEADER_BYTES: usize = 20;
/// Longest start-up frame in octets.
pub const MAX_STARTUP_FRAME: usize = HEADER_BYTES + MAX_PRIVATE_DATA;
/// MPA revision that is spoken: RFC 5044's (R5044-7.1.1-12).
pub const REVISION: u8 = 1;

/// Key of a Request Frame (R5044-7.1.1-1).
pub(super) const REQUEST_KEY: [u8; 16] = *b"MPA ID Req Frame";
/// Key of a Reply Frame (R5044-7.1.1-2).
pub(super) const REPLY_KEY: [u8; 16] = *b"MPA ID Rep Frame";

/// M: the frame's sender wants markers in what it receives.
pub(super) const FLAG_MARKERS: u8 = 0x80;
/// C: the frame's sender wants CRCs.
pub(super) const FLAG_CRC: u8 = 0x40;
/// R: rejected by the ULP; only read in a Reply (R5044-7.1.1-8).
pub(super) const FLAG_REJECTED: u8 = 0x20;

/// Application octets that travel in a start-up frame.
pub type PrivateData = ArrayVec<u8, MAX_PRIVATE_DATA>;

/// A Request or Reply Frame of ours, ready for the stream.
pub type StartupFrame = ArrayVec<u8, MAX_STARTUP_FRAME>;

/// Head of a Request or Reply Frame as it is on the wire: 20 octets (RFC 5044 §7.1.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct StartupHeader {
    /// Tells Request from Reply, and both from anything else.
    pub key: [u8; 16],
    /// M, C, R and reserved bits; the latter are sent 0 and not read (R5044-7.1.1-10, -11).
    pub flags: u8,
    /// MPA revision.
    pub revision: u8,
    /// Octets of private data that follow.
    pub pd_length: U16,
}
const _: () = assert!(size_of::<StartupHeader>() == HEADER_BYTES);

/// More private data than a start-up frame can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} octets of private data, the limit is {MAX_PRIVATE_DATA}")]
pub struct PrivateDataTooLong(
    /// Octets that were given.
    pub usize,
);

/// Writes a start-up frame.
pub(super) fn encode(
    key: [u8; 16],
    flags: u8,
    revision: u8,
    private_data: &[u8],
) -> Result<StartupFrame, PrivateDataTooLong> {
    let too_long = PrivateDataTooLong(private_data.len());
    let pd_length = u16::try_from(private_data.len()).map_err(|_| too_long)?;
    let header = StartupHeader {
        key,
        flags,
        revision,
        pd_length: pd_length.into(),
    };
    let mut frame = StartupFrame::new();
    frame
        .try_extend_from_slice(header.as_bytes())
        .map_err(|_| too_long)?;
    frame
        .try_extend_from_slice(private_data)
        .map_err(|_| too_long)?;
    Ok(frame)
}

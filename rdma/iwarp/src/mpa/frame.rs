//! Request and Reply Frames of MPA start-up on the wire (RFC 5044 §7.1.1, RFC 6581 §6).

use super::enhanced::{ENHANCED_BYTES, EnhancedData, EnhancedHeader};
use arrayvec::ArrayVec;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Maximum length in bytes of a start-up frame's private data, including enhanced data
/// (R5044-7.1.1-15, R6581-6-7).
pub const MAX_PRIVATE_DATA: usize = 512;
/// Length in bytes of the part before the private data.
pub(super) const HEADER_BYTES: usize = 20;
/// Maximum length in bytes of a start-up frame.
pub const MAX_STARTUP_FRAME: usize = HEADER_BYTES + MAX_PRIVATE_DATA;
/// MPA revision of the RDMA Consortium (RFC 5044, appendix C).
pub const REVISION_RDMAC: u8 = 0;
/// MPA revision of RFC 5044 (R5044-7.1.1-12).
pub const REVISION_1: u8 = 1;
/// MPA revision of RFC 6581 (R6581-6-1).
pub const REVISION_2: u8 = 2;

/// Key of a Request Frame (R5044-7.1.1-1).
pub(super) const REQUEST_KEY: [u8; 16] = *b"MPA ID Req Frame";
/// Key of a Reply Frame (R5044-7.1.1-2).
pub(super) const REPLY_KEY: [u8; 16] = *b"MPA ID Rep Frame";

/// M bit: the frame's sender requests markers in what it receives.
pub(super) const FLAG_MARKERS: u8 = 0x80;
/// C bit: the frame's sender requests CRCs.
pub(super) const FLAG_CRC: u8 = 0x40;
/// R bit: rejected by the ULP. Read only in a Reply (R5044-7.1.1-8).
pub(super) const FLAG_REJECTED: u8 = 0x20;
/// S bit: the private data begins with enhanced data. Read only from revision 2 on (R6581-6-10).
pub(super) const FLAG_ENHANCED: u8 = 0x10;

/// Application data in a start-up frame.
pub type PrivateData = ArrayVec<u8, MAX_PRIVATE_DATA>;

/// A Request or Reply Frame to send.
pub type StartupFrame = ArrayVec<u8, MAX_STARTUP_FRAME>;

/// Head of a Request or Reply Frame on the wire: 20 bytes (RFC 5044 §7.1.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct StartupHeader {
    /// Distinguishes Requests and Replies from each other and from other data.
    pub key: [u8; 16],
    /// M, C, R and reserved bits, which are sent as 0 and ignored (R5044-7.1.1-10, -11).
    pub flags: u8,
    /// MPA revision.
    pub revision: u8,
    /// Length in bytes of the private data that follows.
    pub pd_length: U16,
}
const _: () = assert!(size_of::<StartupHeader>() == HEADER_BYTES);

/// Error: more private data than a start-up frame can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes of private data, the limit is {limit}")]
pub struct PrivateDataTooLong {
    /// Length in bytes of the private data given.
    pub len: usize,
    /// Maximum length in bytes: 512, or 508 beside enhanced data.
    pub limit: usize,
}

/// Contents of a start-up frame to send, except the ULP's private data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) key: [u8; 16],
    /// M, C, R; S follows from `enhanced`.
    pub(super) flags: u8,
    pub(super) revision: u8,
    pub(super) enhanced: Option<EnhancedData>,
}

impl Head {
    /// Encodes the frame.
    pub(super) fn encode(&self, private_data: &[u8]) -> Result<StartupFrame, PrivateDataTooLong> {
        let enhanced = self.enhanced.as_ref().map(EnhancedHeader::from);
        let enhanced = enhanced.as_ref().map_or(&[][..], EnhancedHeader::as_bytes);
        let too_long = PrivateDataTooLong {
            len: private_data.len(),
            limit: MAX_PRIVATE_DATA - enhanced.len(),
        };
        let s = if enhanced.is_empty() {
            0
        } else {
            FLAG_ENHANCED
        };
        let pd_length = u16::try_from(enhanced.len() + private_data.len()).map_err(|_| too_long)?;
        let header = StartupHeader {
            key: self.key,
            flags: self.flags | s,
            revision: self.revision,
            pd_length: pd_length.into(),
        };
        let mut frame = StartupFrame::new();
        for part in [header.as_bytes(), enhanced, private_data] {
            frame.try_extend_from_slice(part).map_err(|_| too_long)?;
        }
        Ok(frame)
    }
}
const _: () = assert!(ENHANCED_BYTES < MAX_PRIVATE_DATA);

//! Reader of the peer's start-up frame, in either role.

use crate::mpa::enhanced::{EnhancedData, EnhancedHeader};
use crate::mpa::frame::{
    FLAG_ENHANCED, HEADER_BYTES, MAX_PRIVATE_DATA, PrivateData, REVISION_2, StartupHeader,
};
use crate::mpa::startup_error::StartupError;
use zerocopy::FromBytes;

/// A start-up frame of the peer, as far as it has arrived.
pub(super) enum Frame<'a> {
    NeedBytes(usize),
    Whole(WholeFrame<'a>),
}

pub(super) struct WholeFrame<'a> {
    pub(super) header: &'a StartupHeader,
    /// S=1.
    pub(super) enhanced: Option<EnhancedData>,
    /// Private data of the ULP (R6581-6-9).
    private_data: &'a [u8],
    /// Length in bytes of the frame.
    pub(super) consumed: usize,
}

impl WholeFrame<'_> {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.header.flags & flag != 0
    }

    pub(super) fn private_data(&self) -> Result<PrivateData, StartupError> {
        PrivateData::try_from(self.private_data)
            .map_err(|_| StartupError::PrivateDataLength(self.header.pd_length.get()))
    }
}

/// Reads a frame. The head is checked before the private data has arrived, and the key byte by byte
/// (R5044-7.1.1-14, -16).
pub(super) fn read_frame(
    stream: &[u8],
    key: [u8; 16],
    other_key: [u8; 16],
    speaks: impl FnOnce(u8) -> bool,
) -> Result<Frame<'_>, StartupError> {
    check_key(stream, key, other_key)?;
    let Ok((header, rest)) = StartupHeader::ref_from_prefix(stream) else {
        return Ok(Frame::NeedBytes(HEADER_BYTES));
    };
    let pd_length = usize::from(header.pd_length.get());
    if pd_length > MAX_PRIVATE_DATA {
        return Err(StartupError::PrivateDataLength(header.pd_length.get()));
    }
    if !speaks(header.revision) {
        return Err(StartupError::Revision(header.revision));
    }
    let is_enhanced = header.revision >= REVISION_2 && header.flags & FLAG_ENHANCED != 0;
    if is_enhanced && pd_length < size_of::<EnhancedHeader>() {
        return Err(StartupError::EnhancedLength(header.pd_length.get()));
    }
    let consumed = HEADER_BYTES + pd_length;
    let Some(private_data) = rest.get(..pd_length) else {
        return Ok(Frame::NeedBytes(consumed));
    };
    let (enhanced, private_data) = match EnhancedHeader::ref_from_prefix(private_data) {
        Ok((enhanced, rest)) if is_enhanced => (Some(enhanced.into()), rest),
        Ok(_) | Err(_) => (None, private_data),
    };
    Ok(Frame::Whole(WholeFrame {
        header,
        enhanced,
        private_data,
        consumed,
    }))
}

/// Fails at the first byte that cannot belong to `key`, to reject a peer early that does not speak
/// MPA.
fn check_key(stream: &[u8], key: [u8; 16], other_key: [u8; 16]) -> Result<(), StartupError> {
    let begins = |key: [u8; 16]| {
        stream
            .iter()
            .zip(key)
            .all(|(byte, expected)| *byte == expected)
    };
    if begins(key) {
        Ok(())
    } else if begins(other_key) {
        Err(StartupError::WrongRole)
    } else {
        Err(StartupError::NotMpa)
    }
}

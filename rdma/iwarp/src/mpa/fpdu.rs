//! One FPDU without markers, and the parts that all FPDUs share (RFC 5044 §4).

use crate::crc::{Crc32c, crc32c};
use core::ops::Range;
use zerocopy::FromBytes;
use zerocopy::network_endian::U16;

pub(crate) const LENGTH_BYTES: usize = size_of::<U16>();
pub(super) const CRC_BYTES: usize = 4;

/// Maximum length of a ULPDU in bytes (RFC 5044 §3, R5044-3-4).
pub const MAX_ULPDU: usize = 64_768;
/// Lower bound of MULPDU in bytes, whatever the EMSS (RFC 5044 §4.5, R5044-4.5-6).
pub const MIN_MULPDU: usize = 128;

/// Why the stream holds no acceptable FPDU (RFC 5044 §8). The FPDU and all bytes behind it must not
/// be used (R5044-8-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpaError {
    /// Code 2: the CRC field does not match the bytes that it covers.
    #[error("CRC-32C of an FPDU does not match")]
    Crc,
    /// The length field exceeds the maximum length of a ULPDU (D13).
    #[error("ULPDU_Length {0} is above the limit of {MAX_ULPDU} bytes")]
    Length(u16),
    /// Code 3: the CRC is right, but a marker points to another start of its FPDU than the length
    /// fields before it.
    #[error(
        "marker with FPDUPTR {fpduptr:#x}, {distance:#x} bytes behind the length field of its FPDU"
    )]
    Marker {
        /// Value of the marker.
        fpduptr: u16,
        /// Distance in stream bytes from the length field to the marker.
        distance: usize,
    },
}

/// Contents of the head of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The FPDU is incomplete: the stream must hold at least this many bytes, counted from its
    /// head.
    NeedBytes(usize),
    /// One complete and verified FPDU.
    Fpdu {
        /// The ULPDU: a DDP segment, without length, pad and CRC.
        ulpdu: &'a [u8],
        /// Length in bytes of the FPDU in the stream.
        consumed: usize,
    },
}

/// Length in bytes of an FPDU on the wire: length field, ULPDU, pad to a multiple of 4, CRC (RFC
/// 5044 §4.1, R5044-4.1-3).
#[inline]
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    (LENGTH_BYTES + ulpdu_len).next_multiple_of(4) + CRC_BYTES
}

/// Maximum length in bytes of a ULPDU whose FPDU, without markers, fits a TCP segment of `emss`
/// bytes (RFC 5044 §4.5, R5044-4.5-2).
///
/// `emss` excludes TCP options in use. The result lies in [`MIN_MULPDU`]`..=`[`MAX_ULPDU`].
pub const fn mulpdu(emss: usize) -> usize {
    clamp_mulpdu(emss.saturating_sub(LENGTH_BYTES + CRC_BYTES + emss % 4))
}

/// R5044-4.5-6.
pub(super) const fn clamp_mulpdu(fits: usize) -> usize {
    if fits < MIN_MULPDU {
        MIN_MULPDU
    } else if fits > MAX_ULPDU {
        MAX_ULPDU
    } else {
        fits
    }
}

/// Finds the next FPDU at the head of the in-order `stream` (RFC 5044 §4.1, §6). Copies nothing.
///
/// If `crc` is false, the CRC field is not checked (R5044-4.1-5).
pub fn next_fpdu(stream: &[u8], crc: bool) -> Result<Step<'_>, MpaError> {
    find_fpdu(stream, crc.then_some(crc32c))
}

/// [`next_fpdu`] with the function that computes the CRC, if it is checked.
#[inline]
pub(super) fn find_fpdu(stream: &[u8], crc: Option<Crc32c>) -> Result<Step<'_>, MpaError> {
    let Ok((length, rest)) = U16::ref_from_prefix(stream) else {
        return Ok(Step::NeedBytes(LENGTH_BYTES));
    };
    let ulpdu_len = usize::from(length.get());
    if ulpdu_len > MAX_ULPDU {
        return Err(MpaError::Length(length.get()));
    }
    let total = fpdu_len(ulpdu_len);
    let (Some(fpdu), Some(ulpdu)) = (stream.get(..total), rest.get(..ulpdu_len)) else {
        return Ok(Step::NeedBytes(total));
    };
    if !crc_matches(fpdu, crc) {
        return Err(MpaError::Crc);
    }
    Ok(Step::Fpdu {
        ulpdu,
        consumed: total,
    })
}

/// True if the FPDU's last field is the CRC of what precedes it: length, ULPDU, pad and markers
/// (R5044-4.4-9). Always true without CRCs.
#[inline]
pub(super) fn crc_matches(fpdu: &[u8], crc: Option<Crc32c>) -> bool {
    crc.is_none_or(|crc32c| {
        fpdu.split_last_chunk()
            .is_some_and(|(covered, field)| crc32c(covered) == u32::from_le_bytes(*field))
    })
}

/// Completes an FPDU in place: writes the length field, the zero pad and the CRC. Without `crc` the
/// CRC field is zero.
///
/// `fpdu` has [`fpdu_len`]`(ulpdu_len)` bytes, and the ULPDU is already in place from byte 2.
///
/// # Panics
/// If `ulpdu_len` is above [`MAX_ULPDU`] or `fpdu` has another length: both are the caller's own
/// numbers.
pub fn seal_fpdu(fpdu: &mut [u8], ulpdu_len: usize, crc: bool) {
    complete_fpdu(fpdu, ulpdu_len, crc.then_some(crc32c));
}

/// [`seal_fpdu`] with the function that computes the CRC, if there is one.
#[inline]
pub(super) fn complete_fpdu(fpdu: &mut [u8], ulpdu_len: usize, crc: Option<Crc32c>) {
    let (covered, field) = enclose(fpdu, ulpdu_len);
    *field = crc_field(covered, crc);
}

/// Writes the length field and the zero pad around a ULPDU of `ulpdu_len` bytes. Returns the bytes
/// that the CRC covers, and its field.
///
/// # Panics
/// As [`seal_fpdu`].
#[inline]
pub(super) fn enclose(fpdu: &mut [u8], ulpdu_len: usize) -> (&mut [u8], &mut [u8; CRC_BYTES]) {
    let buffer_len = fpdu.len();
    // As `fpdu_len` computes it.
    let pad = buffer_len.wrapping_sub(LENGTH_BYTES + ulpdu_len + CRC_BYTES);
    let fits = ulpdu_len <= MAX_ULPDU && buffer_len.is_multiple_of(4) && pad < 4;
    let length = u16::try_from(ulpdu_len).ok().filter(|_| fits);
    let (Some(length), Some((covered, field))) = (length, fpdu.split_last_chunk_mut()) else {
        wrong_buffer(buffer_len, ulpdu_len);
    };
    let Some(begin) = covered.first_chunk_mut() else {
        wrong_buffer(buffer_len, ulpdu_len);
    };
    *begin = length.to_be_bytes();
    // The pad is the part of the last word behind the ULPDU: 0 to 3 bytes.
    let Some(word) = covered.last_chunk_mut() else {
        wrong_buffer(buffer_len, ulpdu_len);
    };
    *word = (u32::from_le_bytes(*word) & u32::MAX >> (8 * pad)).to_le_bytes();
    (covered, field)
}

/// Range of the pad.
pub(super) const fn pad_at(ulpdu_len: usize) -> Range<usize> {
    LENGTH_BYTES + ulpdu_len..fpdu_len(ulpdu_len) - CRC_BYTES
}

#[cold]
#[inline(never)]
fn wrong_buffer(buffer_len: usize, ulpdu_len: usize) -> ! {
    panic!("FPDU buffer of {buffer_len} bytes for a ULPDU of {ulpdu_len} bytes");
}

/// The CRC field for these bytes; zero without CRCs.
#[inline]
pub(super) fn crc_field(covered: &[u8], crc: Option<Crc32c>) -> [u8; CRC_BYTES] {
    crc.map_or([0; CRC_BYTES], |crc32c| crc32c(covered).to_le_bytes())
}

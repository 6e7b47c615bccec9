//! Sums of few bytes, whose CRC-32C is computed by the instruction `crc32`.

use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

use super::sums::Sums;

/// See [`Vectors::sums`](super::Vectors::sums).
#[target_feature(enable = "sse4.2")]
pub(super) fn sums(bytes: &[u8], crc: u32) -> Sums {
    let mut sums = Sums { crc, checksum: 0 };
    let (words, rest) = bytes.as_chunks();
    let (half, rest) = rest.as_chunks();
    let (pair, last) = rest.as_chunks();
    for &word in words {
        let word = u64::from_le_bytes(word);
        sums.crc = crc_behind(sums.crc, word);
        sums.checksum += (word >> 32) + (word & u64::from(u32::MAX));
    }
    for &half in half {
        let half = u32::from_le_bytes(half);
        sums.crc = _mm_crc32_u32(sums.crc, half);
        sums.checksum += u64::from(half);
    }
    for &pair in pair {
        let pair = u16::from_le_bytes(pair);
        sums.crc = _mm_crc32_u16(sums.crc, pair);
        sums.checksum += u64::from(pair);
    }
    for &last in last {
        sums.crc = _mm_crc32_u8(sums.crc, last);
        sums.checksum += u64::from(last);
    }
    sums
}

/// The CRC-32C, not inverted, of what has `crc` and of 8 bytes behind it, of which the lowest is
/// the first.
#[target_feature(enable = "sse4.2")]
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the upper half of the result is 0"
)]
pub(super) fn crc_behind(crc: u32, word: u64) -> u32 {
    _mm_crc32_u64(u64::from(crc), word) as u32
}

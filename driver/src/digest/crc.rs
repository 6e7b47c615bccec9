//! CRC-32C, of few bytes by the instruction that computes it of eight.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

use crc_fast::crc32_iscsi;

/// Up to here, instructions that wait for each other are faster than what has to be joined
/// afterwards.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 256;

/// The fastest function for CRC-32C on this processor.
pub fn crc32c_function() -> fn(&[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        return |bytes| {
            if bytes.len() > SHORT {
                return crc32_iscsi(bytes);
            }
            // SAFETY: the processor has what the function is compiled for, or this closure would
            // not exist.
            unsafe { by_instruction(bytes) }
        };
    }
    crc32_iscsi
}

/// CRC-32C of few bytes, which need not be aligned: a load across two words costs less than what
/// would come before aligned ones.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(mut bytes: &[u8]) -> u32 {
    let mut crc = u64::from(u32::MAX);
    while let Some((block, rest)) = bytes.split_first_chunk::<32>() {
        let (words, _) = block.as_chunks();
        for word in words {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        }
        bytes = rest;
    }
    while let Some((word, rest)) = bytes.split_first_chunk() {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        bytes = rest;
    }
    #[allow(clippy::cast_possible_truncation, reason = "the upper half is 0")]
    let mut crc = crc as u32;
    if let Some((half, rest)) = bytes.split_first_chunk() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*half));
        bytes = rest;
    }
    for byte in bytes {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that are summed at most: some more than are few.
    const LONGEST: usize = if cfg!(miri) { 60 } else { 600 };

    proptest! {
        #[test]
        fn crc_is_what_the_oracle_says_wherever_the_bytes_lie(bytes in proptest::collection::vec(any::<u8>(), 0..LONGEST), skip in 0usize..16) {
            let bytes = bytes.get(skip..).unwrap_or(&[]);
            prop_assert_eq!(crc32c_function()(bytes), crc32c::crc32c(bytes));
        }
    }

    #[test]
    fn every_short_length_has_the_oracles_crc() {
        let bytes: Vec<u8> = (0..300_u32).map(|i| (i * i).to_le_bytes()[1]).collect();
        for len in 0..if cfg!(miri) { 70 } else { 300 } {
            let bytes = &bytes[300 - len..];
            assert_eq!(crc32c_function()(bytes), crc32c::crc32c(bytes), "{len}");
        }
        assert_eq!(crc32c_function()(b"123456789"), 0xE306_9283);
    }
}

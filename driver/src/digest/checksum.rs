//! The sum of the Internet checksum (RFC 1071), which NICs compute for their hosts.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32, _mm256_add_epi32,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_set1_epi16, _mm256_setzero_si256, _mm256_xor_si256,
};

/// From here on vectors pay.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 256;
/// Bytes of a vector.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 32;
/// Vectors that a step takes: their sums do not wait for each other.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 4;
/// Vectors whose words add up to less than 2^31, whatever their signs: 16 words of at most 2^15 in
/// each.
#[cfg(target_arch = "x86_64")]
const RUN: usize = 2048;

/// The sum of `bytes` as words of 16 bits in this host's order, folded to 32 bits only. Zero fills
/// up an odd last byte (RFC 1071 §1). Sums of pieces of even length are added before they are
/// folded to 16 (§2).
#[inline]
pub fn checksum_sum(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= LONG && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is compiled for.
        return fold(unsafe { sum_in_lanes(bytes) });
    }
    fold(sum(bytes))
}

/// [`sum`], for vectors of 32 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_in_lanes(bytes: &[u8]) -> u128 {
    let (blocks, rest) = bytes.as_chunks();
    let runs = blocks.chunks(RUN).map(|run| u128::from(sum_of_run(run)));
    runs.sum::<u128>() + sum(rest)
}

/// The sum of at most [`RUN`] vectors. Half of a word's range is taken off each, which makes them
/// signed. One instruction adds pairs of such words. What was taken off is added at the end.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_of_run(run: &[[u8; BLOCK]]) -> u64 {
    let mut lanes = [_mm256_setzero_si256(); WIDE];
    let (wide, single) = run.as_chunks::<WIDE>();
    for blocks in wide {
        for (lane, block) in lanes.iter_mut().zip(blocks) {
            *lane = _mm256_add_epi32(*lane, signed_pairs(block));
        }
    }
    for (lane, block) in lanes.iter_mut().zip(single) {
        *lane = _mm256_add_epi32(*lane, signed_pairs(block));
    }
    let [a, b, c, d] = lanes;
    let all = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let words = run.len() * BLOCK / 2;
    (words as u64 * 0x8000).wrapping_add_signed(sum_of_lanes(all).into())
}

/// The words of a vector, less half of their range each, added two by two.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn signed_pairs(block: &[u8; BLOCK]) -> __m256i {
    // SAFETY: the bytes read are the block's, which need not be aligned.
    let words = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
    let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
    _mm256_madd_epi16(signed, _mm256_set1_epi16(1))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_of_lanes(lanes: __m256i) -> i32 {
    let (low, high) = (
        _mm256_castsi256_si128(lanes),
        _mm256_extracti128_si256::<1>(lanes),
    );
    let four = _mm_add_epi32(low, high);
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b10_11_00_01>(four));
    let one = _mm_add_epi32(two, _mm_shuffle_epi32::<0b01_00_11_10>(two));
    _mm_cvtsi128_si32(one)
}

#[inline]
fn sum(bytes: &[u8]) -> u128 {
    let (words, rest) = bytes.as_chunks();
    let (half, rest) = rest.as_chunks();
    let (pair, last) = rest.as_chunks();
    let words = words
        .iter()
        .map(|word| u128::from(u64::from_ne_bytes(*word)));
    let half = half
        .iter()
        .map(|half| u128::from(u32::from_ne_bytes(*half)));
    let pair = pair
        .iter()
        .map(|pair| u128::from(u16::from_ne_bytes(*pair)));
    let last = last
        .iter()
        .map(|last| u128::from(u16::from_ne_bytes([*last, 0])));
    words.sum::<u128>() + half.sum::<u128>() + pair.sum::<u128>() + last.sum::<u128>()
}

/// Halves the width twice; what does not fit comes back in at the other end.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the upper half is added, too"
)]
fn fold(sum: u128) -> u32 {
    let (sum, carry) = ((sum >> 64) as u64).overflowing_add(sum as u64);
    let sum = sum + u64::from(carry);
    let (sum, carry) = ((sum >> 32) as u32).overflowing_add(sum as u32);
    sum + u32::from(carry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RFC 1071 §1 has it: word by word, carries added at once.
    fn plainly(bytes: &[u8]) -> u16 {
        let mut sum = 0_u16;
        for word in bytes.chunks(2) {
            let word = u16::from_ne_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
            let (added, carry) = sum.overflowing_add(word);
            sum = added + u16::from(carry);
        }
        sum
    }

    fn folded(mut sum: u32) -> u16 {
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn all_ways_of_adding_agree_at_every_length_and_place() {
        // Miri takes milliseconds for a byte.
        let lens = if cfg!(miri) {
            vec![0, 1, 2, 3, 7, 255, 256, 299]
        } else {
            (0..400).chain([1448, 1449, 8948, 9001]).collect()
        };
        let bytes: Vec<u8> = (0..if cfg!(miri) { 400 } else { 9100_u32 })
            .map(|i| (i * i).to_le_bytes()[1] | 0x80)
            .collect();
        let places = lens
            .into_iter()
            .flat_map(|len| [0, 1, 7].map(|begin| (begin, len)));
        for (begin, len) in places {
            let part = &bytes[begin..begin + len];
            let expected = plainly(part);
            assert_eq!(
                folded(fold(sum(part))),
                expected,
                "{len} bytes from {begin}"
            );
            assert_eq!(folded(checksum_sum(part)), expected, "{len} bytes");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs minutes; the other test goes the same ways")]
    fn largest_packet_of_ones_does_not_overflow() {
        let ones = vec![0xff; 65_535];
        assert_eq!(folded(checksum_sum(&ones)), plainly(&ones));
        assert_eq!(checksum_sum(&vec![0; 65_535]), 0);
        assert_eq!(checksum_sum(&[]), 0);
        // Several runs of vectors, of the largest words and of the smallest.
        let mixed = [vec![0xff; 200_000], vec![0; 200_001]].concat();
        assert_eq!(folded(checksum_sum(&mixed)), plainly(&mixed));
    }
}

//! One pass with vectors of 32 bytes (AVX2) and the instruction `crc32`.
//!
//! That instruction takes three times as long as until the next can begin. So the bytes are three
//! streams one behind the other, which go on by turns. Multiplications move the CRCs of the first
//! two to where they stand ahead of the third's.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_xor_si128,
    _mm256_set1_epi16, _mm256_zeroupper,
};
use std::mem::offset_of;
use std::ptr::NonNull;

use super::few;
use super::polynomial::{crc_ahead, times_power};
use super::sums::Sums;
use crate::memory::{Fault, fallible, racy_read_constant};

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Streams.
const STREAMS: usize = 3;
/// Vectors of a stream at most. The three lie so close together then that the processor fetches
/// ahead of them as of one.
const MOST: usize = 6;

/// Constants that move a CRC ahead by each number of vectors.
const AHEAD: [u32; 2 * MOST + 1] = ahead();

const fn ahead() -> [u32; 2 * MOST + 1] {
    let mut factors = [0; 2 * MOST + 1];
    factors[1] = crc_ahead(8 * VECTOR);
    let mut vectors = 2;
    while vectors < factors.len() {
        factors[vectors] = times_power(factors[vectors - 1], 8 * VECTOR);
        vectors += 1;
    }
    factors
}

/// Results of the assembler.
#[repr(C, align(32))]
#[derive(Default)]
struct Left {
    /// Sums of the words, which count as signed: half of a word's range was taken off each.
    words: [i32; VECTOR / 4],
    crcs: [u32; STREAMS],
}

const _: () = assert!(offset_of!(Left, crcs) == 32);

/// See [`Vectors::copy`](super::Vectors::copy).
///
/// # Safety
///
/// As there, and there are at most 1 MiB.
#[target_feature(enable = "avx2,pclmulqdq,sse4.2")]
pub(super) unsafe fn copy(dst: &mut [u8], src: NonNull<u8>, crc: u32) -> Result<Sums, Fault> {
    let mut sums = Sums { crc, checksum: 0 };
    let (mut rest, mut src) = (dst, src);
    while rest.len() >= STREAMS * VECTOR {
        let vectors = (rest.len() / (STREAMS * VECTOR)).min(MOST);
        let (streams, behind) = rest.split_at_mut(vectors * STREAMS * VECTOR);
        // SAFETY: the caller vouches for the source, of which the streams are a part as they are of
        // the destination.
        unsafe { copy_streams(streams, src, vectors, &mut sums) }?;
        // SAFETY: the streams are no more than what is left of the source.
        src = unsafe { src.add(streams.len()) };
        rest = behind;
    }
    // The following code uses vectors of 16 bytes. The assembler may not execute this: it has to
    // leave its inputs as they are.
    _mm256_zeroupper();
    // SAFETY: the caller vouches for the source, and as much of it is left.
    unsafe { racy_read_constant(rest, src) }?;
    let few = few::sums(rest, sums.crc);
    Ok(Sums {
        crc: few.crc,
        checksum: sums.checksum + few.checksum,
    })
}

/// Copies three streams of `vectors` each, and adds them to the sums.
///
/// # Safety
///
/// As for [`copy`], and `dst` has as many bytes as these streams.
#[target_feature(enable = "avx2,pclmulqdq,sse4.2")]
#[inline]
unsafe fn copy_streams(
    dst: &mut [u8],
    src: NonNull<u8>,
    vectors: usize,
    sums: &mut Sums,
) -> Result<(), Fault> {
    let mut left = Left::default();
    // SAFETY: the caller vouches for the source and the number of bytes; the destination is a
    // slice.
    unsafe { pass(dst.as_mut_ptr(), src.as_ptr(), vectors, sums.crc, &mut left) }?;
    let [first, second, third] = left.crcs;
    let ahead = _mm_xor_si128(
        times(first, AHEAD[2 * vectors]),
        times(second, AHEAD[vectors]),
    );
    let ahead = _mm_cvtsi128_si64(ahead).cast_unsigned();
    sums.crc = few::crc_behind(0, ahead) ^ third;
    let sum: i64 = left.words.iter().map(|&sum| i64::from(sum)).sum();
    sums.checksum += (dst.len() as u64 / 2 * 0x8000).wrapping_add_signed(sum);
    Ok(())
}

/// The product without carries.
#[target_feature(enable = "pclmulqdq")]
#[inline]
fn times(crc: u32, factor: u32) -> __m128i {
    let [crc, factor] = [crc, factor].map(|number| _mm_cvtsi64_si128(i64::from(number)));
    _mm_clmulepi64_si128::<0>(crc, factor)
}

/// Loads the next vector of a stream, which is at `$at`, and stores it.
macro_rules! carry {
    ($vector:literal, $at:literal) => {
        concat!(
            "vmovdqu ymm",
            $vector,
            ", [{src} + ",
            $at,
            "]\n",
            "vmovdqu [{dst} + ",
            $at,
            "], ymm",
            $vector,
        )
    };
}

/// Adds a vector's words, which an exclusive or makes signed, to their sums.
macro_rules! add {
    ($vector:literal) => {
        concat!(
            "vpxor ymm",
            $vector,
            ", ymm",
            $vector,
            ", ymm4\n",
            "vpmaddwd ymm",
            $vector,
            ", ymm",
            $vector,
            ", ymm5\n",
            "vpaddd ymm3, ymm3, ymm",
            $vector,
        )
    };
}

/// Goes on with the CRCs, from what was stored.
macro_rules! crc {
    ($at:literal) => {
        concat!(
            "crc32 {first}, qword ptr [{dst} + ",
            $at,
            "]\n",
            "crc32 {second}, qword ptr [{dst} + {stream} + ",
            $at,
            "]\n",
            "crc32 {third}, qword ptr [{dst} + 2 * {stream} + ",
            $at,
            "]",
        )
    };
}

/// Copies three streams of `vectors` each, and leaves what there is to know.
///
/// # Safety
///
/// Each of `src` and `dst` is for as many bytes, which do not overlap; or either is gone. `vectors`
/// is at least 1.
#[target_feature(enable = "avx2,sse4.2")]
#[inline]
unsafe fn pass(
    dst: *mut u8,
    src: *const u8,
    vectors: usize,
    crc: u32,
    left: &mut Left,
) -> Result<(), Fault> {
    let [half, ones] = [i16::MIN, 1].map(|word| _mm256_set1_epi16(word));
    // SAFETY: a vector of each stream is `vectors` times in the ranges. The sums and the CRCs are
    // stored in `left` as it has them.
    unsafe {
        fallible!(
            [
                "vpxor ymm3, ymm3, ymm3",
                "2:",
                carry!("0", "0"), carry!("1", "{stream}"), carry!("2", "2 * {stream}"),
                crc!("0"), crc!("8"), crc!("16"), crc!("24"),
                add!("0"), add!("1"), add!("2"),
                "add {src}, 32", "add {dst}, 32",
                "sub {vectors}, 1", "jnz 2b",
                "vmovdqa [{left}], ymm3",
                "mov [{left} + 32], {first:e}",
                "mov [{left} + 36], {second:e}",
                "mov [{left} + 40], {third:e}",
            ],
            src = inout(reg) src => _, dst = inout(reg) dst => _, left = in(reg) left,
            stream = in(reg) vectors * VECTOR, vectors = inout(reg) vectors => _,
            first = inout(reg) u64::from(crc) => _,
            second = inout(reg) 0_u64 => _,
            third = inout(reg) 0_u64 => _,
            in("ymm4") half, in("ymm5") ones,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            options(nostack),
        );
    }
    Ok(())
}

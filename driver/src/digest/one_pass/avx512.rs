//! One pass with vectors of 64 bytes (AVX-512, VPCLMULQDQ).
//!
//! Four accumulators take every fourth vector each. Before a vector is added to its accumulator, a
//! multiplication moves that ahead of the 256 bytes that have come since. At the end the
//! accumulators are moved to where they stand ahead of the last 16 bytes.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m512i, _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm512_broadcast_i32x4,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_set1_epi16,
    _mm512_setzero_si512, _mm512_ternarylogic_epi64,
};
use std::mem::offset_of;
use std::ptr::NonNull;

use super::few;
use super::polynomial::ahead;
use super::sums::Sums;
use crate::memory::{Fault, fallible};

/// Bytes of a vector.
const VECTOR: usize = 64;
/// Accumulators.
const LANES: usize = 4;
/// Numbers of 64 bits in a vector.
const WORDS: usize = VECTOR / 8;
/// The bits of `a ^ b ^ c`, as the instruction for any function of three wants them.
const XOR: i32 = 0x96;

/// Moves an accumulator ahead of those since.
const STEP: [u64; 2] = pair(8 * LANES * VECTOR);
/// Moves each 16 bytes of the accumulators, from the oldest vector on, to where they stand ahead of
/// the last ones.
const LAST: [[u64; WORDS]; LANES] = last();

/// What moves 16 bytes ahead by `bits`: the first 8 of them stand ahead of the others.
const fn pair(bits: usize) -> [u64; 2] {
    [ahead(bits + 64), ahead(bits)]
}

const fn last() -> [[u64; WORDS]; LANES] {
    let mut factors = [[0; WORDS]; LANES];
    let mut word = 0;
    while word < LANES * WORDS {
        let behind = 128 * (LANES * WORDS / 2 - 1 - word / 2);
        factors[word / WORDS][word % WORDS] = pair(behind)[word % 2];
        word += 1;
    }
    factors
}

/// Results of the assembler.
#[repr(C, align(64))]
struct Left {
    accumulators: [[u64; WORDS]; LANES],
    /// The bytes behind the last whole vector.
    rest: [u8; VECTOR],
    /// Sums of the words, which count as signed: half of a word's range was taken off each.
    words: [i32; VECTOR / 4],
}

const _: () = assert!(offset_of!(Left, rest) == 256 && offset_of!(Left, words) == 320);

/// See [`Vectors::copy`](super::Vectors::copy).
///
/// # Safety
///
/// As there, and there are 256 bytes to 1 MiB.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) unsafe fn copy(dst: &mut [u8], src: NonNull<u8>, crc: u32) -> Result<Sums, Fault> {
    let mut left = Left {
        accumulators: [[0; WORDS]; LANES],
        rest: [0; VECTOR],
        words: [0; VECTOR / 4],
    };
    let len = dst.len();
    // SAFETY: the caller vouches for source and number; the destination is a slice.
    unsafe { pass(dst.as_mut_ptr(), src.as_ptr(), len, crc, &mut left) }?;
    let (vectors, rest) = (len / VECTOR, len % VECTOR);
    let ahead = reduce(&left.accumulators, vectors % LANES);
    let crc = few::crc_behind(few::crc_behind(0, ahead[0]), ahead[1]);
    // The last vector was added as a whole, with zeros behind the rest.
    let words = len.div_ceil(VECTOR) * VECTOR / 2;
    let sum: i64 = left.words.iter().map(|&sum| i64::from(sum)).sum();
    Ok(Sums {
        crc: few::sums(&left.rest[..rest], crc).crc,
        checksum: (words as u64 * 0x8000).wrapping_add_signed(sum),
    })
}

/// The accumulators as the last 16 bytes of a message. `first` is the oldest.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn reduce(accumulators: &[[u64; WORDS]; LANES], first: usize) -> [u64; 2] {
    let mut sum = _mm512_setzero_si512();
    for (age, factors) in LAST.iter().enumerate() {
        let accumulator = vector(&accumulators[(first + age) % LANES]);
        let factors = vector(factors);
        let high = _mm512_clmulepi64_epi128::<0x00>(accumulator, factors);
        let low = _mm512_clmulepi64_epi128::<0x11>(accumulator, factors);
        sum = _mm512_ternarylogic_epi64::<XOR>(sum, high, low);
    }
    let ahead: __m128i = _mm_xor_si128(
        _mm_xor_si128(
            _mm512_extracti32x4_epi32::<0>(sum),
            _mm512_extracti32x4_epi32::<1>(sum),
        ),
        _mm_xor_si128(
            _mm512_extracti32x4_epi32::<2>(sum),
            _mm512_extracti32x4_epi32::<3>(sum),
        ),
    );
    [
        _mm_extract_epi64::<0>(ahead).cast_unsigned(),
        _mm_extract_epi64::<1>(ahead).cast_unsigned(),
    ]
}

#[target_feature(enable = "avx512f")]
fn vector(words: &[u64; WORDS]) -> __m512i {
    // SAFETY: the bytes read are the array's, which need not be aligned.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// Loads a vector and stores it.
macro_rules! carry {
    ($vector:literal, $at:literal) => {
        concat!(
            "vmovdqu64 zmm",
            $vector,
            ", [{src} + ",
            $at,
            "]\n",
            "vmovdqu64 [{dst} + ",
            $at,
            "], zmm",
            $vector,
        )
    };
}

/// Adds the words of a vector, which an exclusive or makes signed, to their sums.
macro_rules! add {
    ($vector:literal) => {
        concat!(
            "vpxord zmm28, zmm",
            $vector,
            ", zmm21\n",
            "vpmaddwd zmm28, zmm28, zmm22\n",
            "vpaddd zmm20, zmm20, zmm28",
        )
    };
}

/// Moves an accumulator ahead, and adds a vector to it.
macro_rules! fold {
    ($accumulator:literal, $vector:literal) => {
        concat!(
            "vpclmulqdq zmm29, zmm",
            $accumulator,
            ", zmm23, 0x00\n",
            "vpclmulqdq zmm",
            $accumulator,
            ", zmm",
            $accumulator,
            ", zmm23, 0x11\n",
            "vpternlogq zmm",
            $accumulator,
            ", zmm29, zmm",
            $vector,
            ", 0x96",
        )
    };
}

/// Four vectors, added to their sums.
macro_rules! carry_four {
    () => {
        concat!(
            carry!("24", "0"),
            "\n",
            carry!("25", "64"),
            "\n",
            carry!("26", "128"),
            "\n",
            carry!("27", "192"),
            "\n",
            add!("24"),
            "\n",
            add!("25"),
            "\n",
            add!("26"),
            "\n",
            add!("27"),
            "\n",
            "add {src}, 256\n",
            "add {dst}, 256",
        )
    };
}

/// The next vector, if there is another whole one: else they end here.
macro_rules! carry_single {
    ($accumulator:literal) => {
        concat!(
            "sub {singles}, 1\n",
            "jb 4f\n",
            carry!("24", "0"),
            "\n",
            add!("24"),
            "\n",
            fold!($accumulator, "24"),
            "\n",
            "add {src}, 64\n",
            "add {dst}, 64",
        )
    };
}

/// The first vectors are the accumulators: the CRC of what is ahead is added to its first bytes.
macro_rules! begin {
    () => {
        concat!(
            "vmovd xmm30, {crc:e}\n",
            "vpxorq zmm16, zmm24, zmm30\n",
            "vmovdqa64 zmm17, zmm25\n",
            "vmovdqa64 zmm18, zmm26\n",
            "vmovdqa64 zmm19, zmm27",
        )
    };
}

/// What is left of the bytes, if there is a rest: zeros fill up the vector.
macro_rules! carry_rest {
    () => {
        concat!(
            "test {mask}, {mask}\n",
            "jz 5f\n",
            "kmovq k1, {mask}\n",
            "vmovdqu8 zmm24{{k1}}{{z}}, [{src}]\n",
            "vmovdqu8 [{dst}]{{k1}}, zmm24\n",
            "vmovdqa64 [{left} + 256], zmm24\n",
            add!("24"),
            "\n5:",
        )
    };
}

/// Stores accumulators and sums where [`Left`] has them.
macro_rules! leave {
    () => {
        concat!(
            "vmovdqa64 [{left}], zmm16\n",
            "vmovdqa64 [{left} + 64], zmm17\n",
            "vmovdqa64 [{left} + 128], zmm18\n",
            "vmovdqa64 [{left} + 192], zmm19\n",
            "vmovdqa64 [{left} + 320], zmm20",
        )
    };
}

/// Copies, and leaves what there is to know. It uses only the vector registers from 16 on, which
/// need no `vzeroupper`.
///
/// # Safety
///
/// `src..src+len` is readable, `dst..dst+len` writable, and they do not overlap; or either is gone.
/// `len` is 256 or more.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
unsafe fn pass(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    crc: u32,
    left: &mut Left,
) -> Result<(), Fault> {
    let [low, high] = STEP.map(u64::cast_signed);
    let [zero, half, ones] = [0, i16::MIN, 1].map(|word| _mm512_set1_epi16(word));
    let step = _mm512_broadcast_i32x4(_mm_set_epi64x(high, low));
    // SAFETY: four vectors are `len / 256` times in the ranges, which is once at least. Then one is
    // as often as `len / 64` leaves, and the rest by the mask. The accumulators, the rest and the
    // sums are stored in `left` as it has them.
    unsafe {
        fallible!(
            [
                carry_four!(), begin!(),
                "sub {fours}, 1", "jz 3f",
                "2:",
                carry_four!(),
                fold!("16", "24"), fold!("17", "25"), fold!("18", "26"), fold!("19", "27"),
                "sub {fours}, 1", "jnz 2b",
                "3:",
                carry_single!("16"), carry_single!("17"), carry_single!("18"),
                "4:",
                carry_rest!(), leave!(),
            ],
            src = inout(reg) src => _, dst = inout(reg) dst => _, crc = in(reg) crc, left = in(reg) left,
            fours = inout(reg) len / (LANES * VECTOR) => _, singles = inout(reg) len / VECTOR % LANES => _,
            mask = in(reg) (1_u64 << (len % VECTOR)) - 1,
            inout("zmm20") zero => _, in("zmm21") half, in("zmm22") ones, in("zmm23") step,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm24") _, out("zmm25") _,
            out("zmm26") _, out("zmm27") _, out("zmm28") _, out("zmm29") _, out("zmm30") _, out("k1") _,
            options(nostack),
        );
    }
    Ok(())
}

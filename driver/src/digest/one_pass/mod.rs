//! One pass over payload: vectors of it are loaded from region memory, stored in a frame, and added
//! to CRC-32C and Internet checksum. Region memory is read once, since its owner may change it
//! meanwhile: both are of the bytes in the frame (decision record driver/0020).
//!
//! The loads and stores are in assembler, for the reasons that [`racy`](crate::memory::racy) has,
//! and memory that is gone ends in the same [`Fault`]. Only on x86-64 there are such vectors.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod few;
#[cfg(any(all(target_arch = "x86_64", not(miri)), test))]
#[cfg_attr(any(not(target_arch = "x86_64"), miri), allow(dead_code))]
mod polynomial;
mod sums;

use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::memory::Fault;
pub(crate) use sums::Sums;

/// Bytes for which one pass is made: fewer are better left to the ways for few, and the sums of
/// more would overflow their lanes.
const LENS: RangeInclusive<usize> = 256..=1 << 20;

/// Vectors of the processor that one pass can be made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// 64 bytes, with carry-less multiplication of all of them (VPCLMULQDQ).
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
    /// 32 bytes, with the instruction `crc32`.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
}

impl Vectors {
    /// The best that there are; `None` if the processor has none of them.
    #[inline]
    pub(crate) fn best() -> Option<Self> {
        static BEST: OnceLock<Option<Vectors>> = OnceLock::new();
        *BEST.get_or_init(|| Self::all().next())
    }

    /// All that the processor has, the best first.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn all() -> impl Iterator<Item = Self> {
        use std::arch::is_x86_feature_detected as has;
        let crc = has!("sse4.2") && has!("pclmulqdq");
        let avx512 = has!("avx512f") && has!("avx512bw") && has!("vpclmulqdq");
        let found = [
            (crc && avx512, Self::Avx512),
            (crc && has!("avx2"), Self::Avx2),
        ];
        found.into_iter().filter_map(|(has, it)| has.then_some(it))
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn all() -> impl Iterator<Item = Self> {
        std::iter::empty()
    }

    /// Copies `dst.len()` bytes of shared memory from `src` on into `dst`; their sums, if the
    /// CRC-32C of what is ahead of them is `crc`, not inverted. `None`, with nothing done, if they
    /// are too few or too many.
    ///
    /// # Safety
    ///
    /// `src` may be used to read that many initialised bytes, which no exclusive reference covers,
    /// or they are gone.
    #[inline]
    #[cfg_attr(
        not(all(target_arch = "x86_64", not(miri))),
        expect(unused_variables, reason = "there are no vectors to use them")
    )]
    pub(crate) unsafe fn copy(
        self,
        dst: &mut [u8],
        src: NonNull<u8>,
        crc: u32,
    ) -> Option<Result<Sums, Fault>> {
        if !LENS.contains(&dst.len()) {
            return None;
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        match self {}
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Some(match self {
            // SAFETY: the processor has what the function is compiled for, as there is no such
            // value otherwise, and the caller vouches for the source.
            Self::Avx512 => unsafe { avx512::copy(dst, src, crc) },
            // SAFETY: as above.
            Self::Avx2 => unsafe { avx2::copy(dst, src, crc) },
        })
    }

    /// The sums of bytes that are there already, and are best few, if what is ahead of them has
    /// this CRC-32C, not inverted.
    #[inline]
    #[cfg_attr(
        not(all(target_arch = "x86_64", not(miri))),
        expect(unused_variables, reason = "there are no vectors to use them")
    )]
    pub(crate) fn sums(self, bytes: &[u8], crc: u32) -> Sums {
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        match self {}
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        match self {
            // SAFETY: the processor has the instruction, as there is no such value otherwise.
            Self::Avx512 | Self::Avx2 => unsafe { few::sums(bytes, crc) },
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests;

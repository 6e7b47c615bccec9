//! Digest of bytes that are written into a frame: CRC-32C and Internet checksum.
//!
//! This module has all code that computes over payload, alone or in one pass with the copy.
#![allow(unsafe_code)]

mod checksum;
mod crc;
mod one_pass;

use std::num::NonZeroU64;
use std::ops::Add;

pub use checksum::checksum_sum;
pub use crc::crc32c_function;

use crate::memory::{CopyError, Fault, SharedBytes};
use one_pass::{Sums, Vectors};

/// Words of 16 bits that count as 0: all bits are set (RFC 1071 §1).
const MINUS_ZERO: NonZeroU64 = NonZeroU64::new(0xffff).unwrap();

/// CRC-32C and Internet checksum of bytes that are added in the order in which they are in a frame.
/// [`read`](Self::read) copies bytes out of region memory and adds them, in one pass.
#[derive(Clone, Copy, Debug)]
pub struct Digest {
    /// Not inverted.
    crc: u32,
    /// Words of 16 bits, not folded.
    checksum: u64,
    /// The next byte is the second one of a word.
    odd: bool,
}

/// Sum of bytes for an Internet checksum (RFC 1071), if they begin at an even offset of the packet.
/// Ones' complement has two zeros, of which this type uses the one that is not 0. So an `Option` of
/// it takes one register.
#[derive(Clone, Copy, Debug)]
pub struct PartialSum(NonZeroU64);

impl PartialSum {
    /// The sum of 16-bit words in this host's order, not folded.
    #[inline]
    fn new(words: u64) -> Self {
        Self(NonZeroU64::new(words).unwrap_or(MINUS_ZERO))
    }

    /// That of four bytes.
    #[inline]
    pub fn of_word(bytes: [u8; 4]) -> Self {
        // Words of 4 bytes have the same sum as those of 2: 2^16 is 1 more than the modulus.
        Self::new(u32::from_ne_bytes(bytes).into())
    }

    /// The sum as words of 16 bits in this host's order, not folded.
    #[inline]
    pub fn words(self) -> u64 {
        self.0.get()
    }
}

impl Default for PartialSum {
    /// That of no bytes.
    #[inline]
    fn default() -> Self {
        Self(MINUS_ZERO)
    }
}

impl Add for PartialSum {
    type Output = Self;

    /// Those of both, if the first are of an even number.
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0.get())) // a packet's is far from there
    }
}

impl Default for Digest {
    /// That of no bytes.
    #[inline]
    fn default() -> Self {
        Self {
            crc: u32::MAX,
            checksum: 0,
            odd: false,
        }
    }
}

impl Digest {
    /// True if the processor has vectors for one pass. Else a digest takes longer than passes of
    /// their own for CRC and checksum.
    #[inline]
    pub fn has_vectors() -> bool {
        Vectors::best().is_some()
    }

    /// Bytes follow.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let sums = match Vectors::best() {
            Some(vectors) => vectors.sums(bytes, self.crc),
            None => sums_plainly(bytes, self.crc),
        };
        self.note(sums, bytes.len());
    }

    /// CRC-32C of all bytes.
    #[inline]
    pub fn crc32c(&self) -> u32 {
        !self.crc
    }

    /// The sum of all bytes.
    #[inline]
    pub fn checksum(&self) -> PartialSum {
        PartialSum::new(self.checksum)
    }

    /// Bytes with these sums follow.
    #[inline]
    fn note(&mut self, sums: Sums, len: usize) {
        self.crc = sums.crc;
        // From an odd place on, the bytes of all words are exchanged (RFC 1071 §2 B): 2^8 times the
        // sum, as 2^16 is 1 more than the modulus.
        self.checksum += sums.checksum << if self.odd { 8 } else { 0 };
        self.odd ^= len % 2 == 1;
    }

    /// Copies `dst.len()` bytes of shared memory from `offset` on into `dst`, and adds them: in one
    /// pass if the processor has vectors for that. The sums are those of the bytes in `dst`, even
    /// if the memory changes meanwhile.
    ///
    /// # Errors
    ///
    /// As [`SharedBytes::read`]. A digest that failed must not be used.
    #[inline]
    pub fn read(
        &mut self,
        source: &SharedBytes,
        offset: usize,
        dst: &mut [u8],
    ) -> Result<(), CopyError> {
        let len = dst.len();
        let src = source.checked_ptr(offset, len)?;
        let in_one_pass = Vectors::best().and_then(|vectors| {
            // SAFETY: `checked_ptr` proved that the range lies in the memory, which is readable or
            // gone as `SharedBytes` was promised when it was made, and into which nothing hands out
            // an exclusive reference.
            unsafe { vectors.copy(dst, src, self.crc) }
        });
        let Some(copied) = in_one_pass else {
            source.read(offset, dst)?;
            self.add(dst);
            return Ok(());
        };
        let sums = copied.map_err(|Fault| CopyError::Gone { offset, len })?;
        self.note(sums, len);
        Ok(())
    }
}

/// The sums of bytes, if what is ahead of them has this CRC-32C, not inverted: by whatever
/// instructions the libraries choose.
fn sums_plainly(bytes: &[u8], crc: u32) -> Sums {
    use crc_fast::{CrcAlgorithm, Digest};
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, crc.into());
    digest.update(bytes);
    Sums {
        crc: u32::try_from(digest.get_state()).unwrap_or_default(), // it is of 32 bits
        checksum: checksum_sum(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of a piece at most.
    const LONGEST: usize = if cfg!(miri) { 20 } else { 10_000 };

    fn folded(mut sum: u64) -> u64 {
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        sum
    }

    /// Pieces, and whether each is copied out of region memory.
    fn pieces() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
        let len = prop_oneof![0..40_usize, 0..LONGEST];
        let bytes = len.prop_flat_map(|len| prop::collection::vec(any::<u8>(), len));
        prop::collection::vec((bytes, any::<bool>()), 0..5)
    }

    fn is_that_of(digest: &Digest, bytes: &[u8]) -> bool {
        let expected = PartialSum::new(checksum_sum(bytes).into());
        let sums = [digest.checksum(), expected].map(|sum| folded(sum.words()));
        digest.crc32c() == crc32c::crc32c(bytes) && sums[0] == sums[1]
    }

    #[test]
    fn check_value_is_right() {
        let mut digest = Digest::default();
        assert_eq!((digest.crc32c(), digest.checksum().words()), (0, 0xffff));
        digest.add(b"12345");
        digest.add(b"6789");
        assert_eq!(digest.crc32c(), 0xe306_9283);
        assert_eq!(sums_plainly(b"123456789", !0).crc, !0xe306_9283);
    }

    proptest! {
        #[test]
        fn pieces_have_the_digest_of_all_of_them(pieces in pieces(), offset in 0_usize..70) {
            let mut digest = Digest::default();
            let mut frame = Vec::new();
            for (bytes, is_shared) in pieces {
                let begin = frame.len();
                frame.extend_from_slice(&bytes);
                if is_shared {
                    let memory = SharedBytes::anonymous(offset + bytes.len()).unwrap();
                    memory.write(offset, &bytes).unwrap();
                    frame[begin..].fill(0);
                    digest.read(&memory, offset, &mut frame[begin..]).unwrap();
                    prop_assert_eq!(&frame[begin..], &bytes);
                } else {
                    digest.add(&bytes);
                }
            }
            prop_assert!(is_that_of(&digest, &frame));
        }

        #[test]
        fn crc_behind_any_other_is_right_without_vectors(crc: u32, bytes in prop::collection::vec(any::<u8>(), 0..LONGEST)) {
            let expected = !crc32c::crc32c_append(!crc, &bytes);
            prop_assert_eq!(sums_plainly(&bytes, crc).crc, expected);
        }
    }
}

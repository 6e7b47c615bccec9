//! Atomic change of eight bytes of region memory (RFC 7306 §5.3).
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;

use super::racy::{Fault, compare_exchange};
use super::shared::{CopyError, OutOfBounds, SharedBytes};

/// Bytes that an atomic access covers, and their alignment in memory.
const OPERAND: usize = size_of::<AtomicU64>();
const _: () = assert!(align_of::<AtomicU64>() == OPERAND);

/// Why eight bytes were not changed atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AtomicAccessError {
    /// The bytes leave the memory.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// Their address is no multiple of eight.
    #[error("the bytes at offset {offset} are not 8-aligned in memory")]
    Misaligned {
        /// Offset of the first byte.
        offset: usize,
    },
    /// The memory is read-only.
    #[error("the region's memory can only be read")]
    ReadOnly,
    /// The bytes were unmapped, protected or truncated, and have not changed.
    #[error("the bytes at offset {offset} of the region can no longer be accessed")]
    Gone {
        /// Offset of the first byte.
        offset: usize,
    },
}

impl From<CopyError> for AtomicAccessError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::OutOfBounds(outside) => Self::OutOfBounds(outside),
            CopyError::ReadOnly => Self::ReadOnly,
            CopyError::Gone { offset, .. } => Self::Gone { offset },
        }
    }
}

impl SharedBytes {
    /// True if the byte at `offset` has an address that is a multiple of eight. The first byte of a
    /// region may be unaligned: a file can be mapped from any offset.
    pub fn is_aligned(&self, offset: usize) -> bool {
        self.checked_ptr(offset, 0)
            .is_ok_and(|byte| byte.cast::<AtomicU64>().is_aligned())
    }

    /// Replaces the number in the eight bytes at `offset`, in the host's byte order, by the result
    /// of `change`, and returns the former number.
    ///
    /// The replacement is atomic for all calls of this function, in any thread or process, and for
    /// atomic accesses of the application to the same bytes. `change` is called again whenever the
    /// number has changed in the meantime.
    ///
    /// # Errors
    ///
    /// - [`AtomicAccessError::OutOfBounds`], [`AtomicAccessError::Misaligned`]: the eight bytes
    ///   leave the memory, or are not 8-aligned.
    /// - [`AtomicAccessError::ReadOnly`]: the memory is read-only.
    /// - [`AtomicAccessError::Gone`]: the bytes were unmapped, protected or truncated.
    pub fn update_u64(
        &self,
        offset: usize,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, AtomicAccessError> {
        self.check_writable()?;
        let number = self.checked_ptr(offset, OPERAND)?.cast::<u64>();
        if !number.cast::<AtomicU64>().is_aligned() {
            return Err(AtomicAccessError::Misaligned { offset });
        }
        let mut bytes = [0; OPERAND];
        self.read(offset, &mut bytes)?;
        let mut before = u64::from_ne_bytes(bytes);
        loop {
            // SAFETY: `checked_ptr` proved that the eight bytes lie in the memory, which is
            // readable or gone, `check_writable` that they may be written; they are aligned as an
            // `AtomicU64` must be, and nothing hands out a plain reference into shared memory.
            let found = unsafe { compare_exchange(number, before, change(before)) };
            match found.map_err(|Fault| AtomicAccessError::Gone { offset })? {
                found if found == before => return Ok(before),
                found => before = found,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_replaced_and_the_one_before_returned() {
        let memory = SharedBytes::anonymous(24).unwrap();
        memory.write(8, &41_u64.to_ne_bytes()).unwrap();
        assert_eq!(memory.update_u64(8, |n| n + 1), Ok(41));
        let mut bytes = [0; 8];
        memory.read(8, &mut bytes).unwrap();
        assert_eq!(bytes, 42_u64.to_ne_bytes());
        assert_eq!(memory.to_vec()[..8], [0; 8]);
        assert_eq!(memory.to_vec()[16..], [0; 8]);
    }

    #[test]
    fn what_is_misaligned_or_outside_stays_as_it_is() {
        let memory = SharedBytes::anonymous(20).unwrap();
        memory.fill(0..20, 7).unwrap();
        for offset in [1, 2, 4, 7, 9, 12] {
            let misaligned = Err(AtomicAccessError::Misaligned { offset });
            assert_eq!(memory.update_u64(offset, |_| 0), misaligned);
            assert!(!memory.is_aligned(offset));
        }
        for offset in [13, 16, 20, 24, usize::MAX - 7, usize::MAX] {
            let refused = memory.update_u64(offset, |_| 0);
            assert!(
                matches!(refused, Err(AtomicAccessError::OutOfBounds(_))),
                "{offset}: {refused:?}"
            );
        }
        assert_eq!(memory.to_vec(), [7; 20]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a mapping of a file")]
    fn alignment_is_that_of_the_address_not_of_the_offset() {
        let name = c"eight bytes at an odd place";
        let file = nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::empty());
        let mut file = std::fs::File::from(file.unwrap());
        std::io::Write::write_all(&mut file, &[0; 64]).unwrap();
        // SAFETY: no other code knows the file.
        let map = unsafe {
            memmap2::MmapOptions::new()
                .offset(4)
                .map_mut(&file)
                .unwrap()
        };
        let memory = SharedBytes::from_mmap(map);
        assert!(!memory.is_aligned(8) && memory.is_aligned(4));
        let misaligned = AtomicAccessError::Misaligned { offset: 8 };
        assert_eq!(memory.update_u64(8, |_| 1), Err(misaligned));
        assert_eq!(memory.update_u64(4, |_| 1), Ok(0));
    }

    #[test]
    fn changes_by_several_threads_are_each_done_once() {
        const ROUNDS: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let memory = SharedBytes::anonymous(8).unwrap();
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let memory = memory.clone();
                    let add = move |_| memory.update_u64(0, |n| n + 1).unwrap();
                    scope.spawn(move || (0..ROUNDS).map(add).collect::<Vec<u64>>())
                })
                .collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.flatten().collect()
        });
        seen.sort_unstable();
        assert_eq!(seen, (0..2 * ROUNDS).collect::<Vec<u64>>());
        assert_eq!(memory.to_vec(), (2 * ROUNDS).to_ne_bytes());
    }
}

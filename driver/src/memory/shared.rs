//! Region memory: bytes that a peer may write while the application reads them (decision record
//! driver/0008).
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::racy::{Fault, racy_copy, racy_read, racy_read_constant, racy_write};

/// Shared memory of fixed length. It is never borrowed as a slice. Bytes are copied in and out, and
/// an access that races with a copy sees old or new bytes, in no particular order.
///
/// On x86-64, an access to memory that the application has unmapped, protected or truncated returns
/// an error. Elsewhere, and with `XWARP_FAULTS=off` in the environment, a signal ends the process.
///
/// A clone is a second handle of the same memory, which lives until the last handle is dropped.
#[derive(Clone)]
pub struct SharedBytes {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    /// Owner of the memory, until the last handle is dropped.
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is no thread's own: all access goes through `racy`, which is made for memory
// that others change meanwhile, or is atomic, and the owner can be dropped by any thread.
unsafe impl Send for SharedBytes {}
// SAFETY: a shared handle gives the same accesses, which may race with each other.
unsafe impl Sync for SharedBytes {}

/// An access that leaves the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} leave the {size} bytes of the region")]
#[non_exhaustive]
pub struct OutOfBounds {
    /// Requested offset of the first byte.
    pub offset: usize,
    /// Requested length in bytes.
    pub len: usize,
    /// Length of the memory in bytes.
    pub size: usize,
}

/// Why bytes were not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The bytes leave the memory.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The memory is read-only.
    #[error("the region's memory can only be read")]
    ReadOnly,
    /// The bytes were unmapped, protected or truncated. Some of the others may have been copied.
    #[error("some of the {len} bytes at offset {offset} of the region can no longer be accessed")]
    Gone {
        /// Requested offset of the first byte.
        offset: usize,
        /// Requested length in bytes.
        len: usize,
    },
}

impl SharedBytes {
    /// # Safety
    ///
    /// `start` points to `len` bytes that no reference (`&[u8]`) covers as long as `owner` lives.
    /// They are readable and writable meanwhile, or nothing is in their place.
    pub(crate) unsafe fn new(
        start: NonNull<u8>,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            start,
            len,
            writable: true,
            owner,
        }
    }

    /// # Safety
    ///
    /// As for [`new`](Self::new), but the bytes need not be writable, and references that are
    /// shared (`&[u8]`) may cover them as far as no code else changes them.
    pub(crate) unsafe fn new_read_only(
        start: NonNull<u8>,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            start,
            len,
            writable: false,
            owner,
        }
    }

    /// Anonymous memory of `len` bytes, zeroed, outside any UMEM.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory is left for it.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let map = memmap2::MmapMut::map_anon(len.max(1))?;
        Ok(Self::from_map(map.into(), len))
    }

    /// The memory of a mapping of our own: a file, a memfd.
    #[cfg(test)]
    pub(crate) fn from_mmap(map: memmap2::MmapMut) -> Self {
        crate::memory::fault::survive();
        let len = map.len();
        Self::from_map(map.into(), len)
    }

    /// A raw mapping gives its own pointer, for all of its bytes and to write through; a slice of
    /// it would give a narrower one.
    fn from_map(map: memmap2::MmapRaw, len: usize) -> Self {
        let Some(start) = NonNull::new(map.as_mut_ptr()) else {
            unreachable!("a mapping at address 0");
        };
        // SAFETY: `start` is the mapping's own pointer, valid for its `map.len()` bytes as long as
        // `map` lives, which the Arc owns. A raw mapping, made of a writable one, lends no
        // references, and moving its owner does not move the memory.
        unsafe { Self::new(start, len.min(map.len()), Arc::new(map)) }
    }

    /// The owner, if it is a `T` and this is the last handle.
    pub(crate) fn into_owner<T: Any + Send + Sync>(self) -> Result<T, Self> {
        let Self {
            start,
            len,
            writable,
            owner,
        } = self;
        let kept = match owner.downcast::<T>() {
            Ok(owner) => match Arc::try_unwrap(owner) {
                Ok(owner) => return Ok(owner),
                Err(shared) => shared as Arc<dyn Any + Send + Sync>,
            },
            Err(other) => other,
        };
        Err(Self {
            start,
            len,
            writable,
            owner: kept,
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a region of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// False for read-only memory: [`write`](Self::write) and other changes fail, and a region of
    /// it cannot have rights to write.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// A handle of the bytes of `range` alone.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]: `range` leaves the memory.
    pub fn part(&self, range: Range<usize>) -> Result<Self, OutOfBounds> {
        let len = range.end.saturating_sub(range.start);
        let start = self.checked_ptr(range.start, len)?;
        Ok(Self {
            start,
            len,
            writable: self.writable,
            owner: Arc::clone(&self.owner),
        })
    }

    /// Copies `dst.len()` bytes from `offset` on into `dst`.
    ///
    /// # Errors
    ///
    /// - [`CopyError::OutOfBounds`]: the bytes leave the memory. Nothing is copied.
    /// - [`CopyError::Gone`]: some of the bytes were unmapped, protected or truncated. Others may
    ///   be copied.
    #[inline]
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), CopyError> {
        let len = dst.len();
        let src = self.checked_ptr(offset, len)?;
        let copied = if self.writable {
            // SAFETY: `checked_ptr` proved that the range lies in the memory, which is readable or
            // gone as `new` was promised, and into which nothing hands out a slice.
            unsafe { racy_read(dst, src) }
        } else {
            // SAFETY: the range lies in the mapping, as the caller of `new_read_only` has promised.
            unsafe { racy_read_constant(dst, src) }
        };
        copied.map_err(|Fault| CopyError::Gone { offset, len })
    }

    /// Copies `src` to `offset`.
    ///
    /// # Errors
    ///
    /// - [`CopyError::OutOfBounds`]: the bytes leave the memory. Nothing is copied.
    /// - [`CopyError::ReadOnly`]: the memory is read-only.
    /// - [`CopyError::Gone`]: some of the bytes were unmapped, protected or truncated. Others may
    ///   be copied.
    #[inline]
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), CopyError> {
        let len = src.len();
        self.check_writable()?;
        let dst = self.checked_ptr(offset, len)?;
        // SAFETY: as for `read`, and `check_writable` proved that the memory may be written.
        let copied = unsafe { racy_write(dst, src) };
        copied.map_err(|Fault| CopyError::Gone { offset, len })
    }

    /// Copies `len` bytes of other memory from `src` on to `offset`. The two do not overlap.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read) of the other memory and [`write`](Self::write).
    #[inline]
    pub(crate) fn copy_from(
        &self,
        offset: usize,
        other: &Self,
        src: usize,
        len: usize,
    ) -> Result<(), CopyError> {
        self.check_writable()?;
        let (dst, src) = (self.checked_ptr(offset, len)?, other.checked_ptr(src, len)?);
        // SAFETY: as for `read` of the other memory and `write` of this one, whose owners map
        // different files.
        let copied = unsafe { racy_copy(dst, src, len) };
        copied.map_err(|Fault| CopyError::Gone { offset, len })
    }

    /// Sets all bytes of `range` to `value`.
    ///
    /// # Errors
    ///
    /// - [`CopyError::OutOfBounds`]: `range` leaves the memory. Its part inside the memory may be
    ///   set.
    /// - [`CopyError::ReadOnly`]: the memory is read-only.
    /// - [`CopyError::Gone`]: some of the bytes were unmapped, protected or truncated. Others may
    ///   be set.
    pub fn fill(&self, range: Range<usize>, value: u8) -> Result<(), CopyError> {
        const STEP: usize = 4096;
        let pattern = [value; STEP];
        let mut at = range.start;
        while at < range.end {
            let n = STEP.min(range.end - at);
            self.write(at, &pattern[..n])?;
            at += n;
        }
        Ok(())
    }

    /// A copy of all bytes; empty if some of them are gone.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        if self.read(0, &mut copy).is_err() {
            copy.clear();
        }
        copy
    }

    /// Refuses memory that may only be read.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), CopyError> {
        if self.writable {
            Ok(())
        } else {
            Err(CopyError::ReadOnly)
        }
    }

    /// Where the byte at `offset` lies, if it and the `len - 1` after it lie in the memory.
    #[inline]
    pub(crate) fn checked_ptr(
        &self,
        offset: usize,
        len: usize,
    ) -> Result<NonNull<u8>, OutOfBounds> {
        let outside = OutOfBounds {
            offset,
            len,
            size: self.len,
        };
        let end = offset.checked_add(len).ok_or(outside)?;
        if end > self.len {
            return Err(outside);
        }
        // SAFETY: `offset` is at most `self.len`, so the result stays in the memory or one past its
        // end.
        Ok(unsafe { self.start.add(offset) })
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let memory = SharedBytes::anonymous(100).unwrap();
        let pattern: Vec<u8> = (0..60).collect();
        memory.write(33, &pattern).unwrap();
        let mut copy = vec![0; 60];
        memory.read(33, &mut copy).unwrap();
        assert_eq!(copy, pattern);
        assert_eq!(memory.to_vec()[..33], [0; 33]);
        assert_eq!(memory.to_vec()[93..], [0; 7]);
    }

    #[test]
    fn nothing_outside_can_be_reached() {
        let memory = SharedBytes::anonymous(16).unwrap();
        for (offset, len) in [(16, 1), (0, 17), (17, 0), (usize::MAX, 2), (1, 64)] {
            let outside = OutOfBounds {
                offset,
                len,
                size: 16,
            };
            let refused = Err(CopyError::OutOfBounds(outside));
            assert_eq!(memory.read(offset, &mut vec![0; len]), refused);
            assert_eq!(memory.write(offset, &vec![0; len]), refused);
        }
        assert_eq!(memory.write(16, &[]), Ok(()));
    }

    #[test]
    fn part_is_the_same_memory_and_ends_where_it_ends() {
        let memory = SharedBytes::anonymous(16).unwrap();
        let part = memory.part(4..12).unwrap();
        memory.fill(0..16, 1).unwrap();
        part.fill(0..8, 2).unwrap();
        let mut expected = [1; 16];
        expected[4..12].fill(2);
        assert_eq!((memory.to_vec(), part.len()), (expected.to_vec(), 8));
        assert!(part.write(8, &[3]).is_err() && part.read(7, &mut [0; 2]).is_err());
        assert!(part.part(0..9).is_err() && memory.part(10..17).is_err());
        assert_eq!(memory.part(16..16).unwrap().len(), 0);
        drop(memory);
        assert_eq!(part.to_vec(), [2; 8], "it keeps the memory");
    }

    #[test]
    fn clone_is_the_same_memory() {
        let memory = SharedBytes::anonymous(8).unwrap();
        let other = memory.clone();
        drop(memory.clone());
        memory.fill(2..5, 9).unwrap();
        assert_eq!(other.to_vec(), [0, 0, 9, 9, 9, 0, 0, 0]);
    }

    #[test]
    fn racing_copies_of_many_threads_lose_no_byte_outside_their_range() {
        const ROUNDS: u8 = if cfg!(miri) { 4 } else { 200 };
        const LEN: usize = if cfg!(miri) { 64 } else { 1024 };
        let memory = SharedBytes::anonymous(4 * LEN).unwrap();
        std::thread::scope(|scope| {
            for lane in 0..4_u8 {
                let memory = memory.clone();
                scope.spawn(move || {
                    let mut copy = vec![0; LEN];
                    for round in 0..ROUNDS {
                        let at = usize::from(lane) * LEN;
                        memory.write(at, &vec![round ^ lane; LEN]).unwrap();
                        memory.read(at, &mut copy).unwrap();
                        assert!(copy.iter().all(|&byte| byte == round ^ lane));
                        memory.read((at + LEN / 2) % (3 * LEN), &mut copy).unwrap();
                    }
                });
            }
        });
    }
}

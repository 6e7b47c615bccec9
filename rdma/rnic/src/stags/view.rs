//! Tagged Offsets of a valid `STag`, and the memory that they address (verbs draft §7.6).

use std::sync::Arc;

use xwarp_driver::{CopyError, Digest, SharedBytes};
use xwarp_iwarp::AccessError;
use xwarp_iwarp::rdmap::ATOMIC_OPERAND_BYTES;

use super::scattered::Scattered;
use crate::model::{Addressing, PhysicalList, SpecError};

/// Page size of memory in one piece, in bytes.
const PAGE: u64 = 4096;
/// Length of an atomic operand in bytes.
#[allow(clippy::cast_possible_truncation, reason = "it is 8")]
const OPERAND: usize = ATOMIC_OPERAND_BYTES as usize;

/// Memory of an `STag`.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// One piece.
    Whole(SharedBytes),
    /// Pages or blocks.
    List(Arc<Scattered>),
}

/// The bytes of a region or window, and their Tagged Offsets.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Tagged Offset of the first byte.
    base: u64,
    /// Length in bytes. `base + len` is at most 2^64 - 1.
    len: u64,
    /// Offset of the first byte in `memory`.
    skip: usize,
    memory: Memory,
    /// Size of pages or blocks: another base must have the same offset in it. 1 if any base is
    /// allowed.
    granule: u64,
    /// Offset of the first byte in a page or block.
    first_byte_offset: u64,
}

impl View {
    /// All of a piece of memory. The RNIC chooses the pages, so any base is allowed. Another base
    /// for the same pages must have the same offset within a page (verbs draft §7.3.2.4).
    pub(crate) fn whole(bytes: SharedBytes, addressing: Addressing) -> Result<Self, SpecError> {
        let len = bytes.len() as u64;
        let base = base_for(addressing, len)?;
        let granule = match addressing {
            Addressing::ZeroBased => 1,
            Addressing::VaBased(_) => PAGE,
        };
        Ok(Self {
            base,
            len,
            skip: 0,
            memory: Memory::Whole(bytes),
            granule,
            first_byte_offset: base % granule,
        })
    }

    /// A checked list in this area.
    pub(crate) fn list(
        area: SharedBytes,
        list: &PhysicalList,
        addressing: Addressing,
    ) -> Result<Self, SpecError> {
        let base = base_for(addressing, list.len)?;
        let (offset, size) = (list.first_byte_offset, list.entry_size.max(1));
        Ok(Self {
            base,
            len: list.len,
            skip: usize::try_from(offset).unwrap_or(usize::MAX),
            memory: Memory::List(Arc::new(Scattered::new(area, list))),
            granule: size,
            first_byte_offset: offset % size,
        })
    }

    /// The same memory with other Tagged Offsets (verbs draft §7.3.2.4).
    pub(crate) fn shared(&self, addressing: Addressing) -> Result<Self, SpecError> {
        let base = base_for(addressing, self.len)?;
        match addressing {
            Addressing::VaBased(va) if va % self.granule != self.first_byte_offset => {
                Err(SpecError::VirtualAddress(va))
            }
            Addressing::VaBased(_) | Addressing::ZeroBased => Ok(Self {
                base,
                ..self.clone()
            }),
        }
    }

    /// `len` bytes from Tagged Offset `to` on, with Tagged Offsets from `base` on.
    pub(crate) fn part(&self, to: u64, len: u64, base: u64) -> Result<Self, AccessError> {
        Ok(Self {
            base,
            len,
            skip: self.locate(to, len)?,
            ..self.clone()
        })
    }

    /// False for read-only memory.
    pub(crate) fn is_writable(&self) -> bool {
        match &self.memory {
            Memory::Whole(bytes) => bytes.is_writable(),
            // The region area is writable.
            Memory::List(_) => true,
        }
    }

    /// True if Tagged Offsets begin at 0.
    pub(crate) fn is_zero_based(&self) -> bool {
        self.base == 0
    }

    /// Offset of `len` bytes at `to` in the memory. Wrap is checked before bounds (wire.md §5.2, T4
    /// and T5).
    #[inline]
    fn locate(&self, to: u64, len: u64) -> Result<usize, AccessError> {
        let end = to.checked_add(len).ok_or(AccessError::Wrap)?;
        if to < self.base || end > self.base + self.len {
            return Err(AccessError::Bounds);
        }
        let offset = usize::try_from(to - self.base).map_err(|_| AccessError::Bounds)?;
        self.skip.checked_add(offset).ok_or(AccessError::Bounds)
    }

    /// `len` bytes at `to`, if the view contains them.
    #[inline]
    pub(crate) fn bytes(&self, to: u64, len: u64) -> Result<Bytes<'_>, AccessError> {
        let at = self.locate(to, len)?;
        Ok(Bytes {
            memory: &self.memory,
            at,
        })
    }
}

/// The base of `len` bytes.
fn base_for(addressing: Addressing, len: u64) -> Result<u64, SpecError> {
    match addressing {
        Addressing::ZeroBased => Ok(0),
        Addressing::VaBased(0) => Err(SpecError::VirtualAddress(0)),
        Addressing::VaBased(va) if va.checked_add(len).is_none() => {
            Err(SpecError::Wrap { va, len })
        }
        Addressing::VaBased(va) => Ok(va),
    }
}

/// Bytes that may be accessed: a number of bytes from an offset in memory on.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    memory: &'a Memory,
    at: usize,
}

impl Bytes<'_> {
    /// Copies the bytes to `into`, which is not longer than them.
    #[inline]
    pub(crate) fn read(self, into: &mut [u8]) -> Result<(), CopyError> {
        match self.memory {
            Memory::Whole(bytes) => bytes.read(self.at, into),
            Memory::List(list) => list.read(self.at, into),
        }
    }

    /// Copies the bytes, and adds them to a digest.
    pub(crate) fn read_digested(
        self,
        into: &mut [u8],
        digest: &mut Digest,
    ) -> Result<(), CopyError> {
        match self.memory {
            Memory::Whole(bytes) => digest.read(bytes, self.at, into),
            Memory::List(list) => list.read_digested(self.at, into, digest),
        }
    }

    /// Copies `from`, which is not longer than the bytes, to them.
    #[inline]
    pub(crate) fn write(self, from: &[u8]) -> Result<(), CopyError> {
        match self.memory {
            Memory::Whole(bytes) => bytes.write(self.at, from),
            Memory::List(list) => list.write(self.at, from),
        }
    }

    /// Whether the first eight bytes can be changed atomically (R7306-5.1.1-1): they are aligned,
    /// and in one block.
    pub(crate) fn is_aligned(self) -> bool {
        self.operand()
            .is_some_and(|(bytes, at)| bytes.is_aligned(at))
    }

    /// Changes the first eight bytes atomically. Returns their former value; `None` if that is
    /// impossible.
    pub(crate) fn update_u64(self, change: impl Fn(u64) -> u64) -> Option<u64> {
        let (bytes, at) = self.operand()?;
        bytes.update_u64(at, change).ok()
    }

    fn operand(&self) -> Option<(&SharedBytes, usize)> {
        match self.memory {
            Memory::Whole(bytes) => Some((bytes, self.at)),
            Memory::List(list) => list.unbroken(self.at, OPERAND),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: usize) -> SharedBytes {
        SharedBytes::anonymous(len).unwrap()
    }

    fn located(view: &View, to: u64, len: u64) -> Result<usize, AccessError> {
        view.bytes(to, len).map(|bytes| bytes.at)
    }

    #[test]
    fn tagged_offsets_begin_where_they_shall_and_are_bounded_to_the_byte() {
        for base in [0, 1, 4096, 1 << 63, u64::MAX - 100] {
            let addressing = match base {
                0 => Addressing::ZeroBased,
                va => Addressing::VaBased(va),
            };
            let view = View::whole(memory(100), addressing).unwrap();
            assert_eq!(located(&view, base, 100), Ok(0));
            assert_eq!(located(&view, base + 99, 1), Ok(99));
            assert_eq!(located(&view, base, 101), outside(base, 101));
            assert_eq!(located(&view, base + 100, 1), outside(base + 100, 1));
            assert_eq!(located(&view, base + 1, 100), outside(base + 1, 100));
            if base > 0 {
                assert_eq!(located(&view, base - 1, 1), Err(AccessError::Bounds));
                assert_eq!(located(&view, 0, 1), Err(AccessError::Bounds));
            }
            assert_eq!(located(&view, u64::MAX, 2), Err(AccessError::Wrap));
        }
    }

    fn outside<T>(to: u64, len: u64) -> Result<T, AccessError> {
        Err(match to.checked_add(len) {
            None => AccessError::Wrap,
            Some(_) => AccessError::Bounds,
        })
    }

    #[test]
    fn base_is_neither_zero_nor_so_high_that_the_end_passes_2_to_the_64() {
        let wraps = |va| (va, SpecError::Wrap { va, len: 100 });
        let zero = (0, SpecError::VirtualAddress(0));
        for (va, error) in [zero, wraps(u64::MAX - 98), wraps(u64::MAX)] {
            let refused = View::whole(memory(100), Addressing::VaBased(va));
            assert_eq!(refused.unwrap_err(), error);
        }
    }

    #[test]
    fn part_has_its_own_base_and_bounds() {
        let bytes = memory(100);
        let whole = View::whole(bytes.clone(), Addressing::VaBased(1000)).unwrap();
        let part = whole.part(1010, 20, 0).unwrap();
        part.bytes(0, 20).unwrap().write(&[7; 20]).unwrap();
        assert_eq!(bytes.to_vec()[10..30], [7; 20]);
        assert_eq!((bytes.to_vec()[9], bytes.to_vec()[30]), (0, 0));
        assert_eq!(located(&part, 0, 21), Err(AccessError::Bounds));
        assert_eq!(located(&part, 19, 1), Ok(29));
        for (to, len) in [(999, 1), (1000, 101), (1100, 1), (0, 1)] {
            let refused = whole.part(to, len, 0).map(|_| ());
            assert_eq!(refused, Err(AccessError::Bounds), "{to} {len}");
        }
        let wrapping = whole.part(u64::MAX, 2, 0).map(|_| ());
        assert_eq!(wrapping, Err(AccessError::Wrap));
    }

    #[test]
    fn another_base_for_the_same_memory_lies_likewise_within_a_page() {
        let first = View::whole(memory(100), Addressing::VaBased(4096 + 5)).unwrap();
        for (va, fits) in [(5, true), (9 * 4096 + 5, true), (4096, false), (6, false)] {
            let shared = first.shared(Addressing::VaBased(va));
            assert_eq!(shared.is_ok(), fits, "{va}");
        }
        let zero = first.shared(Addressing::ZeroBased).unwrap();
        assert_eq!(located(&zero, 99, 1), Ok(99));
        let zero = View::whole(memory(100), Addressing::ZeroBased).unwrap();
        assert!(
            zero.shared(Addressing::VaBased(7)).is_ok(),
            "no address yet"
        );
    }

    #[test]
    fn atomics_are_for_operands_in_one_piece() {
        let area = memory(1 << 14);
        let list = PhysicalList {
            entry_size: 12,
            addresses: vec![16, 64].into(),
            first_byte_offset: 0,
            len: 24,
        };
        let view = View::list(area.clone(), &list, Addressing::ZeroBased).unwrap();
        let add = |to| view.bytes(to, 8).unwrap().update_u64(|before| before + 3);
        assert_eq!((add(0), add(0), add(12)), (Some(0), Some(3), Some(0)));
        assert_eq!((add(8), add(1), add(14)), (None, None, None));
        assert_eq!(area.to_vec()[16..24], 6_u64.to_ne_bytes());
        assert_eq!(area.to_vec()[64..72], 3_u64.to_ne_bytes());
        assert!(!view.bytes(8, 8).unwrap().is_aligned());
        assert!(view.bytes(12, 8).unwrap().is_aligned());
    }
}

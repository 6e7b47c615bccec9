//! The region area: the tail of the UMEM that never enters a ring, from which memory regions are
//! carved.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arena::Arena;
use super::shared::SharedBytes;

/// Regions start on a page and take whole pages, so no two regions share a page.
const PAGE: usize = 4096;

/// Allocates zeroed pieces of the region area, which are freed when their last handle is dropped.
#[derive(Clone)]
pub struct RegionPool(Arc<Pool>);

struct Pool {
    arena: Arc<Arena>,
    /// Where the area begins in the arena.
    begin: usize,
    size: usize,
    /// Free extents: offset in the arena to length, never touching each other.
    free: Mutex<BTreeMap<usize, usize>>,
}

/// The pool has no free extent of that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room for a region of {wanted} bytes: the region area has {size} bytes, its largest free piece {largest}; open the RNIC with a larger `NicConfig::region_bytes`"
)]
#[non_exhaustive]
pub struct RegionAreaFull {
    /// Requested length in bytes.
    pub wanted: usize,
    /// Length of the largest free piece in bytes.
    pub largest: usize,
    /// Length of the whole area in bytes.
    pub size: usize,
}

impl RegionPool {
    /// The pool of `len` bytes at `offset` of the arena.
    ///
    /// # Safety
    ///
    /// No frame lies in that range, and no other pool.
    pub(crate) unsafe fn new(arena: Arc<Arena>, offset: usize, len: usize) -> Self {
        Self(Arc::new(Pool {
            arena,
            begin: offset,
            size: len,
            free: Mutex::new(BTreeMap::from([(offset, len)])),
        }))
    }

    /// A pool of its own anonymous memory, for a stack without a UMEM.
    ///
    /// # Errors
    ///
    /// [`std::io::Error`]: no memory is left for it.
    pub fn anonymous(len: usize) -> std::io::Result<Self> {
        let len = len.next_multiple_of(PAGE);
        let arena = Arc::new(Arena::anonymous(len)?);
        // SAFETY: the arena is new and has no frames.
        Ok(unsafe { Self::new(arena, 0, len) })
    }

    /// A zeroed region of `len` bytes: no former contents can be read through it.
    ///
    /// # Errors
    ///
    /// [`RegionAreaFull`]: no free piece is that long.
    pub fn allocate(&self, len: usize) -> Result<SharedBytes, RegionAreaFull> {
        let extent = len
            .max(1)
            .checked_next_multiple_of(PAGE)
            .unwrap_or(usize::MAX);
        let offset = self.0.take(extent).ok_or_else(|| self.0.full(len))?;
        let lease = Lease {
            pool: Arc::clone(&self.0),
            offset,
            extent,
        };
        let start = self
            .0
            .arena
            .checked_ptr(offset, extent)
            .ok_or_else(|| self.0.full(len))?;
        // SAFETY: the extent was free, so no other region covers it, and lies in the pool's part of
        // the arena, where no frame does. The lease keeps it taken and the arena mapped.
        let bytes = unsafe { SharedBytes::new(start, len, Arc::new(lease)) };
        if bytes.fill(0..len, 0).is_err() {
            return Err(self.0.full(len));
        }
        Ok(bytes)
    }

    /// The whole area, both free pieces and all regions: its offsets are the physical addresses of
    /// an RNIC (verbs draft §7.2.1). Its holder can read and write every region of the area.
    pub fn area(&self) -> SharedBytes {
        let pool = &self.0;
        // An area outside its arena, of which no region could be carved, is an empty one.
        let (start, len) = (pool.arena)
            .checked_ptr(pool.begin, pool.size)
            .map_or((NonNull::dangling(), 0), |start| (start, pool.size));
        // SAFETY: the range is empty or the pool's, hence without frames, and all access to it goes
        // through `SharedBytes`; the owner keeps the arena mapped.
        unsafe { SharedBytes::new(start, len, Arc::new(Arc::clone(&pool.arena))) }
    }

    /// Offset of this memory in [`area`](Self::area); `None` for other memory.
    pub fn address_of(&self, bytes: &SharedBytes) -> Option<u64> {
        let area = self.area().checked_ptr(0, 0).ok()?;
        let start = bytes.checked_ptr(0, 0).ok()?;
        let offset = start.addr().get().checked_sub(area.addr().get())?;
        (offset < self.0.size).then_some(offset as u64)
    }
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First fit.
    fn take(&self, extent: usize) -> Option<usize> {
        let mut free = self.free();
        let (&offset, &len) = free.iter().find(|&(_, &len)| len >= extent)?;
        free.remove(&offset);
        if len > extent {
            free.insert(offset + extent, len - extent);
        }
        Some(offset)
    }

    /// Frees an extent and joins it with its free neighbours.
    fn give_back(&self, offset: usize, extent: usize) {
        let mut free = self.free();
        let (mut start, mut len) = (offset, extent);
        if let Some((&before, &before_len)) = free.range(..offset).next_back()
            && before + before_len == offset
        {
            free.remove(&before);
            (start, len) = (before, before_len + len);
        }
        if let Some(after_len) = free.remove(&(offset + extent)) {
            len += after_len;
        }
        free.insert(start, len);
    }

    fn full(&self, wanted: usize) -> RegionAreaFull {
        RegionAreaFull {
            wanted,
            largest: self.free().values().copied().max().unwrap_or(0),
            size: self.size,
        }
    }
}

/// One region's hold on its extent.
struct Lease {
    pool: Arc<Pool>,
    offset: usize,
    extent: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.give_back(self.offset, self.extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_region_can_be_had_again_and_is_zeroed() {
        let pool = RegionPool::anonymous(2 * PAGE).unwrap();
        let region = pool.allocate(2 * PAGE).unwrap();
        region.fill(0..2 * PAGE, 0xaa).unwrap();
        let full = pool.allocate(1).unwrap_err();
        assert_eq!((full.wanted, full.largest, full.size), (1, 0, 2 * PAGE));
        let clone = region.clone();
        drop(region);
        assert!(pool.allocate(1).is_err(), "a clone still holds the memory");
        drop(clone);
        assert_eq!(pool.allocate(2 * PAGE).unwrap().to_vec(), vec![0; 2 * PAGE]);
    }

    #[test]
    fn freed_neighbours_join_whatever_the_order() {
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let pool = RegionPool::anonymous(3 * PAGE).unwrap();
            let mut regions: Vec<_> = (0..3).map(|_| pool.allocate(PAGE).ok()).collect();
            for i in order {
                regions[i] = None;
            }
            assert!(pool.allocate(3 * PAGE).is_ok(), "{order:?}");
        }
    }

    #[test]
    fn address_is_the_same_memory_in_the_area() {
        let pool = RegionPool::anonymous(4 * PAGE).unwrap();
        let (first, second) = (pool.allocate(PAGE).unwrap(), pool.allocate(100).unwrap());
        let area = pool.area();
        assert_eq!(area.len(), 4 * PAGE);
        assert_eq!(pool.address_of(&first), Some(0));
        let address = pool.address_of(&second).unwrap();
        assert_eq!(address, PAGE as u64);
        second.write(7, b"here").unwrap();
        assert_eq!(area.to_vec()[PAGE + 7..PAGE + 11], *b"here");
        let elsewhere = SharedBytes::anonymous(PAGE).unwrap();
        assert_eq!(pool.address_of(&elsewhere), None);
        drop(pool);
        area.write(4 * PAGE - 1, b"x").unwrap();
        assert_eq!(
            area.to_vec()[4 * PAGE - 1],
            b'x',
            "the area keeps its arena"
        );
    }

    #[test]
    fn error_of_a_full_area_tells_the_areas_size_and_the_option_that_enlarges_it() {
        let pool = RegionPool::anonymous(2 * PAGE).unwrap();
        let _first = pool.allocate(1).unwrap();
        let full = pool.allocate(PAGE + 1).unwrap_err().to_string();
        for part in [
            "4097 bytes",
            "has 8192 bytes",
            "piece 4096",
            "NicConfig::region_bytes",
        ] {
            assert!(full.contains(part), "{part} is not in: {full}");
        }
    }

    #[test]
    fn regions_do_not_overlap() {
        let pool = RegionPool::anonymous(8 * PAGE).unwrap();
        let regions: Vec<_> = (0..8).map(|_| pool.allocate(100).unwrap()).collect();
        for (i, region) in regions.iter().enumerate() {
            region.fill(0..100, u8::try_from(i).unwrap()).unwrap();
        }
        for (i, region) in regions.iter().enumerate() {
            assert_eq!(region.to_vec(), vec![u8::try_from(i).unwrap(); 100]);
        }
        assert!(pool.allocate(usize::MAX).is_err());
    }
}

//! Regions and windows by their index. The last lookup is cached, since segments of a peer often
//! name the same entry.

use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use super::entry::Entry;
use crate::model::OutOfMemory;

/// Empty cache: index 0, which no region or window has, at a place without an entry.
const NOTHING: u64 = u32::MAX as u64;

/// Cache of the last lookup. Several engines do not use it: each would write a cache line that the
/// others read.
struct Last {
    /// The index in the upper half, its place in the lower.
    found: AtomicU64,
    remembers: bool,
}

impl Last {
    /// The place of an index, if it is cached.
    #[inline]
    fn place_of(&self, index: u32) -> Option<usize> {
        let found = self.found.load(Ordering::Relaxed);
        let place = usize::try_from(found & u64::from(u32::MAX)).ok()?;
        (found >> u32::BITS == u64::from(index)).then_some(place)
    }

    fn set(&self, index: u32, place: usize) {
        if self.remembers {
            let found = u64::from(index) << u32::BITS | place as u64; // fewer places than indices
            self.found.store(found, Ordering::Relaxed);
        }
    }

    fn forget(&self) {
        if self.remembers {
            self.found.store(NOTHING, Ordering::Relaxed);
        }
    }
}

/// Regions and windows of a table.
pub(super) struct Entries {
    /// Place of an index's entry; `None` while the index rests. Peers choose no indices, and ours
    /// are random, so the cheapest hash suffices.
    places: FxHashMap<u32, Option<usize>>,
    stored: Vec<Option<Entry>>,
    /// Unused places. It has capacity for all places.
    free: Vec<usize>,
    last: Last,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            places: FxHashMap::default(),
            stored: Vec::new(),
            free: Vec::new(),
            last: Last {
                found: AtomicU64::new(NOTHING),
                remembers: true,
            },
        }
    }
}

impl Entries {
    /// Prepares for lookups by several engines at the same time.
    pub(super) fn share(&mut self) {
        self.last.forget();
        self.last.remembers = false;
    }

    /// Number of indices in use or resting.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Reserves memory for one more entry.
    pub(super) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        self.places.try_reserve(1)?;
        self.stored.try_reserve(1)?;
        let places = self.stored.len() + 1;
        self.free.try_reserve(places - self.free.len())?;
        Ok(())
    }

    /// True for an index in use or resting.
    pub(super) fn contains(&self, index: u32) -> bool {
        self.places.contains_key(&index)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Entry> {
        let place = match self.last.place_of(index) {
            Some(place) => place,
            None => self.find(index)?,
        };
        self.stored.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        let place = self.find(index)?;
        self.stored.get_mut(place)?.as_mut()
    }

    #[inline(never)]
    fn find(&self, index: u32) -> Option<usize> {
        let place = (*self.places.get(&index)?)?;
        self.last.set(index, place);
        Some(place)
    }

    /// Adds the entry of an index. Returns the former one.
    pub(super) fn put(&mut self, index: u32, entry: Entry) -> Option<Entry> {
        let former = self.take(index);
        let place = self.free.pop().unwrap_or(self.stored.len());
        match self.stored.get_mut(place) {
            Some(vacant) => *vacant = Some(entry),
            None => self.stored.push(Some(entry)),
        }
        self.places.insert(index, Some(place));
        former
    }

    /// Removes the entry of an index, which rests from now on. Returns the entry.
    pub(super) fn rest(&mut self, index: u32) -> Option<Entry> {
        let former = self.take(index);
        self.places.insert(index, None);
        former
    }

    /// Frees an index that has rested.
    pub(super) fn forget(&mut self, index: u32) {
        self.take(index);
        self.places.remove(&index);
    }

    /// Removes an entry from its place.
    fn take(&mut self, index: u32) -> Option<Entry> {
        let place = self.find(index)?;
        self.last.forget();
        self.free.push(place);
        self.stored.get_mut(place)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Region;
    use super::*;
    use crate::model::{PdId, StagScope};

    /// A region that is identified by the length of its list.
    fn entry(name: usize) -> Entry {
        let region = Region {
            remote_access: false,
            shared: false,
            entries: name,
        };
        Entry::invalid_region(StagScope::Domain(PdId(1)), region)
    }

    fn put(entries: &mut Entries, index: u32, name: usize) -> Option<usize> {
        entries.reserve().unwrap();
        let former = entries.put(index, entry(name));
        former.map(|former| named(&former))
    }

    fn named(entry: &Entry) -> usize {
        entry.region().unwrap().entries
    }

    fn found(entries: &Entries, index: u32) -> Option<usize> {
        entries.get(index).map(named)
    }

    #[test]
    fn nothing_is_found_that_was_found_before_and_is_gone() {
        let mut entries = Entries::default();
        assert_eq!(found(&entries, 0), None, "there is no index 0");
        put(&mut entries, 1, 10);
        assert_eq!(found(&entries, 0), None, "there is none now either");
        assert_eq!(
            [1, 1, 2].map(|it| found(&entries, it)),
            [Some(10), Some(10), None]
        );
        assert_eq!(put(&mut entries, 1, 11), Some(10));
        assert_eq!(found(&entries, 1), Some(11));
        assert_eq!(entries.rest(1).as_ref().map(named), Some(11));
        assert_eq!((found(&entries, 1), entries.contains(1)), (None, true));
        put(&mut entries, 2, 20); // in the free place
        assert_eq!(
            [1, 2, 1, 2].map(|it| found(&entries, it)),
            [None, Some(20), None, Some(20)]
        );
        entries.forget(2);
        assert_eq!((found(&entries, 2), entries.contains(2)), (None, false));
        assert_eq!((entries.len(), entries.stored.len()), (1, 1));
    }
}

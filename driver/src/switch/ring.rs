//! Rings between two processes: one produces entries, the other consumes them.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).
//!
//! Each side trusts its own running number alone, which it keeps in its own memory. A number of the
//! other side that cannot be ends the ring: [`Broken`].

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Where a ring lies.
pub(crate) trait Cells {
    /// Number of entries, a power of two.
    const ENTRIES: u32;

    /// Entries that were ever produced.
    fn produced(&self) -> &AtomicU32;

    /// Entries that were ever consumed.
    fn consumed(&self) -> &AtomicU32;

    /// The entry with a running number.
    fn entry(&self, number: u32) -> &AtomicU64;
}

/// The other side has written a number that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// A number of the other side. It is loaded relaxed, behind which stands a fence: the memory of the
/// other side may be such that can only be read.
fn load(number: &AtomicU32) -> u32 {
    let loaded = number.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    loaded
}

/// The side that produces entries.
pub(crate) struct Producer<C> {
    cells: C,
    /// Entries that were ever pushed.
    own: u32,
    /// Entries of them that the other side can see.
    published: u32,
    /// Entries that the other side has consumed, when it was looked at last.
    consumed: u32,
}

impl<C: Cells> Producer<C> {
    /// Begins a ring whose memory is zero. Looks at the other side's number only once the ring is
    /// full: until then the other side may have an older ring's number there.
    pub(crate) fn new(cells: C) -> Self {
        Self {
            cells,
            own: 0,
            published: 0,
            consumed: 0,
        }
    }

    /// Goes on with another consumer, which has consumed what was published before it began.
    pub(crate) fn continue_at(&mut self, cells: C) -> Result<(), Broken> {
        self.cells = cells;
        self.consumed = self.consumed()?;
        Ok(())
    }

    /// Puts an entry behind those that are there. False if the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, entry: u64) -> Result<bool, Broken> {
        if self.own.wrapping_sub(self.consumed) >= C::ENTRIES {
            self.consumed = self.consumed()?;
            if self.own.wrapping_sub(self.consumed) >= C::ENTRIES {
                return Ok(false);
            }
        }
        let cell = self.cells.entry(self.own);
        cell.store(entry, Ordering::Relaxed);
        self.own = self.own.wrapping_add(1);
        Ok(true)
    }

    /// Shows the other side what was pushed. False if that was nothing.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.own == self.published {
            return false;
        }
        self.published = self.own;
        self.cells.produced().store(self.own, Ordering::Release);
        true
    }

    /// Entries that the other side has ever consumed.
    #[inline]
    pub(crate) fn consumed(&self) -> Result<u32, Broken> {
        let consumed = load(self.cells.consumed());
        // No more than are published, and no fewer than before.
        let left = self.published.wrapping_sub(consumed);
        let before = self.published.wrapping_sub(self.consumed);
        if left <= before {
            Ok(consumed)
        } else {
            Err(Broken)
        }
    }
}

/// The side that consumes entries.
pub(crate) struct Consumer<C> {
    cells: C,
    /// Entries that were ever popped.
    own: u32,
    /// Entries of them that the other side may overwrite.
    released: u32,
    /// Entries that there were, when it was looked last.
    produced: u32,
}

impl<C: Cells> Consumer<C> {
    /// Begins a ring whose memory was zero, with the first entry.
    pub(crate) fn new(cells: C) -> Self {
        Self::at(cells, 0)
    }

    /// Begins behind the entries that were produced there so far.
    pub(crate) fn behind(cells: C) -> Self {
        let own = load(cells.produced());
        Self::at(cells, own)
    }

    fn at(cells: C, own: u32) -> Self {
        cells.consumed().store(own, Ordering::Release);
        Self {
            cells,
            own,
            released: own,
            produced: own,
        }
    }

    /// Takes the oldest entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Result<Option<u64>, Broken> {
        if self.own == self.produced {
            let produced = load(self.cells.produced());
            if produced.wrapping_sub(self.released) > C::ENTRIES
                || produced.wrapping_sub(self.own) > C::ENTRIES
            {
                return Err(Broken);
            }
            self.produced = produced;
            if self.own == produced {
                return Ok(None);
            }
        }
        let entry = self.cells.entry(self.own).load(Ordering::Relaxed);
        self.own = self.own.wrapping_add(1);
        Ok(Some(entry))
    }

    /// Lets the other side overwrite what was popped.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.own {
            self.released = self.own;
            self.cells.consumed().store(self.own, Ordering::Release);
        }
    }

    /// Whether there are entries to take.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.own != self.produced || load(self.cells.produced()) != self.own
    }
}

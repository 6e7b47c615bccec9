//! Memory of the reference: bytes that operations have placed, and bytes that they may have placed.
//! The latter operations are under way or were cut off.

use std::collections::BTreeSet;

/// Bytes at a place.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub(crate) at: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Patch {
    fn end(&self) -> usize {
        self.at + self.bytes.len()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.at < other.end() && other.at < self.end()
    }

    fn covers(&self, other: &Self) -> bool {
        self.at <= other.at && other.end() <= self.end()
    }

    fn is_at(&self, byte: usize, value: u8) -> bool {
        let its = byte.checked_sub(self.at).and_then(|i| self.bytes.get(i));
        its == Some(&value)
    }
}

/// The reference of a region.
pub(crate) struct Memory {
    certain: Vec<u8>,
    /// By the name of the work request, and whether it is still under way.
    possible: Vec<(u64, bool, Patch)>,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            certain: vec![0; len],
            possible: Vec::new(),
        }
    }

    /// An operation was posted that will place bytes.
    pub(crate) fn begin(&mut self, id: u64, patch: Patch) {
        self.possible.push((id, true, patch));
    }

    /// It was done, if it is still under way. Where others are as well, whose bytes are there is
    /// not known.
    pub(crate) fn done(&mut self, id: u64) {
        let is_it = |(its, busy, _): &(u64, bool, Patch)| *its == id && *busy;
        let Some(at) = self.possible.iter().position(is_it) else {
            return;
        };
        let (_, _, patch) = self.possible[at].clone();
        self.possible[at].1 = false;
        let alone = |(other, busy, its): &(u64, bool, Patch)| {
            *other == id || !busy || !its.overlaps(&patch)
        };
        if self.possible.iter().all(alone) {
            self.certain[patch.at..patch.end()].copy_from_slice(&patch.bytes);
            // What was placed before is gone where it was overwritten as a whole; otherwise it
            // stays possible.
            self.possible
                .retain(|(other, busy, its)| *other != id && (*busy || !patch.covers(its)));
        }
    }

    /// Those that are under way, by their names.
    pub(crate) fn busy(&self) -> Vec<u64> {
        let busy = self.possible.iter().filter(|(_, busy, _)| *busy);
        busy.map(|(id, ..)| *id).collect()
    }

    /// From there on the memory is another one.
    pub(crate) fn renew(&mut self, begin: usize) {
        self.certain[begin..].fill(0);
        self.possible.retain(|(_, _, patch)| patch.at < begin);
    }

    /// It was cut off.
    pub(crate) fn abandon(&mut self, id: u64) {
        for (_, busy, _) in self.possible.iter_mut().filter(|(its, ..)| *its == id) {
            *busy = false;
        }
    }

    /// Nothing is under way. What memory holds of all that was possible is certain from now on.
    pub(crate) fn settle(&mut self, bytes: Vec<u8>) {
        self.check("settled memory", &bytes);
        self.certain = bytes;
        self.possible.clear();
    }

    pub(crate) fn check(&self, what: &str, real: &[u8]) {
        if real == self.certain {
            return;
        }
        let wrong: BTreeSet<usize> = (real.iter().zip(&self.certain).enumerate())
            .filter(|(_, (real, certain))| real != certain)
            .filter(|(byte, (real, _))| {
                !(self.possible.iter()).any(|(_, _, its)| its.is_at(*byte, **real))
            })
            .map(|(byte, _)| byte)
            .collect();
        assert!(wrong.is_empty(), "{what}: bytes {wrong:?} are nobody's");
    }
}

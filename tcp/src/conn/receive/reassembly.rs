//! Reassembly queue: out-of-order bytes, in bounded memory (decision record tcp/0014).

use std::collections::VecDeque;
use std::fmt;

use super::chunk::Chunk;
use crate::device::Device;
use crate::wire::seq::{Seq, bytes};

/// Maximum number of parts: with more, their overhead would be the limit.
const MAX_PARTS: usize = 512;
/// Overhead of a part in bytes, roughly: its entry, and what the allocator adds.
const PART_COST: usize = 128;

/// Parts in stream order, without overlap.
#[derive(Default)]
pub(crate) struct Reassembly {
    parts: VecDeque<Part>,
    /// Bytes of memory in use.
    taken: usize,
}

struct Part {
    begin: Seq,
    chunk: Chunk,
}

impl Part {
    fn end(&self) -> Seq {
        self.begin + self.chunk.len()
    }

    fn cost(&self) -> usize {
        PART_COST + self.chunk.len()
    }

    /// Removes the bytes that `other`, which begins no later, already has.
    fn trim_known(&mut self, other: Option<&Self>) {
        if let Some(other) = other {
            let known = bytes(self.begin, other.end()).min(self.chunk.len());
            self.chunk.trim_front(known);
            self.begin += known;
        }
    }
}

impl fmt::Debug for Reassembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts.len();
        let first = self.parts.front().map(|part| part.begin);
        write!(f, "{parts} parts, the first at {first:?}")
    }
}

impl Reassembly {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Inserts a chunk that begins at `begin`. Returns false, and frees its frame, if it has no new
    /// bytes, or if parts or memory are exhausted.
    pub(crate) fn insert(&mut self, begin: Seq, chunk: Chunk, device: &mut Device) -> bool {
        let mut part = Part { begin, chunk };
        let at = self.find_place(&mut part);
        self.remove_covered(at, &part, device);
        if let Some(next) = self.parts.get(at) {
            part.chunk.truncate(bytes(part.begin, next.begin));
        }
        if part.chunk.len() == 0 {
            part.chunk.free(device);
            return false;
        }
        if self.parts.len() >= MAX_PARTS || !device.take_memory(part.cost(), self.taken) {
            device.counters_mut().drop_reassembly_full += 1;
            part.chunk.free(device);
            return false;
        }
        self.taken += part.cost();
        part.chunk = part.chunk.compact(device);
        self.parts.insert(at, part);
        true
    }

    /// Index of a new part, whose front is trimmed by the parts before it.
    fn find_place(&self, part: &mut Part) -> usize {
        let begin = part.begin;
        let mut at = self
            .parts
            .partition_point(|other| !begin.is_before(other.begin));
        if let Some(before) = at.checked_sub(1) {
            part.trim_known(self.parts.get(before));
        }
        // After trimming, it may begin in the next part.
        while let Some(next) = self.parts.get(at)
            && !part.begin.is_before(next.begin)
        {
            part.trim_known(Some(next));
            at += 1;
        }
        at
    }

    /// Removes the parts from index `at` on that a new one covers completely.
    fn remove_covered(&mut self, at: usize, part: &Part, device: &mut Device) {
        while let Some(next) = self.parts.get(at)
            && !part.end().is_before(next.end())
            && part.chunk.len() > 0
        {
            if let Some(covered) = self.parts.remove(at) {
                self.give_back(&covered, device);
                covered.chunk.free(device);
            }
        }
    }

    fn give_back(&mut self, part: &Part, device: &mut Device) {
        self.taken -= part.cost();
        device.give_memory(part.cost());
    }

    /// Removes and returns the first part if it begins at or before `next`, without the bytes
    /// before `next`.
    pub(crate) fn take(&mut self, next: Seq, device: &mut Device) -> Option<Chunk> {
        loop {
            let first = self.parts.front()?;
            if next.is_before(first.begin) {
                return None;
            }
            let mut part = self.parts.pop_front()?;
            self.give_back(&part, device);
            part.chunk.trim_front(bytes(part.begin, next));
            if part.chunk.len() > 0 {
                return Some(part.chunk);
            }
            part.chunk.free(device);
        }
    }

    /// The contiguous block that contains `seq` (RFC 2018 §3).
    pub(crate) fn block(&self, seq: Seq) -> Option<(Seq, Seq)> {
        let at = self
            .parts
            .partition_point(|part| !seq.is_before(part.begin));
        let held = self.parts.get(at.checked_sub(1)?)?;
        if !seq.is_before(held.end()) {
            return None;
        }
        let mut left = held.begin;
        let mut right = held.end();
        for part in self.parts.iter().take(at.saturating_sub(1)).rev() {
            if part.end() != left {
                break;
            }
            left = part.begin;
        }
        for part in self.parts.iter().skip(at) {
            if part.begin != right {
                break;
            }
            right = part.end();
        }
        Some((left, right))
    }

    pub(crate) fn clear(&mut self, device: &mut Device) {
        device.give_memory(std::mem::take(&mut self.taken));
        for part in self.parts.drain(..) {
            part.chunk.free(device);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xwarp_driver::MemoryIo;

    use super::*;
    use crate::wire::seq::from_raw;

    fn device() -> Device {
        let (io, _) = MemoryIo::new(1).unwrap();
        Device::new(Box::new(io), 1500)
    }

    /// Bytes from `begin` on of a stream in which byte n is n modulo 251.
    fn chunk(begin: usize, len: usize) -> Chunk {
        let bytes = (begin..begin + len).map(|n| u8::try_from(n % 251).unwrap());
        Chunk::Copied {
            bytes: bytes.collect(),
            begin: 0,
        }
    }

    #[test]
    fn blocks_are_contiguous_parts() {
        let mut device = device();
        let mut parts = Reassembly::default();
        let base = from_raw(u32::MAX - 50);
        assert!(parts.insert(base + 100, chunk(100, 10), &mut device));
        assert!(parts.insert(base + 120, chunk(120, 10), &mut device));
        assert_eq!(parts.block(base + 105), Some((base + 100, base + 110)));
        assert!(parts.insert(base + 110, chunk(110, 10), &mut device));
        assert_eq!(parts.block(base + 105), Some((base + 100, base + 130)));
        assert!(!parts.insert(base + 101, chunk(101, 20), &mut device));
        assert_eq!(parts.block(base + 130), None);
        assert!(parts.take(base + 99, &mut device).is_none());
    }

    /// A peer that sends every other byte takes no more memory and time than the maximum of parts.
    #[test]
    fn parts_are_so_many_at_most() {
        let mut device = device();
        let mut parts = Reassembly::default();
        let base = from_raw(u32::MAX - 50);
        for n in 0..MAX_PARTS {
            assert!(parts.insert(base + 2 * n, chunk(2 * n, 1), &mut device));
        }
        let beyond = 2 * MAX_PARTS;
        assert!(!parts.insert(base + beyond, chunk(beyond, 1), &mut device));
        assert!(!parts.insert(base + 1, chunk(1, 1), &mut device));
        assert_eq!(parts.parts.len(), 512);
        assert_eq!(parts.block(base + beyond), None);
        // A part that replaces several is accepted.
        assert!(parts.insert(base + 1, chunk(1, 7), &mut device));
        assert!(parts.insert(base + beyond, chunk(beyond, 1), &mut device));
        assert_eq!(parts.block(base + 3), Some((base, base + 9)));
    }

    /// A peer may send each byte as the last one of a whole segment. It takes no more of our memory
    /// than the byte itself.
    #[test]
    fn part_keeps_no_memory_of_what_was_known() {
        const LEN: usize = if cfg!(miri) { 90 } else { 8948 };
        const PARTS: usize = if cfg!(miri) { 20 } else { MAX_PARTS };
        let mut device = device();
        let mut parts = Reassembly::default();
        let base = from_raw(u32::MAX - 50);
        for n in 0..PARTS {
            assert!(parts.insert(base + n, chunk(n, LEN), &mut device));
        }
        let memory = |part: &Part| match &part.chunk {
            Chunk::Copied { bytes, .. } => bytes.capacity(),
            Chunk::Frame { .. } => panic!("these are copies"),
        };
        let taken: usize = parts.parts.iter().map(memory).sum();
        assert_eq!(taken, LEN + PARTS - 1);
    }

    proptest! {
        #[test]
        fn parts_in_any_order_give_the_stream(parts in prop::collection::vec((1_usize..300, 1_usize..80), 1..60)) {
            let base = from_raw(u32::MAX - 150);
            let mut device = device();
            let mut list = Reassembly::default();
            let mut have = [false; 400];
            for (begin, len) in parts {
                let new = (begin..begin + len).any(|n| !have[n]);
                have[begin..begin + len].fill(true);
                prop_assert_eq!(list.insert(base + begin, chunk(begin, len), &mut device), new);
            }
            let mut next = 0;
            for (n, held) in have.iter().enumerate() {
                if n >= next && *held {
                    prop_assert!(list.block(base + n).is_some_and(|(left, right)| !(base + n).is_before(left) && (base + n).is_before(right)));
                    let chunk = list.take(base + n, &mut device).unwrap();
                    for (i, byte) in chunk.bytes().iter().enumerate() {
                        prop_assert_eq!(usize::from(*byte), (n + i) % 251);
                    }
                    next = n + chunk.len();
                }
            }
            prop_assert!(list.is_empty());
            prop_assert_eq!(device.memory(), 0);
        }
    }
}

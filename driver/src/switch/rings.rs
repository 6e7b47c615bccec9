//! The three rings of a client, in its two files.

use std::sync::atomic::{AtomicU32, AtomicU64};

use super::file::Mapping;
use super::layout::{ENTRIES, down, up};
use super::ring::Cells;

/// Offsets of a ring in the producer's file, and of the consumer's number in the consumer's.
#[derive(Clone, Copy)]
struct Offsets {
    produced: usize,
    entries: usize,
    consumed: usize,
}

/// A ring between two files.
pub(super) struct FileRing {
    /// The producer's file.
    producer: Mapping,
    /// The consumer's file.
    consumer: Mapping,
    at: Offsets,
}

impl FileRing {
    /// Frames that the client sends.
    pub(super) fn sent(up: &Mapping, down: &Mapping) -> Self {
        let at = Offsets {
            produced: up::SENT,
            entries: up::SENT_ENTRIES,
            consumed: down::COMPLETED,
        };
        Self::between(up, down, at)
    }

    /// Frames that the client lends, to be received into.
    pub(super) fn lent(up: &Mapping, down: &Mapping) -> Self {
        let at = Offsets {
            produced: up::LENT,
            entries: up::LENT_ENTRIES,
            consumed: down::TAKEN,
        };
        Self::between(up, down, at)
    }

    /// Frames that are delivered to the client.
    pub(super) fn delivered(up: &Mapping, down: &Mapping) -> Self {
        let at = Offsets {
            produced: down::DELIVERED,
            entries: down::DELIVERED_ENTRIES,
            consumed: up::RECEIVED,
        };
        Self::between(down, up, at)
    }

    fn between(producer: &Mapping, consumer: &Mapping, at: Offsets) -> Self {
        Self {
            producer: producer.clone(),
            consumer: consumer.clone(),
            at,
        }
    }
}

impl Cells for FileRing {
    const ENTRIES: u32 = ENTRIES;

    #[inline]
    fn produced(&self) -> &AtomicU32 {
        self.producer.word(self.at.produced)
    }

    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        self.consumer.word(self.at.consumed)
    }

    #[inline]
    fn entry(&self, number: u32) -> &AtomicU64 {
        let place = (number % ENTRIES) as usize;
        self.producer.number(self.at.entries + 8 * place)
    }
}

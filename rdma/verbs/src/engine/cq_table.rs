//! The engine's ends of all completion queues.

use std::sync::Arc;

use slab::Slab;

use crate::cq::{CqSink, Cqe};
use crate::slots::{SlotKey, SlotTable};

/// A completion queue's identity; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqId {
    slot: usize,
    serial: u64,
}

/// A completion did not fit into its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CqOverflow;

/// See the module.
pub(crate) struct CqTable {
    sinks: Slab<(u64, CqSink)>,
    next_serial: u64,
    slots: Arc<SlotTable>,
}

impl CqTable {
    pub(super) fn new(slots: Arc<SlotTable>) -> Self {
        Self {
            sinks: Slab::new(),
            next_serial: 0,
            slots,
        }
    }

    pub(crate) fn insert(&mut self, sink: CqSink) -> CqId {
        let serial = self.next_serial;
        self.next_serial += 1;
        CqId {
            slot: self.sinks.insert((serial, sink)),
            serial,
        }
    }

    /// Forgets a queue. Completions for it go nowhere from now on.
    pub(crate) fn remove(&mut self, id: CqId) {
        if self.contains(id) {
            self.sinks.remove(id.slot);
        }
    }

    pub(super) fn contains(&self, id: CqId) -> bool {
        self.sinks
            .get(id.slot)
            .is_some_and(|(serial, _)| *serial == id.serial)
    }

    /// Appends a completion. A queue that was dropped takes everything. What nobody will poll frees its slot at once.
    pub(super) fn push(&mut self, id: CqId, entry: Cqe) -> Result<(), CqOverflow> {
        let slots = entry.slots;
        let sink = self.sinks.get_mut(id.slot);
        let pushed = sink
            .filter(|(serial, _)| *serial == id.serial)
            .map(|(_, sink)| sink.push(entry));
        if pushed == Some(true) {
            return Ok(());
        }
        self.free(slots);
        pushed.map_or(Ok(()), |_| Err(CqOverflow))
    }

    /// Appends a completion of a queue pair that has failed already; the queue remembers that it overflowed.
    pub(super) fn push_or_lose(&mut self, id: CqId, entry: Cqe) {
        let (wr_id, status) = (entry.completion.wr_id, entry.completion.status);
        if self.push(id, entry) == Err(CqOverflow) {
            log::warn!("a completion queue was full: that of {wr_id:?} ({status}) is lost");
        }
    }

    /// Frees the slot of a work request that has no completion.
    pub(super) fn free(&self, slots: SlotKey) {
        self.slots.free(slots);
    }
}

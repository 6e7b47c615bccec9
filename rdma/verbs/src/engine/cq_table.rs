//! The engine's ends of all completion queues.

use slab::Slab;

use crate::completion::WorkCompletion;
use crate::cq::CqSink;

/// A completion queue's identity; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqId {
    slot: usize,
    serial: u64,
}

/// A completion did not fit into its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CqOverflow;

/// See the module.
#[derive(Default)]
pub(crate) struct CqTable {
    sinks: Slab<(u64, CqSink)>,
    next_serial: u64,
}

impl CqTable {
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

    /// Appends a completion. A queue that was dropped takes everything.
    pub(super) fn push(&mut self, id: CqId, completion: WorkCompletion) -> Result<(), CqOverflow> {
        match self.sinks.get_mut(id.slot) {
            Some((serial, sink)) if *serial == id.serial => {
                sink.push(completion).then_some(()).ok_or(CqOverflow)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Appends a completion of a queue pair that has failed already; the queue remembers that it overflowed.
    pub(super) fn push_or_lose(&mut self, id: CqId, completion: WorkCompletion) {
        if self.push(id, completion) == Err(CqOverflow) {
            log::warn!("a completion queue was full: {completion:?} is lost");
        }
    }
}

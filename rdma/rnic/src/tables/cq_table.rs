//! The engine's ends of all completion queues.

use std::sync::Arc;
use std::time::Duration;

use rtrb::Producer;

use super::shared_tables::SharedTables;
use crate::model::{
    AsyncEvent, AsyncEventKind, CqId, Detail, EventResource, HandlerId, ResizeError,
};
use crate::queues::{CqPlace, CqSink, Cqe, EventQueue, EventTarget, Pushed, SlotKey, SlotTable};

/// A completion did not fit into its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqFull;

/// The engine's ends of all completion queues.
pub struct CqTable {
    /// By slot, each with its serial number.
    sinks: Vec<Option<(u64, CqSink)>>,
    /// Queues with unannounced completions.
    unannounced: Vec<CqId>,
    slots: Arc<SlotTable>,
    events: Arc<EventQueue>,
    shared_tables: Arc<SharedTables>,
    /// Index of the engine.
    engine: usize,
    /// Whether completions carry the time when the NIC received their frame.
    stamps: bool,
    /// Arrival time of the bytes that are being received.
    arrival: Detail,
}

impl CqTable {
    pub(crate) fn new(
        shared_tables: &Arc<SharedTables>,
        events: Arc<EventQueue>,
        engine: usize,
    ) -> Self {
        Self {
            sinks: Vec::new(),
            unannounced: Vec::new(),
            slots: Arc::clone(shared_tables.slots()),
            events,
            shared_tables: Arc::clone(shared_tables),
            engine,
            stamps: false,
            arrival: Detail::Nothing,
        }
    }

    /// Records arrival times in all later receive completions.
    pub(crate) fn begin_stamping(&mut self) {
        self.stamps = true;
    }

    /// Whether arrival times are recorded.
    #[inline]
    pub(crate) fn stamps(&self) -> bool {
        self.stamps
    }

    /// Sets the arrival time of the bytes that are received next, if the NIC reports one.
    pub(crate) fn note_arrival(&mut self, time: Option<Duration>) {
        self.arrival = Detail::of_arrival(time);
    }

    /// Arrival time of the bytes that are being received.
    #[inline]
    pub(crate) fn arrival(&self) -> Detail {
        self.arrival
    }

    /// Create CQ: adds this engine's end of a new queue.
    pub fn insert(&mut self, sink: CqSink) {
        let CqId { slot, serial } = sink.id();
        if self.sinks.len() <= slot {
            self.sinks.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.sinks.get_mut(slot) {
            *place = Some((serial, sink));
        }
    }

    /// This engine's end of each queue.
    pub(crate) fn sinks(&self) -> impl Iterator<Item = &CqSink> {
        self.sinks.iter().flatten().map(|(_, sink)| sink)
    }

    #[inline]
    fn sink(&mut self, id: CqId) -> Option<&mut CqSink> {
        let (serial, sink) = self.sinks.get_mut(id.slot)?.as_mut()?;
        (*serial == id.serial).then_some(sink)
    }

    /// Counts a work queue that completes there. False if there is no such completion queue.
    pub(crate) fn join(&mut self, id: CqId) -> bool {
        self.sink(id).map(|sink| sink.shared().join()).is_some()
    }

    /// Removes a work queue from the count.
    pub(crate) fn leave(&mut self, id: CqId) {
        if let Some(sink) = self.sink(id) {
            sink.shared().leave();
        }
    }

    /// True while queue pairs of any engine complete there.
    pub(crate) fn is_used(&mut self, id: CqId) -> bool {
        self.sink(id).is_some_and(|sink| sink.shared().is_used())
    }

    /// Place behind this engine's completions in a queue. `None` if the queue is destroyed.
    pub(crate) fn place(&mut self, id: CqId) -> Option<CqPlace> {
        let engine = self.engine;
        let count = self.sink(id)?.pushed();
        Some(CqPlace { engine, count })
    }

    /// Orders this engine's later completions in a queue after those before `first`.
    pub(crate) fn follow(&mut self, id: CqId, first: CqPlace) {
        if let Some(then) = self.place(id)
            && let Some(sink) = self.sink(id)
        {
            sink.shared().orders().put(first, then);
        }
    }

    /// Replaces the ring by one with room for all unread completions.
    pub fn resize(
        &mut self,
        id: CqId,
        ring: Producer<Cqe>,
        waiting: Option<usize>,
    ) -> Result<(), ResizeError> {
        self.sink(id)
            .map_or(Ok(()), |sink| sink.resize(ring, waiting))
    }

    /// Removes a queue. Its later completions are discarded.
    pub fn remove(&mut self, id: CqId) {
        if self.sink(id).is_some()
            && let Some(place) = self.sinks.get_mut(id.slot)
        {
            *place = None;
        }
    }

    /// Appends a completion, which can be polled at once; [`announce`](Self::announce) wakes
    /// threads that wait for it. Completions for a dropped queue are discarded. A completion that
    /// cannot be polled frees its slot at once.
    pub(crate) fn push(&mut self, id: CqId, entry: Cqe) -> Result<(), CqFull> {
        let slots = entry.slots;
        let Some(sink) = self.sink(id) else {
            self.free(slots);
            return Ok(());
        };
        match sink.push(entry) {
            Pushed::Joined => Ok(()),
            Pushed::Began => {
                self.unannounced.push(id);
                Ok(())
            }
            Pushed::Full { first } => {
                self.free(slots);
                if first {
                    self.report(id, AsyncEventKind::CqOverflow);
                }
                Err(CqFull)
            }
        }
    }

    /// Number of completions that a queue has room for; 0 if it is destroyed.
    pub(crate) fn room(&mut self, id: CqId) -> usize {
        self.sink(id).map_or(0, |sink| sink.room())
    }

    /// Appends up to `most` completions by one store. The queue has [`room`](Self::room) for them.
    #[inline]
    pub(crate) fn push_run(
        &mut self,
        id: CqId,
        most: usize,
        entries: impl Iterator<Item = Cqe>,
    ) -> Result<(), CqFull> {
        match self.sink(id).map(|sink| sink.push_run(most, entries)) {
            None | Some(Pushed::Joined) => Ok(()),
            Some(Pushed::Began) => {
                self.unannounced.push(id);
                Ok(())
            }
            Some(Pushed::Full { .. }) => Err(CqFull),
        }
    }

    /// Wakes waiters for completions that were appended since the last announcement. A batch is
    /// announced once.
    #[inline]
    pub(crate) fn announce(&mut self) {
        if !self.unannounced.is_empty() {
            self.announce_all();
        }
    }

    fn announce_all(&mut self) {
        let mut at = 0;
        while let Some(id) = self.unannounced.get(at).copied() {
            at += 1;
            let Some(sink) = self.sink(id) else {
                continue;
            };
            if !sink.announce() {
                continue;
            }
            match &sink.target {
                EventTarget::None => {}
                EventTarget::Handler(handler) => {
                    let handler = *handler;
                    self.call(handler, id);
                }
                EventTarget::Channel(channel) => channel.put(id, sink.shared()),
            }
        }
        self.unannounced.clear();
    }

    /// Calls a handler. If it panics, the queue fails.
    fn call(&self, handler: HandlerId, id: CqId) {
        if !self.shared_tables.handlers().lock().call(handler, id) {
            self.report(id, AsyncEventKind::CqFailed);
        }
    }

    fn report(&self, id: CqId, kind: AsyncEventKind) {
        let resource = EventResource::Cq(id);
        self.events.report(AsyncEvent { resource, kind });
    }

    /// Appends a completion of a queue pair that has failed already. If the queue is full, it only
    /// records the overflow.
    pub(crate) fn push_or_lose(&mut self, id: CqId, entry: Cqe) {
        let (wr_id, status) = (entry.completion.wr_id, entry.completion.status);
        if self.push(id, entry) == Err(CqFull) {
            log::warn!("a completion queue was full: that of {wr_id:?} ({status}) is lost");
        }
    }

    /// Frees the slot of a work request that has no completion.
    pub(crate) fn free(&self, slots: SlotKey) {
        self.slots.free(slots);
    }

    /// Frees `count` slots of one queue, of work requests without a completion.
    pub(crate) fn free_many(&self, slots: SlotKey, count: u32) {
        if count > 0 {
            self.slots.free_many(slots, count);
        }
    }
}

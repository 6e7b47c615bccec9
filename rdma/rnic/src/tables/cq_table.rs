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

/// See the module.
pub struct CqTable {
    /// By the slots of their identities, each with its serial number.
    sinks: Vec<Option<(u64, CqSink)>>,
    /// Queues with completions that were not announced yet.
    unannounced: Vec<CqId>,
    slots: Arc<SlotTable>,
    events: Arc<EventQueue>,
    shared_tables: Arc<SharedTables>,
    /// Whose table it is.
    engine: usize,
    /// Completions have the time at which the NIC received what raised them.
    stamps: bool,
    /// That of what is being received.
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

    /// Has completions of what is received have times from now on.
    pub(crate) fn begin_stamping(&mut self) {
        self.stamps = true;
    }

    /// Whether times of arrival are wanted.
    #[inline]
    pub(crate) fn stamps(&self) -> bool {
        self.stamps
    }

    /// Sets the NIC's time of arrival of the bytes that are received next, if the NIC reports one.
    pub(crate) fn note_arrival(&mut self, time: Option<Duration>) {
        self.arrival = Detail::of_arrival(time);
    }

    /// When the bytes that are being received arrived.
    #[inline]
    pub(crate) fn arrival(&self) -> Detail {
        self.arrival
    }

    /// Create CQ: enters this engine's end of a new queue.
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

    /// A queue of a queue pair is created that completes there. False if there is no such
    /// completion queue.
    pub(crate) fn join(&mut self, id: CqId) -> bool {
        self.sink(id).map(|sink| sink.shared().join()).is_some()
    }

    /// One is gone.
    pub(crate) fn leave(&mut self, id: CqId) {
        if let Some(sink) = self.sink(id) {
            sink.shared().leave();
        }
    }

    /// True while queue pairs complete there, whatever engine they are on.
    pub(crate) fn is_used(&mut self, id: CqId) -> bool {
        self.sink(id).is_some_and(|sink| sink.shared().is_used())
    }

    /// What was put into a queue by this engine ends there. `None` if the queue is gone.
    pub(crate) fn place(&mut self, id: CqId) -> Option<CqPlace> {
        let engine = self.engine;
        let count = self.sink(id)?.pushed();
        Some(CqPlace { engine, count })
    }

    /// What this engine puts into a queue from now on is polled after what lies before `first`.
    pub(crate) fn follow(&mut self, id: CqId, first: CqPlace) {
        if let Some(then) = self.place(id)
            && let Some(sink) = self.sink(id)
        {
            sink.shared().orders().put(first, then);
        }
    }

    /// Goes on with another ring, which must have room for what is unread.
    pub fn resize(
        &mut self,
        id: CqId,
        ring: Producer<Cqe>,
        waiting: Option<usize>,
    ) -> Result<(), ResizeError> {
        self.sink(id)
            .map_or(Ok(()), |sink| sink.resize(ring, waiting))
    }

    /// Forgets a queue. Completions for it go nowhere from now on.
    pub fn remove(&mut self, id: CqId) {
        if self.sink(id).is_some()
            && let Some(place) = self.sinks.get_mut(id.slot)
        {
            *place = None;
        }
    }

    /// Appends a completion, which can be polled at once; [`announce`](Self::announce) wakes
    /// threads that wait for it. A dropped queue takes everything. A completion that cannot be
    /// polled frees its slot at once.
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

    /// Completions that a queue has room for; none if it is gone.
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

    /// Wakes those who wait for completions that were appended since the last time. A batch of them
    /// is announced once.
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

    /// Appends a completion of a queue pair that has failed already; the queue remembers that it
    /// overflowed.
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

//! The engine's ends of all completion queues.

use std::sync::Arc;

use rtrb::Producer;
use slab::Slab;

use super::handlers::Handlers;
use crate::model::{
    AsyncEvent, AsyncEventKind, CapabilityError, CqId, CreateError, EventResource, HandlerId,
    MAX_CQS, ResizeError,
};
use crate::queues::{CqSink, Cqe, EventQueue, EventTarget, Pushed, SlotKey, SlotTable};

/// A completion did not fit into its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqFull;

/// See the module.
pub struct CqTable {
    sinks: Slab<(u64, CqSink)>,
    /// Queues with completions that were not announced yet.
    unannounced: Vec<CqId>,
    next_serial: u64,
    handlers: Handlers,
    slots: Arc<SlotTable>,
    events: Arc<EventQueue>,
}

impl CqTable {
    pub(crate) fn new(slots: Arc<SlotTable>, events: Arc<EventQueue>) -> Self {
        Self {
            sinks: Slab::new(),
            unannounced: Vec::new(),
            next_serial: 0,
            handlers: Handlers::default(),
            slots,
            events,
        }
    }

    pub(crate) fn handlers(&mut self) -> &mut Handlers {
        &mut self.handlers
    }

    /// Create CQ: enters the end of a new queue.
    pub fn insert(&mut self, sink: CqSink) -> Result<CqId, CreateError> {
        CapabilityError::check(
            "a number of completion queues of",
            self.sinks.len() + 1,
            1,
            MAX_CQS,
        )?;
        if let EventTarget::Handler(handler) = sink.target {
            self.handlers.check(handler)?;
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        Ok(CqId {
            slot: self.sinks.insert((serial, sink)),
            serial,
        })
    }

    fn sink(&mut self, id: CqId) -> Option<&mut CqSink> {
        let (serial, sink) = self.sinks.get_mut(id.slot)?;
        (*serial == id.serial).then_some(sink)
    }

    /// Goes on with another ring, which must have room for what is unread.
    pub fn resize(
        &mut self,
        id: CqId,
        ring: Producer<Cqe>,
        waiting: usize,
    ) -> Result<(), ResizeError> {
        self.sink(id)
            .map_or(Ok(()), |sink| sink.resize(ring, waiting))
    }

    /// Forgets a queue. Completions for it go nowhere from now on.
    pub fn remove(&mut self, id: CqId) {
        if self.contains(id) {
            self.sinks.remove(id.slot);
        }
    }

    pub(crate) fn contains(&self, id: CqId) -> bool {
        self.sinks
            .get(id.slot)
            .is_some_and(|(serial, _)| *serial == id.serial)
    }

    /// Appends a completion, which can be polled at once; [`announce`](Self::announce) wakes those who wait for it. A queue that
    /// was dropped takes everything. What nobody will poll frees its slot at once.
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

    /// Appends completions, at most so many, by one store; the queue has [`room`](Self::room) for them.
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

    /// Wakes those who wait for completions that were appended since the last time. A batch of them is announced once.
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
                EventTarget::Nobody => {}
                EventTarget::Handler(handler) => {
                    let handler = *handler;
                    self.call(handler, id);
                }
                EventTarget::Channel(channel) => sink.notify(id, channel),
            }
        }
        self.unannounced.clear();
    }

    /// Tells a handler. One that panics is a failure of the queue.
    fn call(&mut self, handler: HandlerId, id: CqId) {
        if !self.handlers.call(handler, id) {
            self.report(id, AsyncEventKind::CqFailed);
        }
    }

    fn report(&self, id: CqId, kind: AsyncEventKind) {
        let resource = EventResource::Cq(id);
        self.events.report(AsyncEvent { resource, kind });
    }

    /// Appends a completion of a queue pair that has failed already; the queue remembers that it overflowed.
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

    /// Frees the slots of so many such work requests of one queue.
    pub(crate) fn free_many(&self, slots: SlotKey, count: u32) {
        if count > 0 {
            self.slots.free_many(slots, count);
        }
    }
}

//! Tables that the engines of an RNIC share with each other and with its handles.

use std::io;
use std::sync::Arc;

use super::handlers::Handlers;
use super::srq_table::SrqTable;
use crate::model::{EventHandler, MAX_CQS, MAX_QPS, MAX_SRQS};
use crate::queues::{EngineDoorbell, EventQueue, Identities, Locked, SlotTable};

/// Tables that the engines of an RNIC share. `STag`s and protection domains are shared in addition.
/// Engines share nothing else (decision record rnic/0034).
pub struct SharedTables {
    first_doorbell: Arc<EngineDoorbell>,
    doorbells: Vec<Arc<EngineDoorbell>>,
    slots: Arc<SlotTable>,
    events: Arc<EventQueue>,
    handlers: Locked<Handlers>,
    event_handler: Locked<Option<EventHandler>>,
    srqs: SrqTable,
    qps: Arc<Identities>,
    cqs: Arc<Identities>,
}

impl SharedTables {
    /// Tables of an RNIC that has an engine with `first_doorbell`, and one with each of `others`.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory or no file descriptor is left.
    pub fn new(
        first_doorbell: Arc<EngineDoorbell>,
        others: impl Iterator<Item = Arc<EngineDoorbell>>,
        max_events: usize,
    ) -> io::Result<Arc<Self>> {
        let slots = SlotTable::new(MAX_QPS, MAX_SRQS)?;
        Ok(Arc::new(Self {
            doorbells: [Arc::clone(&first_doorbell)]
                .into_iter()
                .chain(others)
                .collect(),
            first_doorbell,
            srqs: SrqTable::new(Arc::clone(&slots)),
            slots,
            events: Arc::new(EventQueue::new(max_events)?),
            handlers: Locked::default(),
            event_handler: Locked::default(),
            qps: Identities::new("a number of queue pairs of", MAX_QPS),
            cqs: Identities::new("a number of completion queues of", MAX_CQS),
        }))
    }

    /// Number of engines.
    pub fn engines(&self) -> usize {
        self.doorbells.len()
    }

    /// Doorbells of the engines.
    #[inline]
    pub fn doorbells(&self) -> &[Arc<EngineDoorbell>] {
        &self.doorbells
    }

    /// Doorbell of the first engine.
    pub fn first_doorbell(&self) -> &Arc<EngineDoorbell> {
        &self.first_doorbell
    }

    /// Drops the handlers and what they own, as no engine is left to call them.
    pub fn drop_handlers(&self) {
        let handlers = std::mem::take(&mut *self.handlers.lock());
        let event_handler = self.event_handler.lock().take();
        drop((handlers, event_handler));
    }

    /// The table in which slots of work queues are freed.
    #[inline]
    pub fn slots(&self) -> &Arc<SlotTable> {
        &self.slots
    }

    /// The asynchronous events, to be polled.
    pub fn events(&self) -> &Arc<EventQueue> {
        &self.events
    }

    /// The completion event handlers.
    pub fn handlers(&self) -> &Locked<Handlers> {
        &self.handlers
    }

    /// Handler of asynchronous events.
    pub(crate) fn event_handler(&self) -> &Locked<Option<EventHandler>> {
        &self.event_handler
    }

    /// The shared receive queues.
    pub fn srqs(&self) -> &SrqTable {
        &self.srqs
    }

    /// The identities of queue pairs.
    pub(crate) fn qps(&self) -> &Arc<Identities> {
        &self.qps
    }

    /// The identities of completion queues.
    pub fn cqs(&self) -> &Arc<Identities> {
        &self.cqs
    }
}

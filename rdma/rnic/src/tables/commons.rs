//! Commons: what the engines of an RNIC have in common, and its handles with them.

use std::io;
use std::sync::Arc;

use super::handlers::Handlers;
use super::srq_table::SrqTable;
use crate::model::{EventHandler, MAX_CQS, MAX_QPS, MAX_SRQS};
use crate::queues::{Door, EventQueue, Identities, Locked, SlotTable};

/// See the module. `STag`s and protection domains are in common, too; each engine has a hold of its own of their table.
pub struct Commons {
    first_door: Arc<Door>,
    doors: Vec<Arc<Door>>,
    slots: Arc<SlotTable>,
    events: Arc<EventQueue>,
    handlers: Locked<Handlers>,
    event_handler: Locked<Option<EventHandler>>,
    srqs: SrqTable,
    qps: Arc<Identities>,
    cqs: Arc<Identities>,
}

impl Commons {
    /// Of an RNIC that has an engine behind `first_door`, and one behind each of `others`.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory or no file descriptor is left.
    pub fn new(
        first_door: Arc<Door>,
        others: impl Iterator<Item = Arc<Door>>,
        max_events: usize,
    ) -> io::Result<Arc<Self>> {
        let slots = SlotTable::new(MAX_QPS, MAX_SRQS)?;
        Ok(Arc::new(Self {
            doors: [Arc::clone(&first_door)]
                .into_iter()
                .chain(others)
                .collect(),
            first_door,
            srqs: SrqTable::new(Arc::clone(&slots)),
            slots,
            events: Arc::new(EventQueue::new(max_events)?),
            handlers: Locked::default(),
            event_handler: Locked::default(),
            qps: Identities::new("a number of queue pairs of", MAX_QPS),
            cqs: Identities::new("a number of completion queues of", MAX_CQS),
        }))
    }

    /// How many engines there are.
    pub fn engines(&self) -> usize {
        self.doors.len()
    }

    /// The doors of the engines.
    #[inline]
    pub fn doors(&self) -> &[Arc<Door>] {
        &self.doors
    }

    /// That of the first engine.
    pub fn first_door(&self) -> &Arc<Door> {
        &self.first_door
    }

    /// Lets go of the handlers, and of what these own: there is no engine any more that would call one.
    pub fn drop_handlers(&self) {
        let handlers = std::mem::take(&mut *self.handlers.lock());
        let event_handler = self.event_handler.lock().take();
        drop((handlers, event_handler));
    }

    /// Where slots of work queues are freed.
    #[inline]
    pub fn slots(&self) -> &Arc<SlotTable> {
        &self.slots
    }

    /// The asynchronous events, for whoever polls them.
    pub fn events(&self) -> &Arc<EventQueue> {
        &self.events
    }

    /// The completion event handlers.
    pub fn handlers(&self) -> &Locked<Handlers> {
        &self.handlers
    }

    /// Whom asynchronous events are told.
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

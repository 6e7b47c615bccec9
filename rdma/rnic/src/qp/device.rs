//! The device under all queue pairs: TCP, memory, completion queues, events, counters and the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use xwarp_tcp::{ConnId, Instant, Stack};

use crate::model::{AsyncEvent, AsyncEventKind, EngineCounters, EventResource, LocalPort};
use crate::queues::{EventQueue, SlotTable};
use crate::stags::StagTable;
use crate::tables::{CqTable, Searches, SrqTable};

/// What all queue pairs of an RNIC share. The engine owns it and lends it to the queue pair whose turn it is.
pub(crate) struct Device {
    pub(crate) stack: Stack,
    pub(crate) stags: StagTable,
    pub(crate) cqs: CqTable,
    pub(crate) srqs: SrqTable,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) counters: EngineCounters,
    /// After how long an initiator wakes a peer that overlooks its first FPDU.
    pub(crate) first_fpdu_retry: Option<Duration>,
    /// The time of the present turn or verb.
    pub(crate) now: Instant,
    /// Slots of queue pairs that may have something to send, in turn.
    pub(crate) turns: VecDeque<usize>,
    /// What a queue pair has just done with its connections, for the engine, which keeps their owners.
    pub(crate) conn_changes: Vec<ConnChange>,
    /// Next hops that connections wait for.
    pub(crate) searches: Searches,
}

/// What a queue pair did with one of its TCP connections.
pub(crate) enum ConnChange {
    /// It has made this one.
    Made(ConnId),
    /// It is done with this one. The port lingers, as TCP may still have to answer on it.
    Released(ConnId, Arc<LocalPort>),
    /// Likewise, and nobody has closed it yet.
    Abandoned(ConnId, Arc<LocalPort>),
}

impl Device {
    /// A device that nothing has been done with.
    pub(crate) fn new(
        stack: Stack,
        stags: StagTable,
        slots: Arc<SlotTable>,
        events: Arc<EventQueue>,
        first_fpdu_retry: Option<Duration>,
    ) -> Self {
        Self {
            stack,
            stags,
            cqs: CqTable::new(Arc::clone(&slots), Arc::clone(&events)),
            srqs: SrqTable::new(slots, Arc::clone(&events)),
            events,
            counters: EngineCounters::default(),
            first_fpdu_retry,
            now: Instant::from_micros(0),
            turns: VecDeque::new(),
            conn_changes: Vec::new(),
            searches: Searches::default(),
        }
    }

    pub(crate) fn report(&self, resource: EventResource, kind: AsyncEventKind) {
        self.events.report(AsyncEvent { resource, kind });
    }
}

//! The device under all queue pairs: TCP, memory, completion queues, events, counters and the time.

use std::collections::VecDeque;
use std::sync::Arc;

use xwarp_tcp::{Instant, Stack};

use crate::model::{AsyncEvent, AsyncEventKind, EngineCounters, EventResource};
use crate::queues::EventQueue;
use crate::stags::StagTable;
use crate::tables::{CqTable, SrqTable};

/// What all queue pairs of an RNIC share. The engine owns it and lends it to the queue pair whose turn it is.
pub(crate) struct Device {
    pub(crate) stack: Stack,
    pub(crate) stags: StagTable,
    pub(crate) cqs: CqTable,
    pub(crate) srqs: SrqTable,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) counters: EngineCounters,
    /// The time of the present turn or verb.
    pub(crate) now: Instant,
    /// Slots of queue pairs that may have something to send, in turn.
    pub(crate) turns: VecDeque<usize>,
}

impl Device {
    pub(crate) fn report(&self, resource: EventResource, kind: AsyncEventKind) {
        self.events.report(AsyncEvent { resource, kind });
    }
}

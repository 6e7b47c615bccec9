//! The receive buffers of a queue pair: those that are posted, and the one that a message is being placed into.

use rtrb::Consumer;

use crate::slots::SlotKey;
use crate::work::{RecvRequest, WrId, total};

/// A receive buffer that a message has taken.
pub(super) struct Receiving {
    pub(super) request: RecvRequest,
    /// Where its slot is freed.
    pub(super) slots: SlotKey,
}

impl Receiving {
    pub(super) fn wr_id(&self) -> WrId {
        self.request.wr_id
    }
}

/// See the module.
pub(super) struct Receives {
    posted: Consumer<RecvRequest>,
    slots: SlotKey,
    current: Option<Receiving>,
}

impl Receives {
    pub(super) fn new(posted: Consumer<RecvRequest>, slots: SlotKey) -> Self {
        Self {
            posted,
            slots,
            current: None,
        }
    }

    /// A message begins: takes the next buffer, and tells how long it is.
    pub(super) fn begin(&mut self) -> Option<u64> {
        let next = self.next()?;
        let len = total(&next.request.sgl)?;
        self.current = Some(next);
        Some(u64::from(len))
    }

    /// What the present message is placed into.
    pub(super) fn current(&self) -> Option<&Receiving> {
        self.current.as_ref()
    }

    /// The present message ends.
    pub(super) fn end(&mut self) -> Option<Receiving> {
        self.current.take()
    }

    /// Takes the oldest buffer that has not completed, for the end of the queue pair.
    pub(super) fn flush_one(&mut self) -> Option<Receiving> {
        self.end().or_else(|| self.next())
    }

    fn next(&mut self) -> Option<Receiving> {
        let request = self.posted.pop().ok()?;
        let slots = self.slots;
        Some(Receiving { request, slots })
    }
}

//! Posted receive buffers, and those that messages have taken: the engine's end of a receive queue,
//! of one queue pair or shared.

use rtrb::Consumer;

use super::{PostedRequests, SlotKey};
use crate::model::{RecvRequest, WrId};

/// A receive buffer that a message has taken.
pub(crate) struct CurrentReceive {
    pub(crate) request: RecvRequest,
    /// Key by which its slot is freed.
    pub(crate) slots: SlotKey,
}

impl CurrentReceive {
    pub(crate) fn wr_id(&self) -> WrId {
        self.request.wr_id
    }
}

/// Posted receive buffers of a queue pair or of a shared queue.
pub(crate) struct ReceiveRing {
    pub(crate) posted: PostedRequests<RecvRequest>,
    /// Key by which their slots are freed.
    pub(crate) slots: SlotKey,
}

impl ReceiveRing {
    pub(crate) fn new(ring: Consumer<RecvRequest>, slots: SlotKey) -> Self {
        let posted = PostedRequests::new(ring);
        Self { posted, slots }
    }

    /// Takes the oldest buffer.
    pub(crate) fn take(&mut self) -> Option<CurrentReceive> {
        let (request, slots) = (self.posted.pop()?, self.slots);
        Some(CurrentReceive { request, slots })
    }
}

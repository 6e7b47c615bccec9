//! Shared receive queues as the engine holds them (verbs draft §6.3).

use std::sync::Arc;

use rtrb::Consumer;
use slab::Slab;

use crate::model::{
    AsyncEvent, AsyncEventKind, CapabilityError, CreateError, EventResource, MAX_SRQS, OutOfMemory,
    PdId, RecvRequest, SrqId, WrId, total,
};
use crate::queues::{EventQueue, PostedRequests, SlotKey, SlotTable};

/// A receive buffer that a message has taken.
pub(crate) struct CurrentReceive {
    pub(crate) request: RecvRequest,
    /// Where its slot is freed.
    pub(crate) slots: SlotKey,
}

impl CurrentReceive {
    pub(crate) fn wr_id(&self) -> WrId {
        self.request.wr_id
    }
}

/// Receive buffers that were posted, to a queue pair or to a shared queue.
pub(crate) struct PostedBuffers {
    pub(crate) posted: PostedRequests<RecvRequest>,
    /// Where their slots are freed.
    pub(crate) slots: SlotKey,
}

impl PostedBuffers {
    pub(crate) fn new(ring: Consumer<RecvRequest>, slots: SlotKey) -> Self {
        let posted = PostedRequests::new(ring);
        Self { posted, slots }
    }

    /// Takes the oldest.
    pub(crate) fn take(&mut self) -> Option<CurrentReceive> {
        let (request, slots) = (self.posted.pop()?, self.slots);
        Some(CurrentReceive { request, slots })
    }
}

/// One of them.
struct Srq {
    serial: u64,
    pd: PdId,
    buffers: PostedBuffers,
    /// Below how many unused buffers that is told; 0 while nobody wants to know.
    armed: usize,
    /// Queue pairs that take from it.
    users: usize,
    /// What is in it cannot be made out.
    failed: bool,
    /// The application has dropped it; it goes with its last queue pair.
    orphaned: bool,
}

/// Nothing can be taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqBroken;

/// All of an RNIC.
pub struct SrqTable {
    all: Slab<Srq>,
    next_serial: u64,
    slots: Arc<SlotTable>,
    events: Arc<EventQueue>,
}

impl SrqTable {
    pub(crate) fn new(slots: Arc<SlotTable>, events: Arc<EventQueue>) -> Self {
        Self {
            all: Slab::new(),
            next_serial: 0,
            slots,
            events,
        }
    }

    pub(crate) fn create(
        &mut self,
        pd: PdId,
        posted: Consumer<RecvRequest>,
        limit: usize,
    ) -> Result<(SrqId, SlotKey), CreateError> {
        let wanted = self.all.len() + 1;
        CapabilityError::check("a number of shared receive queues of", wanted, 1, MAX_SRQS)?;
        let (slot, serial) = (self.all.vacant_key(), self.next_serial);
        self.next_serial += 1; // 2^64 will not be created
        // `MAX_SRQS` bounds the slab's keys.
        let slots = self.slots.open_srq(u32::try_from(slot).unwrap_or(u32::MAX));
        self.all.insert(Srq {
            serial,
            pd,
            buffers: PostedBuffers::new(posted, slots),
            armed: limit,
            users: 0,
            failed: false,
            orphaned: false,
        });
        Ok((SrqId { slot, serial }, slots))
    }

    fn find(&mut self, id: SrqId) -> Option<&mut Srq> {
        let srq = self.all.get_mut(id.slot)?;
        (srq.serial == id.serial).then_some(srq)
    }

    /// Is it there, or are queue pairs that may have buffers of it?
    pub fn contains(&self, id: SrqId) -> bool {
        let srq = self.all.get(id.slot);
        srq.is_some_and(|srq| srq.serial == id.serial)
    }

    /// A queue pair is created that takes from it.
    pub(crate) fn join(&mut self, id: SrqId) {
        if let Some(srq) = self.find(id) {
            srq.users += 1;
        }
    }

    /// A queue pair that took from it is gone. The protection domain of one that goes with it.
    pub(crate) fn leave(&mut self, id: SrqId) -> Option<PdId> {
        self.find(id)?.users -= 1;
        self.remove_unused(id)
    }

    /// Removes one that nobody posts to and no queue pair takes from.
    fn remove_unused(&mut self, id: SrqId) -> Option<PdId> {
        let unused = self
            .find(id)
            .is_some_and(|srq| srq.orphaned && srq.users == 0);
        unused.then(|| self.all.remove(id.slot).pd)
    }

    /// A message begins: takes the oldest buffer, whichever queue pair the message is for (arrival order, verbs draft §6.3.5), and tells
    /// if too few are left. A buffer that nobody can have posted fails the queue: what else it holds cannot be trusted.
    pub(crate) fn take(&mut self, id: SrqId) -> Result<Option<CurrentReceive>, SrqBroken> {
        let srq = self.find(id).filter(|srq| !srq.failed).ok_or(SrqBroken)?;
        let Some(receiving) = srq.buffers.take() else {
            return Ok(None);
        };
        if total(&receiving.request.sgl).is_none() {
            srq.failed = true;
            log::error!("{id:?} is broken: a buffer is longer than any that can be posted");
            self.report(EventResource::Srq(id), AsyncEventKind::SrqFailed);
            return Err(SrqBroken);
        }
        if srq.armed > 0 && srq.buffers.posted.len() < srq.armed {
            srq.armed = 0;
            self.report(EventResource::Srq(id), AsyncEventKind::SrqLimitReached);
        }
        Ok(Some(receiving))
    }

    /// Lends its buffers for messages that begin and end together, at most so many: those that [`take`](Self::take) tells nothing of.
    pub(crate) fn lend(&mut self, id: SrqId) -> Option<(&mut PostedBuffers, usize)> {
        let srq = self.find(id).filter(|srq| !srq.failed)?;
        let most = match srq.armed {
            0 => usize::MAX,
            limit => srq.buffers.posted.len().saturating_sub(limit),
        };
        Some((&mut srq.buffers, most))
    }

    /// The protection domain that the buffers' pieces must be of (verbs draft §6.3.5).
    pub(crate) fn domain(&self, id: SrqId) -> Option<PdId> {
        let srq = self.all.get(id.slot).filter(|srq| srq.serial == id.serial);
        srq.map(|srq| srq.pd)
    }

    /// Tells what happened to one of them, or to a queue pair that takes from one.
    pub(crate) fn report(&self, resource: EventResource, kind: AsyncEventKind) {
        self.events.report(AsyncEvent { resource, kind });
    }

    /// True while queue pairs take from it.
    pub(crate) fn is_used(&self, id: SrqId) -> bool {
        let srq = self.all.get(id.slot).filter(|srq| srq.serial == id.serial);
        srq.is_some_and(|srq| srq.users > 0)
    }

    /// Work requests that it holds; `None` if there is no such queue.
    pub(crate) fn depth(&self, id: SrqId) -> Option<usize> {
        let srq = self.all.get(id.slot).filter(|srq| srq.serial == id.serial);
        srq.map(|srq| srq.buffers.posted.depth())
    }

    /// Tells below how many unused buffers there shall be an event, once; 0 for never.
    pub fn arm(&mut self, id: SrqId, limit: usize) {
        if let Some(srq) = self.find(id) {
            srq.armed = limit;
        }
    }

    /// The limit that an event is still to be told of.
    pub fn armed(&mut self, id: SrqId) -> usize {
        self.find(id).map_or(0, |srq| srq.armed)
    }

    /// Goes on with another ring; what is in the former one comes first.
    pub fn resize(&mut self, id: SrqId, posted: Consumer<RecvRequest>) -> Result<(), OutOfMemory> {
        if let Some(srq) = self.find(id) {
            srq.buffers.posted.reserve()?;
            srq.buffers.posted.resize(posted);
        }
        Ok(())
    }

    /// Nobody posts to it any more: it goes as soon as no queue pair takes from it.
    pub(crate) fn orphan(&mut self, id: SrqId) -> Option<PdId> {
        self.find(id)?.orphaned = true;
        self.remove_unused(id)
    }
}

#[cfg(feature = "fault-injection")]
impl SrqTable {
    /// The next buffer is one that nobody can have posted.
    pub fn inject_fault(&mut self, id: SrqId) {
        let endless = crate::model::Sge {
            stag: xwarp_iwarp::Stag(0),
            to: 0,
            len: u32::MAX,
        };
        if let Some(srq) = self.find(id) {
            let sgl = crate::model::Sgl::from_iter([endless; 2]);
            let endless = RecvRequest::new(crate::model::WrId(0), sgl);
            srq.buffers.posted.put_back(endless);
        }
    }
}

//! Shared receive queues as the engines hold them (verbs draft §6.3).
//!
//! The queue pair that takes a receive is decided when a message begins (arrival order). Messages
//! of a queue pair are placed one at a time, so at most one is in progress. Of the QP RQ Limits
//! (verbs draft §6.3.8) only 0 can therefore be exceeded; Query QP returns larger ones as they were
//! set.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rtrb::Consumer;
use slab::Slab;

use crate::model::{
    AsyncEvent, AsyncEventKind, CapabilityError, CreateError, EventResource, MAX_SRQS, OutOfMemory,
    PdId, RecvRequest, SrqId, total,
};
use crate::queues::{CurrentReceive, EventQueue, Guard, Locked, ReceiveRing, SlotKey, SlotTable};

/// Guard of posted buffers.
pub(crate) enum BorrowedReceives<'a> {
    /// Buffers of one queue pair.
    Own(&'a mut ReceiveRing),
    /// Buffers of a shared queue, which no other engine can take from meanwhile.
    Shared(Guard<'a, SrqState>),
}

impl Deref for BorrowedReceives<'_> {
    type Target = ReceiveRing;

    #[inline]
    fn deref(&self) -> &ReceiveRing {
        match self {
            Self::Own(buffers) => buffers,
            Self::Shared(state) => &state.buffers,
        }
    }
}

impl DerefMut for BorrowedReceives<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ReceiveRing {
        match self {
            Self::Own(buffers) => buffers,
            Self::Shared(state) => &mut state.buffers,
        }
    }
}

/// A shared receive queue. Its queue pairs hold references to it, on any engine.
pub(crate) struct Srq {
    id: SrqId,
    pd: PdId,
    state: Locked<SrqState>,
}

/// Contents of a shared receive queue.
pub(crate) struct SrqState {
    buffers: ReceiveRing,
    /// Limit of unused buffers below which an event is reported; 0 for none.
    armed: usize,
    /// Whether its contents are inconsistent.
    failed: bool,
}

/// The queue has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqBroken;

impl Srq {
    pub(crate) fn id(&self) -> SrqId {
        self.id
    }

    /// The protection domain that the buffers' pieces must belong to (verbs draft §6.3.5).
    #[inline]
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// Depth of the queue in work requests.
    pub(crate) fn depth(&self) -> usize {
        self.state.lock().buffers.posted.depth()
    }

    /// Takes the oldest buffer for a new message, whichever queue pair the message is for (arrival
    /// order, verbs draft §6.3.5). Reports an event if too few are left. A buffer that cannot have
    /// been posted fails the queue, since its further contents cannot be trusted.
    pub(crate) fn take(&self, events: &EventQueue) -> Result<Option<CurrentReceive>, SrqBroken> {
        let mut state = self.state.lock();
        if state.failed {
            return Err(SrqBroken);
        }
        let Some(receiving) = state.buffers.take() else {
            return Ok(None);
        };
        if total(&receiving.request.sgl).is_none() {
            state.failed = true;
            log::error!(
                "{:?} is broken: a buffer is longer than any that can be posted",
                self.id
            );
            self.report(AsyncEventKind::SrqFailed, events);
            return Err(SrqBroken);
        }
        if state.armed > 0 && state.buffers.posted.len() < state.armed {
            state.armed = 0;
            self.report(AsyncEventKind::SrqLimitReached, events);
        }
        Ok(Some(receiving))
    }

    /// Lends its buffers for messages that begin and end together, and the number of buffers that
    /// may be taken before [`take`](Self::take) would report an event.
    pub(crate) fn lend(&self) -> Option<(BorrowedReceives<'_>, usize)> {
        let state = self.state.lock();
        if state.failed {
            return None;
        }
        let most = match state.armed {
            0 => usize::MAX,
            limit => state.buffers.posted.len().saturating_sub(limit),
        };
        Some((BorrowedReceives::Shared(state), most))
    }

    fn report(&self, kind: AsyncEventKind, events: &EventQueue) {
        let resource = EventResource::Srq(self.id);
        events.report(AsyncEvent { resource, kind });
    }
}

/// A shared receive queue, and its users.
struct Entry {
    srq: Arc<Srq>,
    /// Number of queue pairs that take from it.
    users: usize,
    /// Whether the application has dropped it, so that it ends with its last queue pair.
    orphaned: bool,
}

#[derive(Default)]
struct Entries {
    all: Slab<Entry>,
    next_serial: u64,
}

impl Entries {
    fn find(&mut self, id: SrqId) -> Option<&mut Entry> {
        let entry = self.all.get_mut(id.slot)?;
        (entry.srq.id == id).then_some(entry)
    }

    /// Removes a queue that the application has dropped and no queue pair uses.
    fn remove_unused(&mut self, id: SrqId) -> Option<PdId> {
        let unused = self
            .find(id)
            .is_some_and(|entry| entry.orphaned && entry.users == 0);
        unused.then(|| self.all.remove(id.slot).srq.pd)
    }
}

/// All shared receive queues of an RNIC, for queue pairs on any engine.
pub struct SrqTable {
    entries: Locked<Entries>,
    slots: Arc<SlotTable>,
}

impl SrqTable {
    pub(crate) fn new(slots: Arc<SlotTable>) -> Self {
        let entries = Locked::default();
        Self { entries, slots }
    }

    pub(crate) fn create(
        &self,
        pd: PdId,
        posted: Consumer<RecvRequest>,
        limit: usize,
    ) -> Result<(SrqId, SlotKey), CreateError> {
        let mut entries = self.entries.lock();
        let wanted = entries.all.len() + 1;
        CapabilityError::check("a number of shared receive queues of", wanted, 1, MAX_SRQS)?;
        let (slot, serial) = (entries.all.vacant_key(), entries.next_serial);
        entries.next_serial += 1; // 2^64 are never created
        // `MAX_SRQS` bounds the slab's keys.
        let slots = self.slots.open_srq(u32::try_from(slot).unwrap_or(u32::MAX));
        let id = SrqId { slot, serial };
        let state = Locked::new(SrqState {
            buffers: ReceiveRing::new(posted, slots),
            armed: limit,
            failed: false,
        });
        entries.all.insert(Entry {
            srq: Arc::new(Srq { id, pd, state }),
            users: 0,
            orphaned: false,
        });
        Ok((id, slots))
    }

    fn get(&self, id: SrqId) -> Option<Arc<Srq>> {
        let mut entries = self.entries.lock();
        entries.find(id).map(|entry| Arc::clone(&entry.srq))
    }

    /// Whether the queue exists, or queue pairs that may hold its buffers do.
    pub fn contains(&self, id: SrqId) -> bool {
        self.get(id).is_some()
    }

    /// Counts a new queue pair that takes from it. Fails if `limit` exceeds the depth.
    pub(crate) fn join(&self, id: SrqId, limit: usize) -> Result<Arc<Srq>, CreateError> {
        let mut entries = self.entries.lock();
        let entry = entries.find(id).ok_or(CreateError::InvalidSrq)?;
        let depth = entry.srq.depth();
        if limit > depth {
            return Err(CreateError::LimitOutOfRange { limit, depth });
        }
        entry.users += 1;
        Ok(Arc::clone(&entry.srq))
    }

    /// Removes a queue pair from the count. Returns the queue's protection domain if the queue ends
    /// with it.
    pub(crate) fn leave(&self, id: SrqId) -> Option<PdId> {
        let mut entries = self.entries.lock();
        entries.find(id)?.users -= 1;
        entries.remove_unused(id)
    }

    /// True while queue pairs take from it.
    pub(crate) fn is_used(&self, id: SrqId) -> bool {
        let mut entries = self.entries.lock();
        entries.find(id).is_some_and(|entry| entry.users > 0)
    }

    /// Sets the limit of unused buffers below which one event is reported; 0 for none.
    pub fn arm(&self, id: SrqId, limit: usize) {
        if let Some(srq) = self.get(id) {
            srq.state.lock().armed = limit;
        }
    }

    /// The limit if it is armed.
    pub fn armed(&self, id: SrqId) -> usize {
        self.get(id).map_or(0, |srq| srq.state.lock().armed)
    }

    /// Replaces the ring; the contents of the former one come first.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]: there is no memory for the contents of the former ring.
    pub fn resize(&self, id: SrqId, posted: Consumer<RecvRequest>) -> Result<(), OutOfMemory> {
        if let Some(srq) = self.get(id) {
            let mut state = srq.state.lock();
            state.buffers.posted.reserve()?;
            state.buffers.posted.resize(posted);
        }
        Ok(())
    }

    /// The application has dropped the queue, which ends with its last queue pair. Returns the
    /// queue's protection domain if it ends now.
    pub(crate) fn orphan(&self, id: SrqId) -> Option<PdId> {
        let mut entries = self.entries.lock();
        entries.find(id)?.orphaned = true;
        entries.remove_unused(id)
    }
}

#[cfg(feature = "fault-injection")]
impl SrqTable {
    /// Makes the next buffer one that cannot have been posted.
    pub fn inject_fault(&self, id: SrqId) {
        let endless = crate::model::Sge {
            stag: xwarp_iwarp::Stag(0),
            to: 0,
            len: u32::MAX,
        };
        if let Some(srq) = self.get(id) {
            let sgl = crate::model::Sgl::from_iter([endless; 2]);
            let endless = RecvRequest::new(crate::model::WrId(0), sgl);
            srq.state.lock().buffers.posted.put_back(endless);
        }
    }
}

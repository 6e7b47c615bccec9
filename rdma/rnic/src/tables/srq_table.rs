//! Shared receive queues as the engines hold them (verbs draft §6.3).
//!
//! The queue pair that gets a receive is decided when a message begins (arrival order). Messages of
//! a queue pair are placed one at a time, so that at most one is in progress. Of the QP RQ Limits
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

/// Lends posted buffers.
pub(crate) enum BorrowedReceives<'a> {
    /// Those of one queue pair.
    Own(&'a mut ReceiveRing),
    /// Those of a shared queue, which no other engine takes from meanwhile.
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

/// One of them. Its queue pairs hold it, on whatever engine they are.
pub(crate) struct Srq {
    id: SrqId,
    pd: PdId,
    state: Locked<SrqState>,
}

/// What is posted to a shared receive queue.
pub(crate) struct SrqState {
    buffers: ReceiveRing,
    /// Limit of unused buffers below which an event is reported; 0 for none.
    armed: usize,
    /// What is in it cannot be made out.
    failed: bool,
}

/// Nothing can be taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqBroken;

impl Srq {
    pub(crate) fn id(&self) -> SrqId {
        self.id
    }

    /// The protection domain that the buffers' pieces must be of (verbs draft §6.3.5).
    #[inline]
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// Work requests that it holds.
    pub(crate) fn depth(&self) -> usize {
        self.state.lock().buffers.posted.depth()
    }

    /// A message begins: takes the oldest buffer, whichever queue pair the message is for (arrival
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

    /// Lends its buffers for messages that begin and end together, and how many of them may be
    /// taken before [`take`](Self::take) would report an event.
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

/// A shared receive queue, and who needs it.
struct Entry {
    srq: Arc<Srq>,
    /// Queue pairs that take from it.
    users: usize,
    /// The application has dropped it; it goes with its last queue pair.
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

    /// Removes a queue that the application has dropped and no queue pair takes from.
    fn remove_unused(&mut self, id: SrqId) -> Option<PdId> {
        let unused = self
            .find(id)
            .is_some_and(|entry| entry.orphaned && entry.users == 0);
        unused.then(|| self.all.remove(id.slot).srq.pd)
    }
}

/// All of an RNIC, whatever engines their queue pairs are on.
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
        entries.next_serial += 1; // 2^64 will not be created
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

    /// Is it there, or are queue pairs that may have buffers of it?
    pub fn contains(&self, id: SrqId) -> bool {
        self.get(id).is_some()
    }

    /// A queue pair is created that takes from it. With a `limit` above its depth there is none.
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

    /// A queue pair that took from it is gone. The protection domain of one that goes with it.
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

    /// The limit whose event is still to be reported.
    pub fn armed(&self, id: SrqId) -> usize {
        self.get(id).map_or(0, |srq| srq.state.lock().armed)
    }

    /// Goes on with another ring; what is in the former one comes first.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]: there is no memory for what is in the former one.
    pub fn resize(&self, id: SrqId, posted: Consumer<RecvRequest>) -> Result<(), OutOfMemory> {
        if let Some(srq) = self.get(id) {
            let mut state = srq.state.lock();
            state.buffers.posted.reserve()?;
            state.buffers.posted.resize(posted);
        }
        Ok(())
    }

    /// The application has dropped it: it goes as soon as no queue pair takes from it.
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

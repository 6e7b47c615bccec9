//! Shared receive queues as the engines hold them (verbs draft §6.3).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rtrb::Consumer;
use slab::Slab;

use crate::model::{
    AsyncEvent, AsyncEventKind, CapabilityError, CreateError, EventResource, MAX_SRQS, OutOfMemory,
    PdId, RecvRequest, SrqId, total,
};
use crate::queues::{CurrentReceive, EventQueue, Guard, Locked, PostedBuffers, SlotKey, SlotTable};

/// Lends posted buffers.
pub(crate) enum Lent<'a> {
    /// Those of one queue pair.
    Own(&'a mut PostedBuffers),
    /// Those of a shared queue, which no other engine takes from meanwhile.
    Shared(Guard<'a, Stock>),
}

impl Deref for Lent<'_> {
    type Target = PostedBuffers;

    #[inline]
    fn deref(&self) -> &PostedBuffers {
        match self {
            Self::Own(buffers) => buffers,
            Self::Shared(stock) => &stock.buffers,
        }
    }
}

impl DerefMut for Lent<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut PostedBuffers {
        match self {
            Self::Own(buffers) => buffers,
            Self::Shared(stock) => &mut stock.buffers,
        }
    }
}

/// One of them. Its queue pairs hold it, on whatever engine they are.
pub(crate) struct Srq {
    id: SrqId,
    pd: PdId,
    stock: Locked<Stock>,
}

/// What is posted to a shared receive queue.
pub(crate) struct Stock {
    buffers: PostedBuffers,
    /// Below how many unused buffers that is told; 0 while nobody wants to know.
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
        self.stock.lock().buffers.posted.depth()
    }

    /// A message begins: takes the oldest buffer, whichever queue pair the message is for (arrival order, verbs draft §6.3.5), and tells
    /// if too few are left. A buffer that nobody can have posted fails the queue: what else it holds cannot be trusted.
    pub(crate) fn take(&self, events: &EventQueue) -> Result<Option<CurrentReceive>, SrqBroken> {
        let mut stock = self.stock.lock();
        if stock.failed {
            return Err(SrqBroken);
        }
        let Some(receiving) = stock.buffers.take() else {
            return Ok(None);
        };
        if total(&receiving.request.sgl).is_none() {
            stock.failed = true;
            log::error!(
                "{:?} is broken: a buffer is longer than any that can be posted",
                self.id
            );
            self.report(AsyncEventKind::SrqFailed, events);
            return Err(SrqBroken);
        }
        if stock.armed > 0 && stock.buffers.posted.len() < stock.armed {
            stock.armed = 0;
            self.report(AsyncEventKind::SrqLimitReached, events);
        }
        Ok(Some(receiving))
    }

    /// Lends its buffers for messages that begin and end together, at most so many: those that [`take`](Self::take) tells nothing of.
    pub(crate) fn lend(&self) -> Option<(Lent<'_>, usize)> {
        let stock = self.stock.lock();
        if stock.failed {
            return None;
        }
        let most = match stock.armed {
            0 => usize::MAX,
            limit => stock.buffers.posted.len().saturating_sub(limit),
        };
        Some((Lent::Shared(stock), most))
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

    /// Removes one that nobody posts to and no queue pair takes from.
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
        let stock = Locked::new(Stock {
            buffers: PostedBuffers::new(posted, slots),
            armed: limit,
            failed: false,
        });
        entries.all.insert(Entry {
            srq: Arc::new(Srq { id, pd, stock }),
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

    /// Tells below how many unused buffers there shall be an event, once; 0 for never.
    pub fn arm(&self, id: SrqId, limit: usize) {
        if let Some(srq) = self.get(id) {
            srq.stock.lock().armed = limit;
        }
    }

    /// The limit that an event is still to be told of.
    pub fn armed(&self, id: SrqId) -> usize {
        self.get(id).map_or(0, |srq| srq.stock.lock().armed)
    }

    /// Goes on with another ring; what is in the former one comes first.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]: there is no memory for what is in the former one.
    pub fn resize(&self, id: SrqId, posted: Consumer<RecvRequest>) -> Result<(), OutOfMemory> {
        if let Some(srq) = self.get(id) {
            let mut stock = srq.stock.lock();
            stock.buffers.posted.reserve()?;
            stock.buffers.posted.resize(posted);
        }
        Ok(())
    }

    /// Nobody posts to it any more: it goes as soon as no queue pair takes from it.
    pub(crate) fn orphan(&self, id: SrqId) -> Option<PdId> {
        let mut entries = self.entries.lock();
        entries.find(id)?.orphaned = true;
        entries.remove_unused(id)
    }
}

#[cfg(feature = "fault-injection")]
impl SrqTable {
    /// The next buffer is one that nobody can have posted.
    pub fn inject_fault(&self, id: SrqId) {
        let endless = crate::model::Sge {
            stag: xwarp_iwarp::Stag(0),
            to: 0,
            len: u32::MAX,
        };
        if let Some(srq) = self.get(id) {
            let sgl = crate::model::Sgl::from_iter([endless; 2]);
            let endless = RecvRequest::new(crate::model::WrId(0), sgl);
            srq.stock.lock().buffers.posted.put_back(endless);
        }
    }
}

//! Protection domains (verbs draft §5.2): what may be used together.

use std::fmt;
use std::sync::Arc;

use xwarp_driver::SharedBytes;

use crate::control::Control;
use crate::cq::CompletionQueue;
use crate::engine::CqId;
use crate::error::{CreateError, DestroyError, Refused, RegisterError};
use crate::memory::{Access, MemoryRegion, MemoryWindow, RegionMemory, RegionSpec, RegionStag};
use crate::qp::QueuePair;
use crate::qp_config::QpConfig;
use crate::srq::{SharedReceiveQueue, SrqConfig};
use crate::user::Scope;

/// A protection domain's identity within its RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PdId(pub(crate) u32);

/// Regions and queue pairs of one domain can be used together; those of different domains cannot.
///
/// A region of the domain is there for all its queue pairs, so for all their peers that know its `STag`; one that only a single
/// connection needs is better made by [`QueuePair::allocate`] or [`QueuePair::register`] (RFC 5042 §2.2.5). While the domain has more
/// than one queue pair, connected or not, no peer may invalidate a region of it by a Send: others may still need it (RFC 5040
/// §8.1.1, RFC 5042 §6.4.5). Such a Send ends its connection.
///
/// Dropping it is sound at any time: nothing can be made in it any more, and what was made stays as it is. The domain itself goes with the
/// last of that.
pub struct ProtectionDomain {
    id: PdId,
    /// There is nothing left to deallocate.
    deallocated: bool,
    control: Arc<Control>,
}

impl ProtectionDomain {
    pub(crate) fn new(control: &Arc<Control>) -> Result<Self, CreateError> {
        let id = control.attempt(|engine| engine.domains().allocate())?;
        Ok(Self {
            id,
            deallocated: false,
            control: Arc::clone(control),
        })
    }

    /// Deallocate PD (verbs draft §9.2.2.2): refused while a queue pair, a shared receive queue, a region or a window is of it, whatever state
    /// that is in.
    pub fn deallocate(mut self) -> Result<(), Refused<Self, DestroyError>> {
        let id = self.id;
        let ended = self
            .control
            .attempt(move |engine| engine.domains().deallocate(id));
        self.deallocated = ended.is_ok();
        Refused::unless(ended, self)
    }

    /// Its identity in what is told of regions and windows.
    pub fn id(&self) -> PdId {
        self.id
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope::Domain(self.id)
    }

    pub(crate) fn is_of(&self, control: &Arc<Control>) -> bool {
        Arc::ptr_eq(&self.control, control)
    }

    /// Carves a zeroed region of `len` bytes out of the RNIC's region area and registers it for the domain's queue pairs.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, RegisterError> {
        let bytes = self.control.regions().allocate(len)?;
        self.register(bytes, access)
    }

    /// Registers memory that the application has already for the domain's queue pairs; several registrations of the same memory are
    /// independent.
    pub fn register(
        &self,
        bytes: SharedBytes,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.register_with(bytes, &RegionSpec::new(access))
    }

    /// The same with all that the verbs let choose (verbs draft §9.2.6.2): Tagged Offsets, key and Remote Access Flag; of memory in
    /// one piece, or of a [`PhysicalList`](crate::PhysicalList).
    pub fn register_with<M>(
        &self,
        memory: M,
        spec: &RegionSpec,
    ) -> Result<MemoryRegion<M>, RegisterError>
    where
        M: Clone + Into<RegionMemory>,
    {
        MemoryRegion::register(&self.control, self.scope(), memory, spec)
    }

    /// Allocates the `STag` of a region without memory (verbs draft §9.2.6.1), for lists of up to `entries` entries. Without
    /// `remote_access` no remote right can be given to it.
    pub fn allocate_stag(
        &self,
        entries: usize,
        remote_access: bool,
    ) -> Result<RegionStag, RegisterError> {
        RegionStag::allocate(&self.control, self.scope(), entries, remote_access)
    }

    /// Allocates a memory window (verbs draft §9.2.6.7), for queue pairs and regions of the domain.
    pub fn allocate_window(&self) -> Result<MemoryWindow, RegisterError> {
        MemoryWindow::allocate(&self.control, self.scope())
    }

    /// Creates a queue pair in state Idle whose sends and receives complete on the given queues, which may be the same.
    pub fn create_qp(
        &self,
        config: &QpConfig,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> Result<QueuePair, CreateError> {
        let cqs = self.cq_ids([send_cq, recv_cq])?;
        QueuePair::create(&self.control, self.id, config, cqs, None)
    }

    fn cq_ids(&self, cqs: [&CompletionQueue; 2]) -> Result<[CqId; 2], CreateError> {
        let ours = |cq: &&CompletionQueue| Arc::ptr_eq(cq.control(), &self.control);
        if !cqs.iter().all(ours) {
            return Err(CreateError::InvalidCq);
        }
        Ok(cqs.map(CompletionQueue::id))
    }

    /// The same, which takes its receive buffers from a shared queue for all its life; its receive depth is not looked at (verbs draft
    /// §6.3.4).
    pub fn create_qp_with_srq(
        &self,
        config: &QpConfig,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
    ) -> Result<QueuePair, CreateError> {
        let cqs = self.cq_ids([send_cq, recv_cq])?;
        if !Arc::ptr_eq(srq.control(), &self.control) {
            return Err(CreateError::InvalidSrq);
        }
        QueuePair::create(&self.control, self.id, config, cqs, Some(srq.id()))
    }

    /// Creates a shared receive queue (verbs draft §9.2.4.1), whose buffers are regions of this domain.
    pub fn create_srq(&self, config: SrqConfig) -> Result<SharedReceiveQueue, CreateError> {
        SharedReceiveQueue::create(&self.control, self.id, config)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({:?})", self.id)
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        let id = self.id;
        if self.deallocated {
            return;
        }
        // An engine that is gone has no domains.
        let _ = self.control.call(move |engine| engine.domains().orphan(id));
    }
}

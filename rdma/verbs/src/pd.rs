//! Protection domains (verbs draft §5.2): what may be used together.

use std::sync::Arc;

use xwarp_driver::SharedBytes;

use crate::control::Control;
use crate::cq::CompletionQueue;
use crate::error::{CreateError, RegisterError};
use crate::memory::{Access, MemoryRegion};
use crate::qp::{QpConfig, QueuePair};
use crate::user::Scope;

/// A protection domain's identity within its RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PdId(pub(crate) u32);

/// Regions and queue pairs of one domain can be used together; those of different domains cannot.
///
/// A region of the domain is there for all its queue pairs, so for all their peers that know its `STag`; one that only a single
/// connection needs is better made by [`QueuePair::allocate`] or [`QueuePair::register`] (RFC 5042 §2.2.5). While the domain has more
/// than one queue pair, connected or not, no peer may invalidate a region of it by a Send: others may still need it (RFC 5040
/// §8.1.1, RFC 5042 §6.4.5). Such a Send ends its connection.
pub struct ProtectionDomain {
    id: PdId,
    control: Arc<Control>,
}

impl ProtectionDomain {
    pub(crate) fn new(id: PdId, control: Arc<Control>) -> Self {
        Self { id, control }
    }

    /// Carves a zeroed region of `len` octets out of the RNIC's region area and registers it for the domain's queue pairs.
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
        MemoryRegion::register(&self.control, Scope::Domain(self.id), bytes, access)
    }

    /// Creates a queue pair in state Idle whose sends and receives complete on the given queues, which may be the same.
    pub fn create_qp(
        &self,
        config: &QpConfig,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> Result<QueuePair, CreateError> {
        for cq in [send_cq, recv_cq] {
            if !Arc::ptr_eq(cq.control(), &self.control) {
                return Err(CreateError::InvalidCq);
            }
        }
        QueuePair::create(&self.control, self.id, config, send_cq.id(), recv_cq.id())
    }
}

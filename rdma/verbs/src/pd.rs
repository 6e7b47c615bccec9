//! Protection domains (verbs draft §5.2): which regions, windows and queues may be used together.

use std::fmt;
use std::sync::Arc;

use crate::error::RefusedError;
use crate::runtime::control::Control;
use xwarp_rnic::model::PdId;
use xwarp_rnic::model::{CreateError, DestroyError, StagScope};

/// Regions and queue pairs of one domain can be used together; those of different domains cannot.
///
/// All queue pairs of the domain can use its regions, and so can all their peers that know the
/// `STag`. A region for a single connection is better made by
/// [`QueuePair::allocate`](crate::QueuePair::allocate) or
/// [`QueuePair::register`](crate::QueuePair::register) (RFC 5042 §2.2.5). While the domain has more
/// than one queue pair, connected or not, no peer may invalidate a region of it by a Send, since
/// other peers may still need it (RFC 5040 §8.1.1, RFC 5042 §6.4.5). Such a Send ends its
/// connection.
///
/// Dropping the handle is always allowed: existing objects are unaffected, and the domain ends with
/// the last of them.
pub struct ProtectionDomain {
    id: PdId,
    /// Set once the domain was deallocated: dropping the handle then releases nothing.
    deallocated: bool,
    control: Arc<Control>,
}

impl ProtectionDomain {
    pub(crate) fn new(control: &Arc<Control>) -> Result<Self, CreateError> {
        let id = control.attempt(|engine| engine.stags().domains().allocate())?;
        Ok(Self {
            id,
            deallocated: false,
            control: Arc::clone(control),
        })
    }

    /// Deallocate PD (verbs draft §9.2.2.2): refused while it has a queue pair, a shared receive
    /// queue, a region or a window, in any state.
    ///
    /// # Errors
    ///
    /// - [`DestroyError::DomainInUse`]: the domain has queue pairs, shared receive queues, regions
    ///   or windows.
    /// - [`DestroyError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn deallocate(mut self) -> Result<(), RefusedError<Self, DestroyError>> {
        let id = self.id;
        let ended = self
            .control
            .attempt(move |engine| engine.stags().domains().deallocate(id));
        self.deallocated = ended.is_ok();
        RefusedError::unless(ended, self)
    }

    /// Identity of the domain in attributes of regions and windows.
    pub fn id(&self) -> PdId {
        self.id
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub(crate) fn scope(&self) -> StagScope {
        StagScope::Domain(self.id)
    }

    pub(crate) fn is_of(&self, control: &Arc<Control>) -> bool {
        Arc::ptr_eq(&self.control, control)
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
        (self.control).release(move |engine| engine.stags().domains().orphan(id));
    }
}

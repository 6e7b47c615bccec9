//! Shared receive queues: the verbs that create and destroy them (verbs draft §9.2.4).

use rtrb::Consumer;

use super::Engine;
use crate::model::{CreateError, DestroyError, PdId, RecvRequest, SrqId};
use crate::queues::SlotKey;

impl Engine {
    /// Create S-RQ, in a protection domain.
    pub fn create_srq(
        &mut self,
        pd: PdId,
        posted: Consumer<RecvRequest>,
        limit: usize,
    ) -> Result<(SrqId, SlotKey), CreateError> {
        let created = self.srqs().create(pd, posted, limit)?;
        self.stags().domains().join(pd);
        Ok(created)
    }

    /// Destroy S-RQ. Refused while queue pairs take from it. Posted buffers are dropped with it.
    pub fn destroy_srq(&mut self, id: SrqId) -> Result<(), DestroyError> {
        if self.srqs().is_used(id) {
            return Err(DestroyError::InUse);
        }
        self.orphan_srq(id);
        Ok(())
    }

    /// The application has dropped a shared receive queue.
    pub fn orphan_srq(&mut self, id: SrqId) {
        let gone = self.srqs().orphan(id);
        self.leave_domain(gone);
    }

    /// A queue pair that took buffers from it is destroyed.
    pub(super) fn leave_srq(&mut self, id: SrqId) {
        let gone = self.srqs().leave(id);
        self.leave_domain(gone);
    }

    fn leave_domain(&mut self, of: Option<PdId>) {
        if let Some(pd) = of {
            self.stags().domains().leave(pd);
        }
    }
}

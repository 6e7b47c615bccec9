//! Fault injection for tests: defects of this program, which cannot be provoked otherwise.

use super::Rnic;
use xwarp_rnic::model::{QpId, RnicUnavailable, SrqId};

#[doc(hidden)]
impl Rnic {
    /// Breaks the queue pair's next operation: a work request that begins, or a segment that is
    /// received.
    pub fn inject_qp_fault(&self, qp: QpId) -> Result<(), RnicUnavailable> {
        self.control()
            .call_each(move |engine| engine.inject_qp_fault(qp))
            .map(drop)
    }

    /// Makes the next buffer of the queue one that no application can have posted.
    pub fn inject_srq_fault(&self, srq: SrqId) -> Result<(), RnicUnavailable> {
        let inject = move |engine: &mut xwarp_rnic::engine::Engine| engine.srqs().inject_fault(srq);
        self.control().call(inject)
    }

    /// Makes the engine panic.
    pub fn inject_panic(&self) -> Result<(), RnicUnavailable> {
        self.control().call(|_| panic!("a test wants it so"))
    }
}

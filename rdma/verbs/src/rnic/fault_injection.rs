//! Failures that only tests can ask for: what they are the cause of must never happen otherwise.

use super::Rnic;
use xwarp_rnic::model::{QpId, RnicUnavailable, SrqId};

#[doc(hidden)]
impl Rnic {
    /// What the queue pair does next finds it broken: a work request that begins, or a segment that
    /// is received.
    pub fn inject_qp_fault(&self, qp: QpId) -> Result<(), RnicUnavailable> {
        self.control()
            .call_each(move |engine| engine.inject_qp_fault(qp))
            .map(drop)
    }

    /// The buffer that is taken next from the queue is none that can have been posted.
    pub fn inject_srq_fault(&self, srq: SrqId) -> Result<(), RnicUnavailable> {
        let inject = move |engine: &mut xwarp_rnic::engine::Engine| engine.srqs().inject_fault(srq);
        self.control().call(inject)
    }

    /// The engine panics.
    pub fn inject_panic(&self) -> Result<(), RnicUnavailable> {
        self.control().call(|_| panic!("a test wants it so"))
    }
}

//! Catastrophic errors (verbs draft §8.3.3, figures 24 and 25): the engine finds a state that only
//! a defect of this library can have caused. It ends only the broken object: a queue pair, a shared
//! receive queue, or, after a panic, the RNIC (decision record rnic/0022).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Engine, EngineState};
use crate::model::{AsyncEventKind, EventResource};
use crate::qp::QpContext;

impl Engine {
    /// RNIC Catastrophic Failure after a panic of the engine. Ends all connections, and sends their
    /// Terminates if the engine still can.
    pub fn on_panic(&mut self) {
        let was = std::mem::replace(&mut self.state, EngineState::Ending);
        let reason = "the engine has panicked";
        let ending = self.ending();
        ending.note_panic();
        if ending.begin_failure() && was == EngineState::Running {
            let reason = reason.to_owned();
            self.device
                .report(EventResource::Rnic, AsyncEventKind::Failed { reason });
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.end_connections();
            self.cease(reason);
        }));
        if was != EngineState::Running || result.is_err() {
            log::error!("the engine has panicked again, and ends");
            self.state = EngineState::Failed;
            self.cease(reason);
        }
        self.spread_failure();
    }

    /// Ends this engine's connections after the failure of another engine of the RNIC.
    pub(super) fn follow_failure(&mut self) {
        let Some(reason) = self
            .failure()
            .filter(|_| self.state == EngineState::Running)
        else {
            return;
        };
        if self.ending().has_panicked() {
            self.state = EngineState::Ending;
            self.end_connections();
            self.cease(&reason);
        } else {
            self.lose_interface(&reason);
        }
    }

    /// Ends all connections because the RNIC has failed.
    fn end_connections(&mut self) {
        for key in self.qps.slots() {
            self.with_qp(key, QpContext::end_with_rnic);
        }
    }
}

#[cfg(feature = "fault-injection")]
impl Engine {
    /// Makes the next operation of the queue pair find it broken.
    pub fn inject_qp_fault(&mut self, qp: crate::model::QpId) {
        if let Some(qp) = self.qps.get_mut(qp.slot()).filter(|it| it.id() == qp) {
            qp.inject_fault();
        }
    }
}

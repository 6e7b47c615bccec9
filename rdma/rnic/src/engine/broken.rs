//! Catastrophic errors (verbs draft §8.3.3, figures 24 and 25): the engine finds that something is not as it must be. Only a defect of this
//! library can be the reason, and the damage is kept to what is known to be broken: a work request's queue pair, a shared receive queue,
//! or, after a panic, the RNIC.

use std::panic::{AssertUnwindSafe, catch_unwind};

use xwarp_iwarp::{TermCode, Terminate};

use super::fault::CATASTROPHIC_STREAM;
use super::{Engine, Health};
use crate::model::{AsyncEventKind, CompletionStatus, EventResource, QpState};
use crate::qp::{Broken, QpContext, Unavailable};

/// RDMAP remote operation: catastrophic error, global (RFC 5040 §4.8).
const CATASTROPHIC_GLOBAL: TermCode = TermCode::rdmap_operation(8);

impl Engine {
    /// Local QP Catastrophic Error while the newest begun work request was processed, whose completion tells.
    pub(super) fn fail_broken_send(&mut self, key: usize, Broken(reason): Broken) {
        log::error!("queue pair {key} is broken: {reason}");
        let terminate = Terminate::with_code(CATASTROPHIC_STREAM);
        let has_begun = self.qps.get(key).is_some_and(|qp| !qp.begun.is_empty());
        if has_begun {
            let culprit = Some(CompletionStatus::LocalCatastrophic);
            self.fail_unreported(key, terminate, culprit);
        } else {
            self.enter_terminate(key, Some(terminate), None);
            self.report_for(key, AsyncEventKind::QpCatastrophic { reason });
        }
    }

    /// The same while something was received: the completion of the receive tells, if there is one.
    pub(super) fn fail_broken_receive(&mut self, key: usize, Broken(reason): Broken) {
        log::error!("queue pair {key} is broken: {reason}");
        let terminate = Terminate::with_code(CATASTROPHIC_STREAM);
        let has_taken = (self.qps.get(key)).is_some_and(|qp| qp.receives.current().is_some());
        if has_taken {
            self.complete_receive(key, CompletionStatus::LocalCatastrophic);
            self.fail_unreported(key, terminate, None);
        } else {
            self.enter_terminate(key, Some(terminate), None);
            self.report_for(key, AsyncEventKind::QpCatastrophic { reason });
        }
    }

    /// A message has found no buffer. False if there simply was none: else it is no fault of the peer's.
    pub(super) fn fail_source(&mut self, key: usize) -> bool {
        let why = (self.qps.get_mut(key)).and_then(|qp| qp.receives.take_unavailable());
        match why {
            None => return false,
            Some(Unavailable::Malformed(broken)) => self.fail_broken_receive(key, broken),
            Some(Unavailable::SrqFailed) => {
                let terminate = Terminate::with_code(CATASTROPHIC_STREAM);
                self.enter_terminate(key, Some(terminate), None);
                self.report_for(key, AsyncEventKind::SrqError);
            }
        }
        true
    }

    /// The engine has panicked, wherever that was: RNIC Catastrophic Failure. Peers are told, if that much still works.
    pub fn on_panic(&mut self) {
        let was = std::mem::replace(&mut self.health, Health::Ending);
        let reason = "the engine has panicked";
        if was == Health::Sound {
            let reason = reason.to_owned();
            self.device
                .report(EventResource::Rnic, AsyncEventKind::Failed { reason });
        }
        let told = catch_unwind(AssertUnwindSafe(|| {
            self.end_connections();
            self.cease(reason);
        }));
        if was != Health::Sound || told.is_err() {
            log::error!("the engine has panicked again, and ends");
            self.health = Health::Failed;
            self.cease(reason);
        }
    }

    /// Ends all connections with the RNIC.
    fn end_connections(&mut self) {
        let keys: Vec<usize> = self.qps.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.lose_start(key);
            match self.qps.get(key).map(QpContext::state) {
                Some(QpState::Rts) if self.may_send(key) => {
                    let terminate = Terminate::with_code(CATASTROPHIC_GLOBAL);
                    self.enter_terminate(key, Some(terminate), None);
                }
                Some(QpState::Rts | QpState::Closing) => self.lose_silently(key),
                Some(QpState::Idle | QpState::Terminate | QpState::Error) | None => {}
            }
            self.watch(key);
        }
    }
}

#[cfg(feature = "fault-injection")]
impl Engine {
    /// What the queue pair does next finds it broken.
    pub fn inject_qp_fault(&mut self, qp: crate::model::QpId) {
        if let Some(qp) = self.qps.get_mut(qp.slot()).filter(|it| it.id == qp) {
            qp.injected.inject();
        }
    }
}

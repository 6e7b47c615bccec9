//! Queue pairs that move from one engine of their RNIC to another, and notifications for moved
//! queue pairs.

use super::Engine;
use crate::model::{CqId, QpId};
use crate::qp::QpContext;
use crate::queues::CqPlace;

/// A queue pair on its way from one engine to another.
pub struct MovingQp {
    /// `None` once the queue pair has arrived.
    qp: Option<Box<QpContext>>,
    /// Fill level of its completion queues on the former engine, if they may hold completions of
    /// the queue pair.
    left: Vec<(CqId, CqPlace)>,
}

impl Drop for MovingQp {
    /// Runs with a queue pair inside if its new engine no longer exists.
    fn drop(&mut self) {
        if let Some(qp) = &mut self.qp {
            qp.show_engine_gone();
        }
    }
}

impl Engine {
    /// Removes a queue pair that is Idle and not connecting, to be moved to engine number `to`.
    /// `None` in any other state.
    pub fn take_out(&mut self, id: QpId, to: usize) -> Option<MovingQp> {
        self.qp(id).filter(|qp| qp.is_unconnected())?;
        let mut qp = self.qps.remove(id.slot())?;
        qp.handle_left();
        self.moved.insert(id.slot(), to);
        let mut left = Vec::new();
        if qp.has_past() {
            let cqs = &mut self.device.cqs;
            let places = qp.cqs().map(|cq| cqs.place(cq).map(|place| (cq, place)));
            left.extend(places.into_iter().flatten());
        }
        let qp = Some(qp);
        Some(MovingQp { qp, left })
    }

    /// Adds a queue pair that was removed from another engine. The engine finds work that was
    /// posted in the meantime.
    pub fn enter(&mut self, mut moving: MovingQp) {
        let Some(qp) = moving.qp.take() else {
            return;
        };
        for (cq, first) in moving.left.drain(..) {
            self.device.cqs.follow(cq, first);
        }
        let (slot, index) = (qp.id().slot(), self.index);
        self.moved.remove(&slot);
        self.qps.insert(qp);
        self.with_qp(slot, |qp, device| qp.handle_entered(index, device));
    }

    /// Handles slots from the doorbell without a queue pair on this engine.
    #[cold]
    pub(super) fn take_strays(&mut self) {
        for stray in std::mem::take(&mut self.strays) {
            self.on_stray(stray);
        }
    }

    fn on_stray(&mut self, slot: usize) {
        if self.doorbell.is_failure(slot) {
            self.follow_failure();
        } else if let Some(to) = self.moved.get(&slot)
            && let Some(doorbell) = self.shared_tables.doorbells().get(*to)
        {
            // The poster did not know that the queue pair had moved.
            doorbell.notify(slot);
        }
    }

    /// Notifies the other engines that the RNIC has failed.
    pub(super) fn spread_failure(&self) {
        for (index, doorbell) in self.shared_tables.doorbells().iter().enumerate() {
            if index != self.index {
                doorbell.notify_failure();
            }
        }
    }
}

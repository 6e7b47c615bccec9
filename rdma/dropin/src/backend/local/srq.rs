//! Shared receive queues: their sizes and limits.

use std::sync::{Arc, Weak};

use nix::errno::Errno;
use xwarp::{ProtectionDomain, SharedReceiveQueue, SrqConfig};

use super::errors::Numbered;
use super::owned::Owned;
use super::poll::end_queue;
use super::post::Srq;
use crate::backend::{EventTarget, SrqChange, SrqSizes};
use crate::entry::Result;
use crate::lock::Lock;

impl Owned<ProtectionDomain> {
    pub(crate) fn create_srq(&self, sizes: SrqSizes) -> Result<Arc<Srq>> {
        let rnic = self.rnic()?;
        let config = SrqConfig::default()
            .depth(sizes.depth)
            .sge(sizes.sge)
            .limit(sizes.limit);
        let queue = self.with(|pd| pd.create_srq(config).map_err(|error| error.errno()))?;
        let srq = Arc::new(Srq {
            id: queue.id(),
            queue: Lock::new(Some(queue)),
            rnic: rnic.reference(),
        });
        rnic.objects.add(&srq);
        Ok(srq)
    }
}

impl Srq {
    /// Reports the queue's events to `target` from now on.
    pub(crate) fn report_events(&self, target: Weak<dyn EventTarget>) -> Result<()> {
        self.rnic.get()?.registry.report_srq(self.id, target);
        Ok(())
    }

    /// Calls a verb of the queue. EINVAL once it is destroyed.
    pub(super) fn with<R>(
        &self,
        verb: impl FnOnce(&mut SharedReceiveQueue) -> Result<R>,
    ) -> Result<R> {
        verb(self.queue.lock().as_mut().ok_or(Errno::EINVAL)?)
    }

    /// Makes all requested changes, or none.
    pub(crate) fn modify(&self, change: SrqChange) -> Result<()> {
        let _rnic = self.rnic.get()?;
        self.with(|srq| modify(srq, change))
    }

    pub(crate) fn query(&self) -> Result<SrqSizes> {
        let _rnic = self.rnic.get()?;
        self.with(|srq| query(srq))
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        self.rnic.end(|rnic| {
            end_queue(&self.queue, SharedReceiveQueue::destroy)?;
            rnic.registry.remove_srq(self.id);
            Ok(())
        })
    }
}

/// Attributes of a shared receive queue.
fn query(srq: &SharedReceiveQueue) -> Result<SrqSizes> {
    let info = srq.query().map_err(|error| error.errno())?;
    Ok(SrqSizes {
        depth: info.depth,
        sge: info.sge,
        // The limit reads 0 once it was reached, until it is armed again.
        limit: if info.armed { info.limit } else { 0 },
    })
}

/// Changes depth and limit. If either is impossible, both stay as they were.
fn modify(srq: &mut SharedReceiveQueue, change: SrqChange) -> Result<()> {
    let before = query(srq)?;
    let depth = change.depth.unwrap_or(before.depth);
    if change.limit.is_some_and(|limit| limit > depth) {
        return Err(Errno::EINVAL);
    }
    if depth == before.depth {
        return change.limit.map_or(Ok(()), |limit| arm(srq, limit));
    }
    // A depth below the armed limit would be refused, so a new limit is set first then.
    let first = change.limit.filter(|_| before.limit > depth);
    if let Some(limit) = first {
        arm(srq, limit)?;
    }
    if let Err(error) = srq.resize(depth) {
        if first.is_some() {
            arm(srq, before.limit)?;
        }
        return Err(error.errno());
    }
    change
        .limit
        .filter(|_| first.is_none())
        .map_or(Ok(()), |limit| arm(srq, limit))
}

fn arm(srq: &mut SharedReceiveQueue, limit: usize) -> Result<()> {
    srq.arm_limit(limit).map_err(|error| error.errno())
}

//! Sizes and limits of shared receive queues.

use nix::errno::Errno;
use xwarp::SharedReceiveQueue;

use super::errors::Numbered;
use crate::backend::{SrqChange, SrqSizes};
use crate::entry::Result;

/// What a shared receive queue has.
pub(super) fn query(srq: &SharedReceiveQueue) -> Result<SrqSizes> {
    let info = srq.query().map_err(|error| error.errno())?;
    Ok(SrqSizes {
        depth: info.depth,
        sge: info.sge,
        // The limit reads 0 once it was reached, until it is armed anew.
        limit: if info.armed { info.limit } else { 0 },
    })
}

/// Changes depth and limit. If one is not possible, both stay as they were.
pub(super) fn modify(srq: &mut SharedReceiveQueue, change: SrqChange) -> Result<()> {
    let before = query(srq)?;
    let depth = change.depth.unwrap_or(before.depth);
    if change.limit.is_some_and(|limit| limit > depth) {
        return Err(Errno::EINVAL);
    }
    if depth == before.depth {
        return change.limit.map_or(Ok(()), |limit| arm(srq, limit));
    }
    // A depth below the limit that is armed would be refused, so another limit comes first then.
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

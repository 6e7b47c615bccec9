//! Rights that remote accesses need.
//!
//! An Atomic Operation needs `REMOTE_ATOMIC` alone: that right neither needs nor implies another
//! remote right, so that an application which grants Reads and Writes does not grant Atomics with
//! them. The sink of a Read needs the remote right to write, as the peer writes it (verbs draft
//! §7.5). With `QpConfig::local_read_sinks` the Read itself authorises its response, since programs
//! for InfiniBand register sinks with the local right only.

use xwarp_iwarp::{AccessError, AccessKind};

use crate::model::{Access, QpAccess, QpIdentity};

/// The right that a queue pair's peer needs.
#[inline]
pub(super) fn right_for(user: QpIdentity, access: AccessKind) -> Result<Access, AccessError> {
    let right = match access {
        AccessKind::RemoteAtomic => Access::REMOTE_ATOMIC,
        AccessKind::RemoteRead => Access::REMOTE_READ,
        // What is placed is the next part of what our oldest Read has asked for, so that the Read
        // can be the peer's right.
        AccessKind::ReadSink if user.has(QpAccess::LOCAL_SINKS) => Access::LOCAL_WRITE,
        // The sink of a Read is written by the peer like the target of a Write (verbs draft §7.5,
        // verbs.md A37).
        AccessKind::RemoteWrite | AccessKind::ReadSink => Access::REMOTE_WRITE,
    };
    // Where the peer may not read there is no request that could ask for it.
    if right == Access::REMOTE_WRITE && !user.has(QpAccess::INBOUND_WRITE) {
        return Err(AccessError::Rights);
    }
    Ok(right)
}

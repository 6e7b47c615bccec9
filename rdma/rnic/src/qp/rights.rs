//! Rights that remote accesses need.
//!
//! An Atomic Operation needs `REMOTE_ATOMIC` alone: that right neither needs nor implies another
//! remote right, so an application that grants Reads and Writes does not grant Atomics with them.
//! The sink of a Read needs the remote right to write, as the peer writes it (verbs draft §7.5).
//! With `QpConfig::local_read_sinks` the Read itself authorises its response, since programs for
//! InfiniBand register sinks with the local right only.

use xwarp_iwarp::{AccessError, AccessKind};

use crate::model::{Access, QpAccess, QpIdentity};

/// The right that a queue pair's peer needs.
#[inline]
pub(super) fn right_for(user: QpIdentity, access: AccessKind) -> Result<Access, AccessError> {
    let right = match access {
        AccessKind::RemoteAtomic => Access::REMOTE_ATOMIC,
        AccessKind::RemoteRead => Access::REMOTE_READ,
        // The response is the next part of what the oldest Read of this side has requested, so the
        // Read can grant the peer's right.
        AccessKind::ReadSink if user.has(QpAccess::LOCAL_SINKS) => Access::LOCAL_WRITE,
        // The peer writes the sink of a Read like the target of a Write (verbs draft §7.5, verbs.md
        // A37).
        AccessKind::RemoteWrite | AccessKind::ReadSink => Access::REMOTE_WRITE,
    };
    let inbound = match right {
        Access::REMOTE_READ => QpAccess::INBOUND_READ,
        Access::REMOTE_WRITE => QpAccess::INBOUND_WRITE,
        Access::REMOTE_ATOMIC => QpAccess::INBOUND_ATOMIC,
        _ => QpAccess::empty(),
    };
    user.has(inbound)
        .then_some(right)
        .ok_or(AccessError::Rights)
}

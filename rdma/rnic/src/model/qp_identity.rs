//! Queue pairs as users of regions, and the queue pairs that may use a region (RFC 5041 §8.2).
//!
//! A region that a protection domain registers belongs to the domain. A region that a queue pair
//! registers belongs to this queue pair alone, through all of its connections. A peer may
//! invalidate a region of its queue pair. It may invalidate a region of the domain only while the
//! domain has no other queue pair (RFC 5040 §8.1.1), connected or not.

use bitflags::bitflags;

use super::ids::PdId;

bitflags! {
    /// Memory operations that a queue pair allows, fixed when it is created (verbs draft §6.1.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QpAccess: u8 {
        /// It is privileged: it may use `STag` 0 and Fast-Register.
        const PHYSICAL = 1;
        /// It may bind windows.
        const BIND_WINDOWS = 2;
        /// Its peer may read.
        const INBOUND_READ = 4;
        /// Its peer may write, and place Read Responses.
        const INBOUND_WRITE = 8;
        /// Its peer may place Read Responses with this side's local right to write.
        const LOCAL_SINKS = 16;
    }
}

/// Identity of a queue pair in the `STag` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpIdentity {
    pd: PdId,
    access: QpAccess,
    /// Never used twice in the RNIC.
    serial: u64,
}

impl QpIdentity {
    /// The queue pair with this serial number, which the RNIC never uses twice.
    pub(crate) fn new(pd: PdId, access: QpAccess, serial: u64) -> Self {
        Self { pd, access, serial }
    }

    pub(crate) fn pd(self) -> PdId {
        self.pd
    }

    /// True if the queue pair has all of these access flags.
    pub fn has(self, access: QpAccess) -> bool {
        self.access.contains(access)
    }

    /// Whether its peer may access any memory.
    pub(crate) fn is_open(self) -> bool {
        (self.access).intersects(QpAccess::INBOUND_READ | QpAccess::INBOUND_WRITE)
    }

    /// The same queue pair, for a buffer that belongs to another protection domain.
    pub(crate) fn in_domain(self, pd: PdId) -> Self {
        Self { pd, ..self }
    }

    pub(crate) fn serial(self) -> u64 {
        self.serial
    }
}

/// Queue pairs that may use a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagScope {
    /// All queue pairs of a protection domain.
    Domain(PdId),
    /// Only this queue pair.
    QueuePair(QpIdentity),
}

impl StagScope {
    pub(crate) fn admits(self, user: QpIdentity) -> bool {
        match self {
            Self::Domain(pd) => pd == user.pd,
            Self::QueuePair(only) => only == user,
        }
    }

    /// Its protection domain.
    pub(crate) fn pd(self) -> PdId {
        match self {
            Self::Domain(pd) => pd,
            Self::QueuePair(user) => user.pd,
        }
    }
}

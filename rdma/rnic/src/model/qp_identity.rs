//! Queue pairs as users of regions, and which of them a region is there for (RFC 5041 §8.2).
//!
//! A region that a protection domain registers belongs to the domain; one that a queue pair
//! registers belongs to this queue pair alone, through all of its connections. A peer may
//! invalidate a region of its queue pair. It may invalidate one of the domain only while the domain
//! has no other queue pair (RFC 5040 §8.1.1), connected or not.

use bitflags::bitflags;

use super::ids::PdId;

bitflags! {
    /// What a queue pair may do with memory, fixed when it is created (verbs draft §6.1.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QpAccess: u8 {
        /// Use `STag` 0 and Fast-Register: it is privileged.
        const PHYSICAL = 1;
        /// Bind windows.
        const BIND_WINDOWS = 2;
        /// Have its peer read.
        const INBOUND_READ = 4;
        /// Have its peer write, and place Read Responses.
        const INBOUND_WRITE = 8;
        /// Place Read Responses where this side alone may write, too.
        const LOCAL_SINKS = 16;
    }
}

/// A queue pair in the eyes of the `STag` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpIdentity {
    pd: PdId,
    access: QpAccess,
    /// No other queue pair of the RNIC ever has it.
    serial: u64,
}

impl QpIdentity {
    /// The queue pair with this serial number, which no other of the RNIC ever has.
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

    /// May its peer use any memory?
    pub(crate) fn is_open(self) -> bool {
        (self.access).intersects(QpAccess::INBOUND_READ | QpAccess::INBOUND_WRITE)
    }

    /// The same queue pair, for a buffer that is judged by another protection domain.
    pub(crate) fn in_domain(self, pd: PdId) -> Self {
        Self { pd, ..self }
    }

    pub(crate) fn serial(self) -> u64 {
        self.serial
    }
}

/// Which queue pairs may use a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagScope {
    /// All of a protection domain.
    Domain(PdId),
    /// This one.
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

//! Queue pairs as users of regions, and the queue pairs that may use a region (RFC 5041 §8.2).
//!
//! A region that a protection domain registers belongs to the domain. A region that a queue pair
//! registers belongs to this queue pair alone, through all of its connections. A peer may
//! invalidate a region of its queue pair. It may invalidate a region of the domain only while the
//! domain has no other queue pair (RFC 5040 §8.1.1), connected or not.

use bitflags::bitflags;

use super::Access;
use super::ids::PdId;

bitflags! {
    /// Memory operations that a queue pair allows. What its peer may do can be modified, as on
    /// InfiniBand; the verbs draft fixes all when the queue pair is created (§6.1.3).
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
        /// Its peer may use Atomic Operations.
        const INBOUND_ATOMIC = 32;
    }
}

impl QpAccess {
    /// What the peer may do.
    const INBOUND: Self = Self::INBOUND_READ
        .union(Self::INBOUND_WRITE)
        .union(Self::INBOUND_ATOMIC);

    /// The same for this side, with the remote rights of `rights` for the peer.
    fn with_inbound(self, rights: Access) -> Self {
        let mut changed = self.difference(Self::INBOUND);
        for (right, access) in [
            (Access::REMOTE_READ, Self::INBOUND_READ),
            (Access::REMOTE_WRITE, Self::INBOUND_WRITE),
            (Access::REMOTE_ATOMIC, Self::INBOUND_ATOMIC),
        ] {
            changed.set(access, rights.contains(right));
        }
        changed
    }
}

/// Identity of a queue pair in the `STag` table, and what it allows now.
#[derive(Clone, Copy, Debug)]
pub struct QpIdentity {
    pd: PdId,
    access: QpAccess,
    /// Never used twice in the RNIC.
    serial: u64,
}

/// Two identities of one queue pair are equal, also if its rights have changed in between.
impl PartialEq for QpIdentity {
    fn eq(&self, other: &Self) -> bool {
        (self.pd, self.serial) == (other.pd, other.serial)
    }
}

impl Eq for QpIdentity {}

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
        self.access.intersects(QpAccess::INBOUND)
    }

    /// The same queue pair, whose peer may do what the remote rights of `rights` say.
    pub(crate) fn with_inbound(self, rights: Access) -> Self {
        Self {
            access: self.access.with_inbound(rights),
            ..self
        }
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

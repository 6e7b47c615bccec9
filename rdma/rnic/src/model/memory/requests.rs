//! Memory work requests: Bind, Fast-Register, Invalidate (verbs draft §9.3.1.1, figure 27).

use xwarp_iwarp::Stag;

use super::access::Access;
use super::list::PhysicalList;
use super::spec::{Addressing, RegionSpec};
use crate::model::sge::RemoteAddress;

/// Binds a memory window: only the peer of the queue pair that it is posted to may then use a part
/// of a region (verbs draft §7.10.2). Nothing is sent. Work that is posted after it begins when the
/// Bind has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window's index, and the key that it will have.
    pub window: Stag,
    /// The region, which is not zero-based, and has [`Access::BIND_WINDOWS`].
    pub region: Stag,
    /// Tagged Offset, in the region, of the window's first byte.
    pub to: u64,
    /// Bytes of the region that the window covers.
    pub len: u64,
    /// Whether the window's first byte has Tagged Offset 0 rather than the one that it has in the
    /// region.
    pub zero_based: bool,
    /// [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`] or both. The region needs the local right
    /// of each, but no remote one.
    pub access: Access,
}

impl Bind {
    /// Sets Tagged Offsets from 0 on.
    #[must_use]
    pub fn zero_based(mut self) -> Self {
        self.zero_based = true;
        self
    }

    /// The place of byte `offset` of the window, for the peer to name.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            stag: self.window,
            to: self.base().wrapping_add(offset),
        }
    }

    /// Tagged Offset of the window's first byte.
    pub(crate) fn base(&self) -> u64 {
        if self.zero_based { 0 } else { self.to }
    }
}

/// Registers memory with an Invalid `STag` of a region (verbs draft §7.3.2.5), on a privileged
/// queue pair. Nothing is sent; work that is posted behind it begins when it has taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastRegister {
    /// The region's index, and the key that it will have.
    pub stag: Stag,
    /// The memory, as a list of physical buffers.
    pub list: PhysicalList,
    /// What may be done with it; remote rights need the `STag`'s Remote Access Flag.
    pub access: Access,
    /// Where its Tagged Offsets begin.
    pub addressing: Addressing,
}

impl FastRegister {
    /// What the region will be, if its Remote Access Flag is this.
    pub(crate) fn spec(&self, remote_access: bool) -> RegionSpec {
        RegionSpec {
            access: self.access,
            addressing: self.addressing,
            key: Some(self.stag.key()),
            remote_access,
        }
    }
}

/// A change of a region or window, in its turn with the other work of a send queue. Work that is
/// posted after it begins when it has taken effect (verbs draft §8.1.2.3, §8.2.2.1). A change that
/// is refused ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryOperation {
    /// Binds a memory window.
    Bind(Bind),
    /// Registers memory with an Invalid `STag`.
    FastRegister(Box<FastRegister>),
    /// Invalidates the `STag` of a region that is not shared and has no windows, or of a window.
    /// One that is Invalid already stays so.
    Invalidate {
        /// Which.
        stag: Stag,
        /// Waits until all earlier work of this queue pair has completed (Local Fence, verbs draft
        /// §8.2.2.2). Otherwise earlier Reads into that memory may be under way, and then fail.
        local_fence: bool,
    },
}

impl MemoryOperation {
    /// Does it wait for all earlier work?
    pub(crate) fn has_local_fence(&self) -> bool {
        match self {
            Self::Invalidate { local_fence, .. } => *local_fence,
            Self::Bind(_) | Self::FastRegister(_) => false,
        }
    }

    /// Is it about the index that no region or window has?
    pub(crate) fn names_index_zero(&self) -> bool {
        match self {
            Self::Bind(bind) => bind.window.index() == 0 || bind.region.index() == 0,
            Self::FastRegister(request) => request.stag.index() == 0,
            Self::Invalidate { stag, .. } => stag.index() == 0,
        }
    }
}

//! Memory work requests: Bind, Fast-Register, Invalidate (verbs draft §9.3.1.1, figure 27).

use xwarp_iwarp::Stag;

use super::access::Access;
use super::list::PhysicalList;
use super::spec::{Addressing, RegionSpec};
use crate::model::sge::RemoteAddress;

/// Binds a memory window: only the peer of the queue pair that the request is posted to may then
/// use the bound part of the region (verbs draft §7.10.2). Nothing is sent. Work that is posted
/// after the Bind begins when the Bind has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window's index, with its new key.
    pub window: Stag,
    /// The region, which is not zero-based, and has [`Access::BIND_WINDOWS`].
    pub region: Stag,
    /// Tagged Offset of the window's first byte in the region.
    pub to: u64,
    /// Length of the window in bytes.
    pub len: u64,
    /// Whether the window's first byte has Tagged Offset 0, instead of its Tagged Offset in the
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

    /// The address of byte `offset` of the window, for the peer.
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
/// queue pair. Nothing is sent. Work that is posted after it begins when it has taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastRegister {
    /// The region's index, with its new key.
    pub stag: Stag,
    /// The memory, as a list of physical buffers.
    pub list: PhysicalList,
    /// Access rights; remote rights need the `STag`'s Remote Access Flag.
    pub access: Access,
    /// First Tagged Offset.
    pub addressing: Addressing,
}

impl FastRegister {
    /// The attributes of the region, given its Remote Access Flag.
    pub(crate) fn spec(&self, remote_access: bool) -> RegionSpec {
        RegionSpec {
            access: self.access,
            addressing: self.addressing,
            key: Some(self.stag.key()),
            remote_access,
        }
    }
}

/// A change of a region or window, executed in the order of the send queue. Work that is posted
/// after it begins when it has taken effect (verbs draft §8.1.2.3, §8.2.2.1). A change that is
/// refused ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryOperation {
    /// Binds a memory window.
    Bind(Bind),
    /// Registers memory with an Invalid `STag`.
    FastRegister(Box<FastRegister>),
    /// Invalidates the `STag` of a region that is not shared and has no windows, or of a window. An
    /// Invalid `STag` stays Invalid.
    Invalidate {
        /// The `STag` to invalidate.
        stag: Stag,
        /// Waits until all earlier work of this queue pair has completed (Local Fence, verbs draft
        /// §8.2.2.2). Otherwise earlier Reads into that memory may be in progress, and then fail.
        local_fence: bool,
    },
}

impl MemoryOperation {
    /// Whether the operation waits for all earlier work.
    pub(crate) fn has_local_fence(&self) -> bool {
        match self {
            Self::Invalidate { local_fence, .. } => *local_fence,
            Self::Bind(_) | Self::FastRegister(_) => false,
        }
    }

    /// Whether the operation names index 0, which no region or window has.
    pub(crate) fn names_index_zero(&self) -> bool {
        match self {
            Self::Bind(bind) => bind.window.index() == 0 || bind.region.index() == 0,
            Self::FastRegister(request) => request.stag.index() == 0,
            Self::Invalidate { stag, .. } => stag.index() == 0,
        }
    }
}

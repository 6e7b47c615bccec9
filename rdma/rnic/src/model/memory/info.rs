//! Attributes of regions and windows, as their queries return them (verbs draft §9.2.6.3,
//! §9.2.6.8).

use super::access::Access;
use crate::model::ids::PdId;

/// Output of Query Memory Region (verbs draft §9.2.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionInfo {
    /// The low byte of its `STag`; `None` while it is Invalid.
    pub key: Option<u8>,
    /// The Remote Access Flag.
    pub remote_access: bool,
    /// The protection domain that it belongs to.
    pub pd: PdId,
    /// Whether the region shares its memory with another region, or once did.
    pub shared: bool,
    /// Entries that its list may have. For memory in one piece: pages of 4 KiB.
    pub entries: usize,
    /// Access rights. An Invalid region keeps the last ones.
    pub access: Access,
}

/// Output of Query Memory Window (verbs draft §9.2.6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowInfo {
    /// The low byte of its `STag`; `None` while it is Invalid.
    pub key: Option<u8>,
    /// The protection domain that it belongs to.
    pub pd: PdId,
    /// Its rights; none while it is Invalid.
    pub access: Access,
}

impl RegionInfo {
    /// Whether its `STag` is in state Valid.
    pub fn is_valid(&self) -> bool {
        self.key.is_some()
    }
}

impl WindowInfo {
    /// Whether its `STag` is in state Valid, so that the window is bound.
    pub fn is_valid(&self) -> bool {
        self.key.is_some()
    }
}

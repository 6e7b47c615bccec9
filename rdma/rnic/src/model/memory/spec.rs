//! Region attributes that an application sets when it registers memory (verbs draft §9.2.6.2).

use super::access::Access;
use crate::model::limits::MAX_LIST_ENTRIES;

/// First Tagged Offset of a region or window (verbs draft §7.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// The first byte has Tagged Offset 0. No window can be bound to such a region.
    #[default]
    ZeroBased,
    /// The first byte has this Tagged Offset, which is not 0: its address in the application, or
    /// any other number. For a list, its offset in an entry must be the First Byte Offset.
    VaBased(u64),
}

/// Kind of the entries of physical buffer lists, for all lists of an RNIC (verbs draft §7.6.2,
/// §9.2.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PblMode {
    /// Pages: their size is a power of two from 4 KiB to 1 GiB, and each begins at a multiple of
    /// its size.
    #[default]
    Page,
    /// Blocks of 1 byte to 1 GiB at any address.
    Block,
}

/// Attributes of a region, besides its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionSpec {
    /// Access rights.
    pub access: Access,
    /// First Tagged Offset.
    pub addressing: Addressing,
    /// The low byte of its `STag`; `None` for a random one.
    pub key: Option<u8>,
    /// The Remote Access Flag: without it the region can have no remote right, neither now nor by a
    /// Fast-Register (verbs draft §7.4).
    pub remote_access: bool,
}

impl RegionSpec {
    /// A zero-based region with a random key. The Remote Access Flag is set if `access` has a
    /// remote right.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            addressing: Addressing::ZeroBased,
            key: None,
            remote_access: access.intersects(Access::REMOTE),
        }
    }

    /// Sets the first Tagged Offset to `va`.
    #[must_use]
    pub fn at(mut self, va: u64) -> Self {
        self.addressing = Addressing::VaBased(va);
        self
    }

    /// Sets the `STag` key.
    #[must_use]
    pub fn with_key(mut self, key: u8) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the Remote Access Flag.
    #[must_use]
    pub fn remote_access(mut self, flag: bool) -> Self {
        self.remote_access = flag;
        self
    }

    /// Checks figure 18 and the Remote Access Flag.
    pub(crate) fn check_rights(&self) -> Result<(), SpecError> {
        let flagged = self.remote_access || !self.access.intersects(Access::REMOTE);
        if flagged && self.access.suits_region() {
            Ok(())
        } else {
            Err(SpecError::Rights(self.access))
        }
    }
}

/// Why a region cannot have these attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The verbs forbid this combination of rights.
    #[error(
        "{0:?} is no valid set of rights: a region needs a local right, the local right of each remote one (verbs draft figure 18), and the Remote Access Flag for any remote one"
    )]
    Rights(Access),
    /// The rights allow writes, but the memory is read-only.
    #[error("{0:?} would write memory that can only be read: register it without LOCAL_WRITE")]
    ReadOnlyMemory(Access),
    /// Tagged Offsets cannot begin at this value.
    #[error(
        "no Tagged Offsets from {0:#x} on: it is 0, or has another first byte offset than the memory"
    )]
    VirtualAddress(u64),
    /// Tagged Offsets would exceed 2^64.
    #[error("{len} bytes from Tagged Offset {va:#x} on pass 2^64")]
    Wrap {
        /// First Tagged Offset.
        va: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The region is longer than its list.
    #[error("{len} bytes are too many: the list has {capacity} from the first byte offset on")]
    Length {
        /// Requested length in bytes.
        len: u64,
        /// Bytes in the list.
        capacity: u64,
    },
    /// The first byte offset lies outside the first entry.
    #[error("the first byte offset {offset} exceeds the entries' {size} bytes")]
    FirstByteOffset {
        /// Given offset.
        offset: u64,
        /// Size of an entry in bytes.
        size: u64,
    },
    /// An entry begins at an address where no entry may begin.
    #[error("no entry may begin at {address:#x}: it is not aligned, or leaves the region area")]
    Entry {
        /// Address of the entry.
        address: u64,
    },
    /// The RNIC does not support entries of this size.
    #[error("entries of {size} bytes are not possible in {mode:?} mode")]
    EntrySize {
        /// Kind of the RNIC's lists.
        mode: PblMode,
        /// Size of the entries in bytes.
        size: u64,
    },
    /// The list has more entries than the RNIC supports.
    #[error("a list of {0} entries is too long: at most {MAX_LIST_ENTRIES} are possible")]
    TooManyEntries(usize),
}

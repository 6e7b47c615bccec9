//! Region attributes that an application asks for when it registers memory (verbs draft §9.2.6.2).

use super::access::Access;
use crate::model::limits::MAX_LIST_ENTRIES;

/// Where a region's or a window's Tagged Offsets begin (verbs draft §7.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// The first byte has Tagged Offset 0. No window can be bound to such a region.
    #[default]
    ZeroBased,
    /// The first byte has this Tagged Offset, which is not 0: the address that the application
    /// knows it by, or any other number. Of a list it has to have the First Byte Offset.
    VaBased(u64),
}

/// What the entries of physical buffer lists are, for all lists of an RNIC (verbs draft §7.6.2,
/// §9.2.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PblMode {
    /// Pages: their size is a power of two from 4 KiB to 1 GiB, and each begins at a multiple of
    /// it.
    #[default]
    Page,
    /// Blocks of 1 byte to 1 GiB that begin anywhere.
    Block,
}

/// What a region shall be, besides its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionSpec {
    /// What may be done with it.
    pub access: Access,
    /// Where its Tagged Offsets begin.
    pub addressing: Addressing,
    /// The low byte of its `STag`; `None` for a random one.
    pub key: Option<u8>,
    /// The Remote Access Flag: without it no remote right can be given to the region, now or by a
    /// Fast-Register (verbs draft §7.4).
    pub remote_access: bool,
}

impl RegionSpec {
    /// A zero-based region with a random key, whose Remote Access Flag is as its rights need it.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            addressing: Addressing::ZeroBased,
            key: None,
            remote_access: access.intersects(Access::REMOTE),
        }
    }

    /// Sets Tagged Offsets from `va` on.
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

    /// Figure 18, and the Remote Access Flag.
    pub(crate) fn check_rights(&self) -> Result<(), SpecError> {
        let flagged = self.remote_access || !self.access.intersects(Access::REMOTE);
        if flagged && self.access.suits_region() {
            Ok(())
        } else {
            Err(SpecError::Rights(self.access))
        }
    }
}

/// Why there can be no region like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A combination of rights that the verbs forbid.
    #[error(
        "{0:?} is no valid set of rights: a region needs a local right, the local right of each remote one (verbs draft figure 18), and the Remote Access Flag for any remote one"
    )]
    Rights(Access),
    /// Rights that write, to memory that may only be read.
    #[error("{0:?} would write memory that can only be read: register it without LOCAL_WRITE")]
    ReadOnlyMemory(Access),
    /// Tagged Offsets cannot begin there.
    #[error(
        "no Tagged Offsets from {0:#x} on: it is 0, or has another first byte offset than the memory"
    )]
    VirtualAddress(u64),
    /// Tagged Offsets do not go that far.
    #[error("{len} bytes from Tagged Offset {va:#x} on pass 2^64")]
    Wrap {
        /// The first one's.
        va: u64,
        /// Bytes.
        len: u64,
    },
    /// Longer than its list.
    #[error("{len} bytes are too many: the list has {capacity} from the first byte offset on")]
    Length {
        /// Bytes asked for.
        len: u64,
        /// Bytes that there are.
        capacity: u64,
    },
    /// Outside the first entry.
    #[error("the first byte offset {offset} exceeds the entries' {size} bytes")]
    FirstByteOffset {
        /// What was given.
        offset: u64,
        /// Bytes of an entry.
        size: u64,
    },
    /// An entry that begins where none may.
    #[error("no entry may begin at {address:#x}: it is not aligned, or leaves the region area")]
    Entry {
        /// Its address.
        address: u64,
    },
    /// Entries of a size that the RNIC does not support.
    #[error("entries of {size} bytes are not possible in {mode:?} mode")]
    EntrySize {
        /// The RNIC's.
        mode: PblMode,
        /// Bytes.
        size: u64,
    },
    /// More entries than the RNIC supports.
    #[error("a list of {0} entries is too long: at most {MAX_LIST_ENTRIES} are possible")]
    TooManyEntries(usize),
}

//! Memory that can be registered.

use xwarp_driver::SharedBytes;

use super::list::PhysicalList;

/// Page size of memory in one piece, in bytes.
const PAGE: usize = 4096;

/// Memory to register.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RegionMemory {
    /// One piece of memory.
    Whole(SharedBytes),
    /// Pages or blocks of the region area.
    List(PhysicalList),
}

impl From<SharedBytes> for RegionMemory {
    fn from(bytes: SharedBytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<PhysicalList> for RegionMemory {
    fn from(list: PhysicalList) -> Self {
        Self::List(list)
    }
}

impl RegionMemory {
    /// Length of the memory in bytes.
    #[doc(hidden)]
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::List(list) => list.len,
        }
    }

    /// Number of entries of its list.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len().div_ceil(PAGE).max(1),
            Self::List(list) => list.addresses.len(),
        }
    }
}

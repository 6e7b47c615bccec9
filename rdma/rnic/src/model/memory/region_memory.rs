//! Memory that can be registered.

use xwarp_driver::SharedBytes;

use super::list::PhysicalList;

/// Pages that memory given as a whole counts in.
const PAGE: usize = 4096;

/// What can be registered.
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
    /// Bytes of the memory, in all its pieces.
    #[doc(hidden)]
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::List(list) => list.len,
        }
    }

    /// Entries of the list that it is.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len().div_ceil(PAGE).max(1),
            Self::List(list) => list.addresses.len(),
        }
    }
}

//! Scatter/gather elements and lists (verbs draft §8.1.3.2).

use arrayvec::ArrayVec;
use xwarp_iwarp::Stag;

/// Elements that a scatter/gather list may have.
pub const MAX_SGE: usize = 4;

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
    /// Bytes. With 0 the `STag` is not looked at.
    pub len: u32,
}

/// A scatter/gather list: pieces that follow each other in the message.
pub type Sgl = ArrayVec<Sge, MAX_SGE>;

impl From<Sge> for Sgl {
    fn from(sge: Sge) -> Self {
        Self::from_iter([sge])
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The peer's region.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
}

/// Bytes of all elements.
pub fn total(sgl: &[Sge]) -> Option<u32> {
    sgl.iter()
        .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
}

//! Work requests: what an application posts (verbs draft §8.1, §9.3.1).

mod operation;
mod request;

use arrayvec::ArrayVec;
use xwarp_iwarp::Stag;
use xwarp_iwarp::rdmap::IMMEDIATE_BYTES;

pub(crate) use operation::OPERAND;
pub use operation::Operation;
pub use request::{RecvRequest, SendRequest};

/// Elements that a scatter/gather list may have.
pub const MAX_SGE: usize = 4;

/// An application's name for a work request; comes back in its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WrId(pub u64);

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

/// What Immediate Data carries.
pub type Immediate = [u8; IMMEDIATE_BYTES];

/// Bytes of all elements.
pub(crate) fn total(sgl: &[Sge]) -> Option<u32> {
    sgl.iter()
        .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
}

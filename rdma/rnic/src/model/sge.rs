//! Scatter/gather elements and lists (verbs draft §8.1.3.2).

use std::ops::Deref;

use smallvec::SmallVec;
use xwarp_iwarp::Stag;

/// Elements that a scatter/gather list may have.
pub const MAX_SGE: usize = 16;
/// Elements of a list that takes no memory of its own.
const FEW: usize = 4;

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region or window, by its `STag`.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
    /// Bytes. With 0 the `STag` is not looked at.
    pub len: u32,
}

/// A scatter/gather list: pieces that follow each other in the message. A post refuses one of more elements than its queue was created
/// for. Up to four elements need no memory besides the work request's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sgl(SmallVec<[Sge; FEW]>);

impl Sgl {
    /// A list without elements: a message without bytes.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Deref for Sgl {
    type Target = [Sge];

    #[inline]
    fn deref(&self) -> &[Sge] {
        let Self(elements) = self;
        elements
    }
}

impl FromIterator<Sge> for Sgl {
    #[inline]
    fn from_iter<I: IntoIterator<Item = Sge>>(elements: I) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl From<Sge> for Sgl {
    #[inline]
    fn from(element: Sge) -> Self {
        let mut elements = SmallVec::new();
        elements.push(element);
        Self(elements)
    }
}

impl From<&[Sge]> for Sgl {
    fn from(elements: &[Sge]) -> Self {
        Self(SmallVec::from_slice(elements))
    }
}

impl<const N: usize> From<[Sge; N]> for Sgl {
    fn from(elements: [Sge; N]) -> Self {
        Self::from_iter(elements)
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The peer's region or window, by its `STag`.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
}

/// Bytes of all elements.
#[inline]
pub fn total(sgl: &[Sge]) -> Option<u32> {
    if let [only] = sgl {
        return Some(only.len);
    }
    sgl.iter()
        .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
}

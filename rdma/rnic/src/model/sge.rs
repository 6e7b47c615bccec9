//! Scatter/gather elements and lists (verbs draft §8.1.3.2).

use std::ops::Deref;

use smallvec::SmallVec;
use xwarp_iwarp::Stag;

/// Maximum number of elements of a scatter/gather list.
pub const MAX_SGE: usize = 16;
/// Elements of a list that needs no memory of its own.
const FEW: usize = 4;

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region or window, by its `STag`.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
    /// Length in bytes. With 0 the `STag` is ignored.
    pub len: u32,
}

/// A scatter/gather list: pieces in the order of the message. A queue refuses a list of more
/// elements than it was created for. Up to four elements need no memory besides the work request's.
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

/// The bytes are no [`RemoteAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a remote address has {expected} bytes, not {len}", expected = RemoteAddress::BYTES)]
#[non_exhaustive]
pub struct RemoteAddressError {
    /// Number of given bytes.
    pub len: usize,
}

impl RemoteAddress {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 12;

    /// The address for a message or private data: the `STag` in 4 bytes, then the Tagged Offset in
    /// 8. Both are in network byte order, as in the headers of DDP (RFC 5041 §4.2).
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (stag, to) = bytes.split_at_mut(size_of::<u32>());
        stag.copy_from_slice(&self.stag.0.to_be_bytes());
        to.copy_from_slice(&self.to.to_be_bytes());
        bytes
    }

    /// Parses an address that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// [`RemoteAddressError`]: the number of bytes is not [`BYTES`](Self::BYTES).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RemoteAddressError> {
        let wrong = RemoteAddressError { len: bytes.len() };
        let (stag, to) = bytes.split_first_chunk().ok_or(wrong)?;
        let to = to.try_into().map_err(|_| wrong)?;
        Ok(Self {
            stag: Stag(u32::from_be_bytes(*stag)),
            to: u64::from_be_bytes(to),
        })
    }
}

/// Total length of all elements in bytes.
#[inline]
pub fn total(sgl: &[Sge]) -> Option<u32> {
    if let [only] = sgl {
        return Some(only.len);
    }
    sgl.iter()
        .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_address_goes_by_twelve_bytes_in_network_order() {
        let address = RemoteAddress {
            stag: Stag(0x1122_3344),
            to: 0x0102_0304_0506_0708,
        };
        let bytes = [0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(address.to_bytes(), bytes);
        assert_eq!(RemoteAddress::from_bytes(&bytes), Ok(address));
        for len in [0, 3, 11, 13] {
            let wrong = [&bytes[..], &[0]].concat();
            let refused = RemoteAddress::from_bytes(&wrong[..len]);
            assert_eq!(refused, Err(RemoteAddressError { len }));
        }
    }
}

//! Payload of a Send or RDMA Write: registered memory, or bytes in the work request itself.
//!
//! A work request moves through a ring by value, so its size costs time for every message. It has
//! room for four elements or 64 inline bytes. Longer lists and inline data, up to the limits of the
//! queue pair, are allocated.

use smallvec::SmallVec;

use crate::model::sge::{Sgl, total};

/// Maximum number of inline bytes of a work request.
pub const MAX_INLINE: usize = 512;
/// Inline bytes that need no memory of their own.
const FEW: usize = 64;

/// Payload of a Send or an RDMA Write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payload {
    /// Registered memory. The engine reads it when it sends or retransmits; once the work request
    /// has completed, the application may change it.
    Gather(Sgl),
    /// Bytes inside the work request.
    Inline(InlineData),
}

/// Bytes that were copied into a work request. Their source needs no registration, and may be
/// changed at once. Up to 64 bytes need no memory besides the work request's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineData(SmallVec<[u8; FEW]>);

impl InlineData {
    /// The bytes of the message.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        let Self(bytes) = self;
        bytes
    }
}

impl Payload {
    /// Copies the bytes. A queue refuses more bytes than it was created for
    /// (`QpConfig::max_inline`).
    #[inline]
    pub fn inline(bytes: &[u8]) -> Self {
        Self::Inline(InlineData(SmallVec::from_slice(bytes)))
    }

    /// True for a list of one element.
    #[inline]
    pub(crate) fn is_one_element(&self) -> bool {
        matches!(self, Self::Gather(sgl) if sgl.len() == 1)
    }

    /// Length in bytes; `None` if it exceeds 2^32 - 1 (RFC 5041 §5.2).
    pub(crate) fn byte_len(&self) -> Option<u32> {
        match self {
            Self::Gather(sgl) => total(sgl),
            Self::Inline(data) => u32::try_from(data.as_slice().len()).ok(),
        }
    }
}

impl Default for Payload {
    /// An empty payload.
    fn default() -> Self {
        Self::Gather(Sgl::new())
    }
}

impl<T: Into<Sgl>> From<T> for Payload {
    #[inline]
    fn from(elements: T) -> Self {
        Self::Gather(elements.into())
    }
}

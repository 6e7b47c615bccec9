//! Resources of the receive side: a receiver's questions about regions and buffers, and the reasons
//! for a refusal (RFC 5041 §7.1).

use super::ATOMIC_OPERAND_BYTES;
use crate::Stag;
use core::fmt;

/// Regions and buffers of the receive side. They may change between two calls.
pub trait Resources {
    /// Memory of an admitted access. The payload of a tagged segment is copied there without
    /// further checks.
    type Place;

    /// Takes the next posted receive buffer for a new Send or Immediate Data. Returns its length in
    /// bytes, or `None` if none is posted.
    fn take_receive(&mut self) -> Option<u64>;

    /// Admits this stream to `[to, to + len)` of `stag`. Never called for `len == 0` (R5041-5.2-9,
    /// R5040-5.2.1-8).
    ///
    /// The order of the checks is that of [`AccessError`]'s variants, so that wrap comes before
    /// bounds (D15).
    fn admit(
        &self,
        stag: Stag,
        to: u64,
        len: u64,
        access: AccessKind,
    ) -> Result<Self::Place, AccessError>;

    /// True if a place of 8 bytes at Tagged Offset `to` is 8-aligned in memory (R7306-5.1.1-1).
    ///
    /// The default is right if the first byte of every region is 8-aligned both in memory and as a
    /// Tagged Offset.
    fn is_aligned(&self, _place: &Self::Place, to: u64) -> bool {
        to.is_multiple_of(ATOMIC_OPERAND_BYTES)
    }

    /// Checks whether this stream's peer may invalidate the `STag` (RFC 5040 §5.3).
    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateError>;
}

/// Kind of access to a region by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Placing an RDMA Write: needs the remote write right.
    RemoteWrite,
    /// Serving a Read Request: needs the remote read right.
    RemoteRead,
    /// Executing an Atomic Request: needs the remote atomic right (R7306-8.2-3).
    RemoteAtomic,
    /// Placing a Read Response that this side requested (D20).
    ReadSink,
}

impl AccessKind {
    /// Word between the names of access and region.
    pub(super) const fn preposition(self) -> &'static str {
        match self {
            Self::RemoteWrite | Self::ReadSink => "to",
            Self::RemoteRead => "from",
            Self::RemoteAtomic => "on",
        }
    }
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemoteWrite => "Write",
            Self::RemoteRead => "Read",
            Self::RemoteAtomic => "Atomic Operation",
            Self::ReadSink => "Read Response",
        })
    }
}

/// Why a region may not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Unknown index, stale key or invalidated.
    #[error("invalid STag")]
    InvalidStag,
    /// Another protection domain, or bound to another stream.
    #[error("STag not associated with this stream")]
    NotAssociated,
    /// The region lacks the right.
    #[error("access right missing")]
    Rights,
    /// `to + len` exceeds 2^64.
    #[error("TO wraps")]
    Wrap,
    /// Not all bytes lie inside the region.
    #[error("base or bounds violated")]
    Bounds,
}

/// Why the peer may not invalidate an `STag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidateError {
    /// Unknown or already invalid.
    #[error("invalid STag")]
    InvalidStag,
    /// Another protection domain, or bound to another stream.
    #[error("STag not associated with this stream")]
    NotAssociated,
    /// Neither readable nor writable for the peer.
    #[error("access right missing")]
    Rights,
    /// Shared by streams, or with bound windows.
    #[error("STag may not be invalidated remotely")]
    Forbidden,
}

//! Errors of the verbs of regions and windows (verbs draft §9.2.6).

use xwarp_driver::RegionAreaFull;

use super::{OutOfMemory, RnicUnavailable};
use crate::model::memory::SpecError;

/// Why memory was not registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// Rights, list or Tagged Offsets are invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The region area has no free piece of that length.
    #[error(transparent)]
    Full(#[from] RegionAreaFull),
    /// The host has no memory for one more `STag`.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The RNIC has its maximum number of regions and windows.
    #[error("there are 65535 regions and windows already; deallocate some")]
    TooManyStags,
    /// The region is not Valid, or it is shared and the verb needs an unshared one.
    #[error("the region's STag is invalid, or that of a shared region")]
    InvalidStag,
    /// Windows are bound to the region.
    #[error("memory windows are still bound to the region")]
    WindowsBound,
    /// The protection domain belongs to another RNIC.
    #[error("the protection domain belongs to another RNIC")]
    OtherRnic,
    /// The kernel returned no random bytes for an `STag`.
    #[error("the system's random number source failed")]
    NoRandomness,
}

/// Why an `STag` was not deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeallocateError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// No region or window has this `STag`.
    #[error("no region or window has this STag")]
    InvalidStag,
    /// Windows are bound to the region.
    #[error("memory windows are still bound to the region")]
    WindowsBound,
}

/// Why a region or window cannot be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// No object of that kind has this `STag`.
    #[error("no such region or window has this STag")]
    InvalidStag,
}

//! Errors of the verbs of regions and windows (verbs draft §9.2.6).

use xwarp_driver::RegionAreaFull;

use super::{OutOfMemory, RnicUnavailable};
use crate::model::memory::SpecError;

/// Why memory could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// Rights, list or Tagged Offsets that are not possible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The region area is used up.
    #[error(transparent)]
    Full(#[from] RegionAreaFull),
    /// No memory for one more `STag`.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// All `STag`s are taken.
    #[error("there are 65535 regions and windows already; deallocate some")]
    TooManyStags,
    /// The region is not Valid, or shared where only one that is not will do.
    #[error("the region's STag is invalid, or that of a shared region")]
    InvalidStag,
    /// Windows are bound to the region.
    #[error("memory windows are still bound to the region")]
    WindowsBound,
    /// A protection domain of another RNIC.
    #[error("the protection domain belongs to another RNIC")]
    OtherRnic,
    /// The kernel gave no random bytes for an `STag`.
    #[error("the system's random number source failed")]
    NoRandomness,
}

/// Why an `STag` was not deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeallocateError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// No region or window has it.
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
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// No object of that kind has it.
    #[error("no such region or window has this STag")]
    InvalidStag,
}

//! Memory: regions that the application shares with peers, the mappings and arenas beneath them,
//! and accesses that return an error if the memory is gone.

mod arena;
mod atomic;
mod fault;
#[cfg(not(feature = "xsk-rs"))]
mod mapping;
mod racy;
mod raw_parts;
mod region;
mod shared;
#[cfg(all(any(test, feature = "fault-injection"), not(miri)))]
pub mod vanishing;

pub(crate) use arena::Arena;
pub use atomic::AtomicAccessError;
pub use fault::take_only_faults;
#[cfg(not(feature = "xsk-rs"))]
pub(crate) use mapping::{Pages, SharedMapping};
pub(crate) use racy::Fault;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use racy::{fallible, racy_read_constant};
pub use raw_parts::RawPartsError;
pub use region::{RegionAreaFull, RegionPool};
pub use shared::{CopyError, OutOfBounds, SharedBytes};

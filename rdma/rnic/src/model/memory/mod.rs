//! Regions and windows as values: rights, memory to register, and the work requests that change
//! them (verbs draft §7).

mod access;
mod info;
mod list;
mod region_memory;
mod requests;
mod spec;

pub use access::Access;
pub use info::{RegionInfo, WindowInfo};
pub use list::{EntrySizes, PhysicalList};
pub use region_memory::RegionMemory;
pub use requests::{Bind, FastRegister, MemoryOperation};
pub use spec::{Addressing, PblMode, RegionSpec, SpecError};

//! Memory that peers may reach: registration, buffer lists, windows (verbs draft §7).

mod owner;
pub(crate) mod region;
mod stag;
pub(crate) mod window;

pub use stag::AllocatedStag;
pub use xwarp_driver::SharedBytes;
pub use xwarp_rnic::model::{
    Addressing, Bind, EntrySizes, FastRegister, MAX_LIST_ENTRIES, MemoryOperation, PblMode,
    PhysicalList, RegionInfo, RegionMemory, RegionSpec, WindowInfo,
};

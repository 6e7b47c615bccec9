//! Memory: regions, windows, and the table of `STag`s that the engine checks every access against (verbs draft §7).

mod access;
mod bindings;
mod entry;
mod invalidate;
mod list;
mod owner;
mod region;
mod register;
mod requests;
mod spec;
mod stag;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod window;
mod windows;

pub use access::Access;
pub use entry::{RegionInfo, WindowInfo};
pub use list::{EntrySizes, ListMode, MAX_LIST_ENTRIES, PhysicalList};
pub use region::MemoryRegion;
pub use register::RegionMemory;
pub use requests::{Bind, FastRegister, MemoryWork};
pub use spec::{Addressing, RegionSpec, SpecError};
pub use stag::RegionStag;
pub use window::MemoryWindow;

pub(crate) use table::{MAX_STAGS, StagTable};

//! Handles of regions, windows and `STag`s (verbs draft §7).

mod owner;
mod region;
mod stag;
mod window;

pub use region::MemoryRegion;
pub use stag::RegionStag;
pub use window::MemoryWindow;

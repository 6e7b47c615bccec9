//! Simulation: seams for tests that run an RNIC without a kernel, with virtual time.

pub use crate::host::{FixedHost, Neighbours};
pub use xwarp_driver::net::{
    Channels, DriverRings, InterfaceEnd, InterfaceMonitor, InterfaceNews, InterfaceReporter,
    InterfaceState, Network, Setting,
};
pub use xwarp_driver::{
    BoardError, Doorbell, Icmp, IoError, MemoryIo, PacketIo, QueueLevels, RegionPool, RxFrame,
    SentFrame, StateBoard, TxFrame, Wire,
};
pub use xwarp_rnic::model::{Host, LocalPort, NextHop, NextHopSearch, PresentWay, Way};
pub use xwarp_tcp::{Instant, RouteMetrics, StackConfig};

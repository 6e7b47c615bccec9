//! Frames, rings and shared memory of one NIC queue, and what the kernel knows of the network.
//!
//! `unsafe` code has one operation and one proof in each block. Apart from this crate, only the
//! boundary to C has any (`rdma/dropin`; decision record driver/0016).
#![warn(clippy::missing_errors_doc)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod attach;
mod digest;
mod memory;
mod named;
pub mod net;
mod nic;
mod packet_io;
pub mod switch;
mod wake;
mod xdp;

pub use attach::board::{BoardError, StateBoard};
pub use attach::user_namespace::in_initial_user_namespace;
pub use digest::{Digest, PartialSum, checksum_sum, crc32c_function};
#[cfg(all(any(test, feature = "fault-injection"), not(miri)))]
pub use memory::vanishing;
pub use memory::{
    AtomicAccessError, CopyError, OutOfBounds, RawPartsError, RegionAreaFull, RegionPool,
    SharedBytes, take_only_faults,
};
pub use nic::{
    Nic, NicConfig, NicError, NicInfo, NoSuchQueues, Queues, ServedQueues, Steering, SteeringError,
    TxChecksum, attach_permanently, descriptors_needed, detach, lacking, try_zero_copy,
};
pub use packet_io::{
    BURST, Capture, CaptureError, CrossQueueIo, FrameOrigin, Hairpin, HandoffQueue, Icmp,
    IoCounters, IoError, LocalHop, MemoryIo, PacketIo, QueueGroup, QueueLevels, RxFrame, SentFrame,
    Tap, TapError, TxFrame, Wire, WithRxMetadata,
};
pub use wake::{
    DescriptorSet, Doorbell, Signal, Sleeper, WaitSet, WokenBy, aside, is_any_readable, join,
    process_end, sleep_on,
};
pub use xdp::{
    BusyPollError, FRAME_CAPACITY, InterruptDeferral, OpenQueueError, Polling, UmemError, ZeroCopy,
};

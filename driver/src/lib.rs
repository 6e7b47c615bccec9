//! Frames, rings and shared memory of one NIC queue, and what the kernel knows of the network.
//!
//! `unsafe` code has one operation and one proof in each block. Apart from this crate, only the boundary to C has any (`rdma/dropin`).
#![warn(clippy::missing_errors_doc)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod arena;
mod atomic;
pub mod attach;
mod board;
mod busy_poll;
mod checksum;
mod crc;
mod crossing;
mod described;
mod descriptor_set;
mod digest;
mod fault;
mod forward;
mod frame;
mod frame_copies;
mod frame_pool;
mod hairpin;
mod hinted;
mod lacking;
mod levels;
mod mapping;
mod memory_io;
mod named;
pub mod net;
mod nic;
mod nic_queues;
mod one_pass;
mod packet_io;
mod process_end;
mod queue_group;
mod racy;
mod raw_parts;
mod region;
mod shared;
mod signal;
mod sizes;
mod sleep_flag;
mod tap;
mod threads;
mod tx_checksum;
mod tx_metadata;
mod umem;
mod user_namespace;
#[cfg(all(any(test, feature = "fault-injection"), not(miri)))]
pub mod vanishing;
mod wait_set;
mod wake;
mod xdp;
mod xsk;

pub use atomic::AtomicAccessError;
pub use board::{BoardError, StateBoard};
pub use busy_poll::{BusyPollError, InterruptDeferral, Polling};
pub use checksum::checksum_sum;
pub use crc::crc32c_function;
pub use crossing::{Crossing, Inlet};
pub use described::Described;
pub use descriptor_set::DescriptorSet;
pub use digest::{Digest, PartialSum};
pub use fault::take_only_faults;
pub use frame::{RxFrame, SentFrame, TxFrame};
pub use hairpin::Hairpin;
pub use lacking::lacking;
pub use levels::QueueLevels;
pub use memory_io::{MemoryIo, Wire};
pub use nic::{
    Nic, NicConfig, NicError, NicInfo, Steering, SteeringError, attach_permanently,
    descriptors_needed, detach, try_zero_copy,
};
pub use nic_queues::{NoSuchQueues, Queues, ServedQueues};
pub use packet_io::{BURST, Icmp, IoCounters, IoError, PacketIo};
pub use process_end::process_end;
pub use queue_group::QueueGroup;
pub use raw_parts::RawPartsError;
pub use region::{RegionAreaFull, RegionPool};
pub use shared::{CopyError, OutOfBounds, SharedBytes};
pub use signal::{Signal, is_any_readable, sleep_on};
pub use tap::{Capture, CaptureError, Tap, TapError};
pub use threads::{aside, join};
pub use tx_checksum::TxChecksum;
pub use umem::{FRAME_CAPACITY, UmemError};
pub use user_namespace::in_initial_user_namespace;
pub use wait_set::WaitSet;
pub use wake::{Doorbell, Sleeper};
pub use xdp::{OpenQueueError, ZeroCopy};

use std::error::Error;

/// An error and all that it says of its causes, in one line.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What the protocols of waking are made of; the model checker's stand in its place in their
/// models.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
}

//! Opening a network interface for RDMA: its attributes, XDP program, memory and queues.

mod config;
mod descriptors;
mod error;
mod info;
mod interface;
mod lacking;
mod open;
mod probe;
mod program;
mod queues;
mod setters;
mod sizes;
mod steering;
mod tx_checksum;

pub use config::NicConfig;
pub use descriptors::descriptors_needed;
pub use error::{NicError, SteeringError};
pub use info::NicInfo;
pub use lacking::lacking;
pub use open::Nic;
pub use probe::try_zero_copy;
pub use program::{attach_permanently, detach};
pub use queues::{NoSuchQueues, Queues, ServedQueues};
pub use steering::Steering;
pub use tx_checksum::TxChecksum;

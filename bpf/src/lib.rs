//! The XDP program that steers the RNIC's TCP flows into `AF_XDP` sockets.
//!
//! [`Steering`] loads the program. [`Maps`] are its controls, no matter which process loaded it.
//! [`Flows`] says which (address, port) pairs are ours, [`Sockets`] where their frames go per
//! receive queue. [`Verdicts`] says what became of the frames so far. [`Board`] shows the state of
//! each queue's engine to other processes. All other traffic passes to the kernel.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod board;
mod flows;
mod layout;
mod maps;
mod metadata;
mod ports;
mod sockets;
mod steering;
mod verdicts;

pub use board::{Board, Shown};
pub use flows::Flows;
pub use layout::MapError;
pub use maps::{Maps, OpenMapsError, program_name};
pub use metadata::{RxHash, RxMetadata};
pub use sockets::Sockets;
pub use steering::{Asks, Buffers, LoadError, Steering, is_bound, libbpf_to_log};
pub use verdicts::{Counters, Verdict, Verdicts};

/// The compiled programs, as `ip link set DEV xdp obj FILE sec SECTION` takes them from a file:
/// section `xdp` holds the one for frames of one buffer, `xdp.frags` the one for frames of any
/// size.
pub const STEER_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

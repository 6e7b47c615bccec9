//! The host under an engine: its interface, next hops and ports, and the engine's questions to it.

mod interface;
mod next_hops;
mod other_ports;
mod questions;

pub use questions::{DoubtfulPath, HostQuestion, IncomingPath, OtherPort, WantedPort};

pub(super) use interface::Interface;

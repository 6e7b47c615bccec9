//! Software switch between the RNICs of several processes: the files and the socket that they share
//! with it (decision record driver/0036).
//!
//! The rules of the switch are in the crate `xwarp_switchd`, which has no I/O. This module has both
//! ends of what connects it to a program: [`Server`] runs a switch; [`SwitchClient`] and
//! [`SwitchIo`] are an RNIC's.

mod client;
mod client_memory;
mod control;
mod device;
mod file;
mod io;
mod layout;
mod mailbox;
mod peer;
mod processor;
mod ring;
mod rings;
mod server;
mod socket;
mod sync;
#[cfg(all(test, not(miri)))]
mod tests;

pub use client::{Attached, SwitchClient};
pub use control::SwitchError;
pub use device::{SwitchDevice, SwitchObserver};
pub use io::SwitchIo;
pub use server::{ServeError, Server, ServerConfig};
pub use xwarp_switchd::{ClientState, Counters, Refusal, Reply, Request, SwitchState, VERSION};

//! xwarp against the Linux kernel's own iWARP, the siw driver.
//!
//! siw runs in guests of User-Mode Linux, which are ordinary processes and boot in a second. A
//! [`Guest`]'s root is this machine's file system, read-only, so that every program here can be run
//! there too. A [`Lab`] is the Ethernet between guests and the host that xwarp runs on. [`Peer`] is
//! the other end of a test: a verbs program in a guest that executes commands line by line.
//!
//! The guest's kernel and the peer program are built by `tools/interop`; without them the tests say
//! so and do nothing, unless `XWARP_INTEROP=required` is in the environment. Everything needs root.

mod guest;
mod image;
mod impaired;
mod interposer;
mod job;
mod lab;
mod packet_socket;
mod peer;
mod recorder;
mod serial;

pub use guest::{Guest, GuestConfig};
pub use image::Image;
pub use impaired::Impaired;
pub use interposer::Interposer;
pub use job::{Ended, Job};
pub use lab::{Lab, Mtus, XWARP_ADDRESS, XWARP_ADDRESS_6};
pub use peer::{Answer, Completion, Peer, filling};
pub use recorder::Recorder;

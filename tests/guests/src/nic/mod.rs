//! xwarp on network cards of real drivers: igb and `virtio_net`, with zero copy, several queues and
//! RSS.
//!
//! A [`Guest`] under qemu has two cards of one kind, joined by a cable that can be pulled.
//! [`End::A`] is the guest itself, [`End::B`] a network namespace in it. The guest's root is this
//! machine's file system, read-only, so that what was built here runs there. Emulation is slow: it
//! shows what is right and wrong, not what is fast.
//!
//! `tools/nic` makes what guests boot from; without it the tests say so and do nothing, unless
//! `XWARP_NIC=required` is in the environment. Everything needs root.

mod guest;
mod image;

pub use guest::{Card, End, Guest, LIMIT, eventually};
pub use image::Image;

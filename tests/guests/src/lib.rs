//! Guests: machines of their own for what a network namespace cannot have.
//!
//! [`siw`] has guests of User-Mode Linux with the kernel's own iWARP. [`nic`] has guests under qemu
//! with network cards of real drivers.
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc)] // a panic is how a test fails

pub mod nic;
pub mod siw;

//! System tests: two hosts made of network namespaces, joined by a veth pair, and the `xwarp`
//! command on real `AF_XDP` sockets.
//!
//! [`Hosts`] makes the hosts and removes them again; only one pair exists at a time, whatever the
//! number of test threads and test programs. [`Running`] is a process with a time limit, [`Case`] a
//! run of `xwarp perf` on both hosts, [`Capture`] what tshark says of one.
//!
//! Everything needs root, the command beside the test program (`cargo build -p xwarp-tools` in the
//! same profile), and the library's examples (`cargo build -p xwarp --examples --features tokio`;
//! `cargo test --workspace` builds them by itself).
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,       // a panic is how a test fails
    clippy::return_self_not_must_use, // the check is done when a process is passed on
)]

mod capture;
mod case;
pub mod dissection;
mod drops;
mod hosts;
pub mod impair;
mod process;
mod program;

pub use capture::{Capture, Frame, Verdicts};
pub use case::{Case, Measured, Setup, Way};
pub use drops::check_nothing_dropped;
pub use hosts::{Host, Hosts, LOCK, Shape};
pub use process::{Finished, Running, output_of};
pub use program::{Mode, Program};
pub use xwarp_test_kit::{Exclusive, PATIENCE, TIMEOUT, WorkDir, eventually, eventually_within};

/// The interface of either host.
pub const DEV: &str = "eth1";
/// Default port of `xwarp perf`.
pub const PERF_PORT: u16 = 18515;

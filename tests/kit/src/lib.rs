//! The test kit: one word for one thing in the tests of all crates.
//!
//! | word | meaning |
//! |---|---|
//! | [`Side`] | A or B: one of the two hosts of a link, with its addresses |
//! | [`pattern`], [`pattern_of`] | payload in which every piece is told from every other |
//! | [`eventually`] | waits for a condition, never for a time |
//! | [`drops_of`] | drop counters that are not zero |
//! | [`hex`] | literal bytes, as a document prints them |
//! | [`Exclusive`] | a lock among all test programs |
//! | [`WorkDir`] | a directory for the files of one test |
//! | [`needs_root`] | skips a test that needs root, and says so |
//!
//! Types of other crates keep to these words, too:
//!
//! | word | meaning |
//! |---|---|
//! | host | a machine that an RNIC runs on: simulated (`xwarp-sim-tests`), or a network namespace (`xwarp-system-tests`) |
//! | link | what joins two hosts (`xwarp-netsim`) |
//! | end | a queue pair with its completion queues and its memory, as an application has them |
//! | pair | two ends that are, or will be, connected |
//! | endpoint | a TCP stack or an interface at one side of a link, without an RNIC |
//!
//! The kit depends on no crate of xwarp, so that the tests of every crate can use it.
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    reason = "test code: every step of it panics when it fails"
)]

mod drops;
mod eventually;
mod exclusive;
mod hex;
mod pattern;
mod root;
mod side;
mod work_dir;

pub use drops::{Drops, drops_of};
pub use eventually::{TIMEOUT, eventually, eventually_within};
pub use exclusive::Exclusive;
pub use hex::hex;
pub use pattern::{pattern, pattern_of};
pub use root::is_root_or_skipped;
pub use side::Side;
pub use work_dir::WorkDir;

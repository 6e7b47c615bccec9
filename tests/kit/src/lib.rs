//! The test kit: one word for one thing in the tests of all crates.
//!
//! | word | meaning |
//! |---|---|
//! | [`pattern`], [`pattern_of`] | payload in which every piece is told from every other |
//! | [`eventually`] | waits for a condition, never for a time |
//! | [`drops_of`] | drop counters that are not zero |
//! | [`hex`] | literal bytes, as a document prints them |
//! | [`Exclusive`] | a lock among all test programs |
//! | [`WorkDir`] | a directory for the files of one test |
//! | [`needs_root`] | skips a test that needs root, and says so |
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
mod work_dir;

pub use drops::{Drops, drops_of};
pub use eventually::{TIMEOUT, eventually, eventually_within};
pub use exclusive::Exclusive;
pub use hex::hex;
pub use pattern::{pattern, pattern_of};
pub use root::is_root_or_skipped;
pub use work_dir::WorkDir;

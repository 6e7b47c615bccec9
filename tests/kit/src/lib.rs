//! The test kit: one word for one thing in the tests of all crates.
//!
//! | word | meaning |
//! |---|---|
//! | [`Side`] | A or B: one of the two hosts of a link, with its addresses |
//! | [`pattern`], [`pattern_of`] | payload whose pieces all differ |
//! | [`cases`] | what a test tries one after the other; in Miri only the first |
//! | [`eventually`] | waits for a condition, never for a time |
//! | [`timeout`] | how long it does, which [`PATIENCE`] makes longer |
//! | [`diagnosis`] | all that explains a wait in vain: RNICs of the process with their engines, threads, load |
//! | [`spawn_numbered`], [`thread_sleeps`] | a thread, its number, and whether it sleeps, so that what wakes it is seen |
//! | [`drops_of`] | drop counters that are not zero |
//! | [`hex`] | literal bytes, as a document prints them |
//! | [`Exclusive`] | a lock among all test programs |
//! | [`WorkDir`] | a directory for the files of one test |
//! | [`needs_root`] | skips a test that needs root, and says so |
//! | [`netsim`] | a seeded link in virtual time between two packet interfaces (feature `netsim`) |
//! | [`Endpoint`] | a TCP stack on an interface in memory (feature `tcp`) |
//! | [`MemoryRnic`] | an RNIC on an interface in memory (feature `rnic`) |
//! | [`Queues`], [`Answers`] | what joins several queues of such an interface, each with an engine (feature `rnic`) |
//! | [`MemoryRnics`] | two of them that run by themselves, on a cable (feature `rnic`) |
//! | [`End`] | a queue pair with memory to send from and to receive into (feature `rnic`) |
//! | [`next_request`], [`next_completion`], [`next_success`] | what an end waits for (feature `rnic`) |
//!
//! Types of other crates keep to these words, too:
//!
//! | word | meaning |
//! |---|---|
//! | host | a machine that an RNIC runs on: simulated (`xwarp-sim-tests`), or a network namespace (`xwarp-system-tests`) |
//! | link | what joins two hosts ([`netsim`]) |
//! | pair | two ends that are, or will be, connected |
//! | endpoint | a TCP stack or an interface at one side of a link, without an RNIC; [`Endpoint`] is one in memory |
//!
//! Without these features, the kit depends on no crate of xwarp, so that the tests of every crate
//! can use it.
#![cfg_attr(
    not(feature = "rnic"),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "half of the words need the feature"
    )
)]
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    reason = "test code: every step of it panics when it fails"
)]

#[cfg(feature = "rnic")]
mod cable;
mod cases;
mod diagnosis;
mod drops;
#[cfg(feature = "rnic")]
mod end;
#[cfg(feature = "tcp")]
mod endpoint;
mod eventually;
mod exclusive;
mod hex;
#[cfg(feature = "rnic")]
mod memory_rnic;
#[cfg(feature = "netsim")]
pub mod netsim;
mod pattern;
#[cfg(feature = "rnic")]
mod queues;
mod root;
mod side;
mod threads;
mod work_dir;

#[cfg(feature = "rnic")]
pub use cable::{Cable, MemoryRnics};
pub use cases::cases;
pub use diagnosis::diagnosis;
pub use drops::{Drops, drops_of};
#[cfg(feature = "rnic")]
pub use end::{End, next_completion, next_request, next_success};
#[cfg(feature = "tcp")]
pub use endpoint::{Endpoint, carry};
pub use eventually::{PATIENCE, TIMEOUT, eventually, eventually_within, timeout};
pub use exclusive::Exclusive;
pub use hex::hex;
#[cfg(feature = "rnic")]
pub use memory_rnic::MemoryRnic;
pub use pattern::{pattern, pattern_of};
#[cfg(feature = "rnic")]
pub use queues::{Answers, Queues};
pub use root::is_root_or_skipped;
pub use side::Side;
pub use threads::{spawn_numbered, thread_sleeps};
pub use work_dir::WorkDir;

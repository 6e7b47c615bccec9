//! Behaviour tests: two whole RNICs on a seeded link in virtual time.
//!
//! [`Sim`] owns the machines at both ends of a link and moves time to whatever comes next: a
//! frame's arrival or a timer. It never sleeps. A condition that is not met within the limit of
//! virtual time fails the test, with the seed, all counters and the last frames. Any frame or
//! segment that an RNIC drops and that the test did not announce fails it, too.
//!
//! ```
//! use std::time::Duration;
//! use xwarp::Access;
//! use xwarp_test_kit::netsim::Seed;
//! use xwarp_sim_tests::{Done, KIB, Sim, pattern};
//!
//! let mut sim = Sim::new(Seed(7)).loss(0.02).one_way_delay(Duration::from_millis(1));
//! let (mut a, b) = sim.connected_pair();
//! let sink = b.region(64 * KIB, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
//! a.post_write(1, &pattern(64 * KIB), sink.remote(0));
//! sim.run_until_idle();
//! assert_eq!(sink.bytes().to_vec(), pattern(64 * KIB));
//! assert_eq!(a.sends(), [Done::write(1, 64 * KIB)]);
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `XWARP_SEEDS` | seeds per scenario of [`for_each_seed`], 20 unless set, at least 1 |
//! | `XWARP_SEED` | runs this seed alone |
//! | `XWARP_SIM_ENGINES` | engines of each RNIC, 1 unless set |
//! | `XWARP_SIM_SWITCH` | if set, a software switch joins the RNICs, unless a test names an MTU |
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    reason = "test code: every step of it panics when it fails"
)]

/// Ends a test that has no meaning over a switch, and says why, if the environment wants a switch.
#[macro_export]
macro_rules! needs_link {
    ($why:literal) => {
        if $crate::wants_switch() {
            eprintln!("skipped over a switch: {}", $why);
            return;
        }
    };
}

mod done;
#[cfg(test)]
mod drops;
mod end;
mod host;
mod late_host;
mod plain;
mod seeds;
mod sim;
mod switch;
mod windowed;
pub mod wire;

pub use done::Done;
pub use end::SimEnd;
pub use host::{Host, Target, later_address, network, wants_switch};
pub use late_host::{Answer, LateHost};
pub use plain::PlainPeer;
pub use seeds::for_each_seed;
pub use sim::Sim;
pub use xwarp_test_kit::{Drops, Side, pattern, pattern_of};

/// Bytes.
pub const KIB: usize = 1024;
/// Bytes.
pub const MIB: usize = 1024 * KIB;
/// Bytes of payload in a full tagged segment on the simulated link: MTU 1500, so EMSS 1448 with
/// timestamps (RFC 7323 §3.2), and MULPDU 1442 (RFC 5044 §4.5).
pub const TAGGED_PAYLOAD: usize = 1428;
/// The same of an untagged segment.
pub const UNTAGGED_PAYLOAD: usize = 1424;

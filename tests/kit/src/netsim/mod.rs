//! A seeded link in virtual time between two packet interfaces.
//!
//! A [`Link`] joins the [`Wire`](xwarp_driver::Wire)s of two [`MemoryIo`](xwarp_driver::MemoryIo)s.
//! It takes the frames that one end sent and delivers them to the other. They arrive later, twice,
//! out of order, damaged or not at all, as its [`Conditions`] say. It has no clock: the simulation
//! passes the time, and asks when the next frame arrives. All that is random comes from a [`Seed`],
//! so that the same seed and the same traffic give the same fate to every frame.
//!
//! ```
//! use std::time::Duration;
//! use xwarp_driver::{MemoryIo, PacketIo};
//! use xwarp_test_kit::netsim::{Link, Seed};
//!
//! let (mut a, wire_a) = MemoryIo::new(8).unwrap();
//! let (mut b, wire_b) = MemoryIo::new(8).unwrap();
//! let mut link = Link::new(Seed(7), wire_a, wire_b).one_way_delay(Duration::from_millis(1));
//!
//! let mut frame = a.tx_frame().unwrap();
//! frame.set_len(60);
//! a.send(frame);
//! link.carry(Duration::ZERO);
//! assert_eq!(link.next_arrival(), Some(Duration::from_millis(1)));
//! link.carry(Duration::from_millis(1));
//! let mut received = Vec::new();
//! b.receive(8, &mut received);
//! assert_eq!(received.len(), 1);
//! ```
mod conditions;
mod direction;
mod ecn;
mod lane;
mod link;
mod rng;
mod trace;

pub use conditions::Conditions;
pub use direction::Direction;
pub use lane::{Lane, LaneCounters};
pub use link::{Link, Source};
pub use rng::{Rng, Seed};
pub use trace::{Fate, Sighting, Trace};

//! A link that loses, repeats, reorders and marks TCP segments, for tests between real hosts; this
//! kernel needs no netem for it.
//!
//! The hosts are joined by a bridge. An XDP program ([`Impairment`]) on a port of the bridge loses
//! some of the segments that come in there. It diverts others to a delay line. That is a veth pair
//! with one end in the bridge as well. A thread ([`DelayLine`]) at the other end sends each frame
//! back twice, or late. Which frames it takes is decided by the seed and the order in which frames
//! come; when a late frame arrives depends on the machine.
//!
//! A [`Bridged`] is two hosts, each a thread in a network namespace of its own, on such a bridge.
//! [`Routed`] has a router between them whose second link is narrow. [`Flood`] sends what hostile
//! stations would. Needs root.

mod bridged;
mod delay_line;
mod flood;
mod host;
mod impairment;
mod ports;
mod routed;
mod rule;

pub use bridged::{Bridged, Impaired};
pub use delay_line::DelayLine;
pub use flood::{Flood, Flooded, Hostile};
pub use host::{DEV, HostThread};
pub use impairment::{Fates, ImpairError, Impairment};
pub use ports::{ImpairedPorts, add_delay_line, remove_delay_line};
pub use routed::Routed;
pub use rule::Rule;
pub use xwarp_test_kit::Side;

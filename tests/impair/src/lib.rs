//! A link that loses, repeats, reorders and marks TCP segments, for tests between real hosts; this kernel needs no netem for it.
//!
//! The hosts are joined by a bridge. An XDP program ([`Impairment`]) on a port of the bridge loses some of the segments that come in
//! there, and diverts others to a delay line: a veth pair one end of which is a port of the bridge as well, while a thread ([`DelayLine`]) at
//! the other end sends each frame back twice, or late. Which frames it takes is decided by the seed and the order in which frames
//! come; when a late frame arrives depends on the machine.
//!
//! A [`Lab`] is two hosts, each a thread in a network namespace of its own, on such a bridge; [`Routed`] has a router between them
//! whose second link is narrow. [`Flood`] sends what hostile stations would. Needs root.
#![forbid(unsafe_code)]

mod delay_line;
mod flood;
mod host;
mod impairment;
mod lab;
mod routed;
mod rule;

pub use delay_line::DelayLine;
pub use flood::{Flood, Flooded, Hostile};
pub use host::{DEV, HostThread};
pub use impairment::{Fates, ImpairError, Impairment};
pub use lab::{Impaired, Lab};
pub use routed::Routed;
pub use rule::Rule;
pub use xwarp_test_kit::Side;

//! Wire formats: Ethernet, IP, TCP and ICMP headers, parsed and written. This module knows no
//! connections.

mod checksum;
pub(crate) mod discard;
pub(crate) mod ethernet;
mod extensions;
pub(crate) mod flow;
pub(crate) mod icmp;
pub(crate) mod inbound;
mod ip_options;
pub(crate) mod outbound;
pub(crate) mod prediction;
pub(crate) mod seq;
pub(crate) mod template;

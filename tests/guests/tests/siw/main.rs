//! xwarp, the library on real `AF_XDP`, against the kernel's siw in a guest.

mod aims;
mod connecting;
mod depths;
mod endings;
mod handshake;
mod ipv6;
mod lossy;
mod many;
mod mtu;
mod operations;
mod packed;
mod pair;
mod parameters;
mod programs;
mod reads;
mod rping;
mod several;
mod siw_refuses;
mod sweep;
mod transfers;
mod vanish;
mod xwarp;
mod xwarp_refuses;

use pair::{Pair, Role, with_guest};

const PORT: u16 = 7471;

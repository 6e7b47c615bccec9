//! xwarp, the library on real `AF_XDP`, against the kernel's siw in a guest.

mod endings;
mod handshake;
mod lossy;
mod operations;
mod pair;
mod reads;
mod refused;
mod rping;
mod several;
mod xwarp;

use pair::{Pair, Role, with_guest};

const PORT: u16 = 7471;

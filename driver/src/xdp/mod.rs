//! One queue of one interface by AF_XDP.

mod bind;
mod depth;
mod io;
mod joined;
mod receive_chunks;
mod rings;
mod rows;
mod stall;
#[cfg(test)]
mod tests;

pub(crate) use bind::Target;
pub use bind::{OpenQueueError, ZeroCopy};
pub(crate) use io::XdpIo;
pub(crate) use rings::LENT_LEAST;

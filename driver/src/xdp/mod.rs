//! One queue of one interface by AF_XDP, in copy mode.

mod bind;
mod depth;
mod io;
mod joined;
mod receive_chunks;
mod rings;
mod rows;

pub use bind::OpenQueueError;
pub(crate) use bind::Target;
pub(crate) use io::XdpIo;

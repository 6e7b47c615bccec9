//! One queue of one interface by AF_XDP: its UMEM, its rings, and the socket that the kernel offers
//! (`xsk`).

mod bind;
pub(crate) mod busy_poll;
mod depth;
mod io;
mod joined;
mod receive_chunks;
mod rings;
mod rows;
mod stall;
#[cfg(test)]
mod tests;
pub(crate) mod umem;
mod xsk;

use std::error::Error;

pub(crate) use bind::Target;
pub use bind::{OpenQueueError, ZeroCopy};
pub use busy_poll::{BusyPollError, InterruptDeferral, Polling};
pub(crate) use io::XdpIo;
pub(crate) use rings::LENT_LEAST;
pub use umem::{FRAME_CAPACITY, UmemError};
pub(crate) use xsk::{Computes, TxMetadata};

/// An error and all that it says of its causes, in one line.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

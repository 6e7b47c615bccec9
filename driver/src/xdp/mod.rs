//! One queue of one interface by AF_XDP, in copy mode.

mod bind;
mod depth;
mod joined;
mod multi;
mod receive_chunks;
mod rings;
mod single;

use std::os::fd::AsFd;

use xwarp_bpf::Buffers;

use crate::packet_io::PacketIo;
use crate::umem::QueueMemory;

pub use bind::OpenQueueError;
pub(crate) use bind::Target;

/// A queue, and the socket behind it for the XSKMAP.
pub(crate) trait XdpQueue: PacketIo + AsFd {}

impl<T: PacketIo + AsFd> XdpQueue for T {}

/// Opens a queue for frames of at most `bytes`.
pub(crate) fn open(
    target: &Target<'_>,
    bytes: usize,
    memory: QueueMemory,
) -> Result<Box<dyn XdpQueue>, OpenQueueError> {
    Ok(match target.frames {
        Buffers::One => Box::new(single::XdpIo::open(target, memory)?),
        Buffers::Many => Box::new(multi::MultiBufferIo::open(target, bytes, memory)?),
    })
}

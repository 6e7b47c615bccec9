//! The driver itself as base: it maps the memory, and speaks to the kernel by system calls.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc;

use super::socket::{
    Bind, CHUNK_BYTES, Computes, MemoryRequest, Queue, Registered, RingSet, Socket, TxMetadata,
    len_of,
};
use crate::memory::{Arena, Pages, SharedMapping};

pub(crate) use super::socket::Socket as BoundSocket;

/// Memory that is to be registered as UMEM.
struct Area {
    address: u64,
    bytes: u64,
    /// Bytes of a chunk; each chunk holds a frame, or a piece of one.
    chunk: u32,
    /// Metadata in front of frames to send, if there can be any.
    metadata: Option<TxMetadata>,
}

impl Area {
    /// The same memory, with such metadata.
    fn with(&self, metadata: TxMetadata) -> Self {
        Self {
            metadata: Some(metadata),
            ..*self
        }
    }
}

impl TxMetadata {
    fn flags(self) -> u32 {
        let by_kernel = match self.computes {
            Computes::Nic => 0,
            Computes::Kernel => libc::XDP_UMEM_TX_SW_CSUM,
        };
        libc::XDP_UMEM_TX_METADATA_LEN | by_kernel
    }
}

impl Socket {
    fn open() -> io::Result<Self> {
        // SAFETY: the call has no memory of ours.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let fd = Errno::result(fd)?;
        // SAFETY: the kernel has just given us this descriptor, and no other code knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self::from(fd))
    }

    /// Registers the memory that frames lie in. The kernel pins it, and reads and writes only what
    /// the rings name.
    fn register(&self, area: &Area) -> io::Result<()> {
        let registration = libc::xdp_umem_reg {
            addr: area.address,
            len: area.bytes,
            chunk_size: area.chunk,
            headroom: 0,
            flags: area.metadata.map_or(0, TxMetadata::flags),
            tx_metadata_len: area.metadata.map_or(0, |metadata| metadata.bytes),
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
    }

    /// Makes the kernel create the four rings, of `entries` each.
    fn make_rings(&self, entries: u32) -> io::Result<()> {
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            self.set(libc::SOL_XDP, ring, &entries)?;
        }
        Ok(())
    }

    fn bind(&self, queue: &Queue) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).map_err(io::Error::other)?,
            sxdp_flags: queue.flags,
            sxdp_ifindex: queue.interface,
            sxdp_queue_id: queue.number,
            sxdp_shared_umem_fd: 0,
        };
        let (start, len) = (ptr::from_ref(&address).cast(), len_of(&address));
        // SAFETY: the kernel reads `len` bytes, which are the address's own.
        let bound = unsafe { libc::bind(self.as_fd().as_raw_fd(), start, len) };
        Ok(Errno::result(bound).map(drop)?)
    }
}

/// The driver's own socket, with the rings that the kernel makes before it is bound.
pub(crate) struct Unbound {
    socket: Socket,
    rings: RingSet,
}

impl Bind for Unbound {
    type Socket = Socket;

    fn bind(self, queue: &Queue) -> Result<(Socket, RingSet), (Self, io::Error)> {
        match self.socket.bind(queue) {
            Ok(()) => Ok((self.socket, self.rings)),
            Err(error) => Err((self, error)),
        }
    }
}

/// Maps memory, and registers it with a new socket.
pub(crate) fn register(wanted: &MemoryRequest) -> io::Result<Registered<Unbound>> {
    let bytes = wanted.bytes;
    let socket = Socket::open()?;
    let mut mapping = Err(io::ErrorKind::InvalidInput.into());
    for &pages in Pages::tried_for(bytes) {
        mapping = registered(&socket, pages, wanted);
        match &mapping {
            Ok(_) => log::debug!("{bytes} bytes of packet memory: {pages:?} pages"),
            Err(error) => log::debug!("no {pages:?} pages of packet memory: {error}"),
        }
        if mapping.is_ok() {
            break;
        }
    }
    let (mapping, takes_requests) = mapping?;
    let base = mapping.start();
    socket.make_rings(wanted.ring)?;
    let rings = socket.map_rings(wanted.ring)?;
    socket.take_all_at_once(wanted.ring)?;
    // SAFETY: the mapping has `bytes` bytes from `base` on, zeroed at first. Its bytes are reached
    // only through the frames and regions cut from the arena, and by the kernel through the rings.
    let arena = unsafe { Arena::new(base, bytes, Box::new(mapping)) };
    Ok(Registered {
        arena,
        unbound: Unbound { socket, rings },
        takes_requests,
    })
}

/// Maps such pages and registers them. The kernel pins all of them, so that they must be there.
/// Whether it takes metadata, too.
fn registered(
    socket: &Socket,
    pages: Pages,
    wanted: &MemoryRequest,
) -> io::Result<(SharedMapping, bool)> {
    let mapping = SharedMapping::new(wanted.bytes, pages, wanted.node)?;
    let plain = Area {
        address: mapping.start().addr().get() as u64,
        bytes: wanted.bytes as u64,
        chunk: CHUNK_BYTES,
        metadata: None,
    };
    let described = wanted.metadata.is_some_and(|metadata| {
        let registered = socket.register(&plain.with(metadata));
        if let Err(error) = &registered {
            log::debug!("no metadata of frames to send: {error}");
        }
        registered.is_ok()
    });
    if !described {
        socket.register(&plain)?;
    }
    Ok((mapping, described))
}

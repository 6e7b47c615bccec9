//! The crate xsk-rs as base: it maps and registers the memory, has the kernel make the rings, and
//! binds the socket. Our rings then lie over the same pages, mapped once more.
//!
//! It has no metadata in front of frames to send, and no memory near the NIC. It cannot name the
//! places where pieces of frames begin, so its own access to the rings is not used
//! (decision record driver/0017).
#![allow(unsafe_code)]

use std::error::Error;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use nix::libc;
use xsk_rs::config::{
    BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig,
};
use xsk_rs::{CompQueue, FillQueue, RxQueue, TxQueue, Umem};

use super::socket::{
    Bind, CHUNK_BYTES, Calls, MemoryRequest, Queue, Registered, RingSet, Socket, TxMetadata,
};
use crate::memory::Arena;

/// Memory that the kernel knows, of which a socket is made when it is bound.
pub(crate) struct Unbound {
    umem: Umem,
    /// Entries of each ring.
    entries: u32,
}

/// A bound socket. It goes when all of the library's queues have gone.
pub(crate) struct BoundSocket {
    tx: TxQueue,
    rx: RxQueue,
    _memory_rings: Option<(FillQueue, CompQueue)>,
    /// For what the library has no call.
    calls: Socket,
}

/// Makes the library map memory and register it.
pub(crate) fn register(wanted: &MemoryRequest) -> io::Result<Registered<Unbound>> {
    let bytes = wanted.bytes;
    if let Some(node) = wanted.node {
        log::debug!("memory is not asked for near node {node}: xsk-rs knows none");
    }
    if let Some(TxMetadata { bytes, computes }) = wanted.metadata {
        log::debug!("no {bytes} bytes of metadata for {computes:?}: xsk-rs knows none");
    }
    let chunks = u32::try_from(bytes / CHUNK_BYTES as usize).ok();
    let chunks = chunks
        .and_then(NonZeroU32::new)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let config = UmemConfig::builder()
        .frame_size(FrameSize::new(CHUNK_BYTES).map_err(io::Error::other)?)
        .fill_queue_size(queue_size(wanted.ring)?)
        .comp_queue_size(queue_size(wanted.ring)?)
        .build()
        .map_err(io::Error::other)?;
    let (umem, frames) = Umem::new(config, chunks, false).map_err(|error| cause(&error))?;
    let first = frames.first().ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the frame is the memory's first. No code has lent it to the kernel, and none writes
    // to it while its address is asked for.
    let data = unsafe { umem.data(first) };
    let base = data.contents().as_ptr().addr() - first.addr();
    // The library got the mapping from the kernel, and returns only the addresses of frames.
    let base = ptr::with_exposed_provenance_mut(base);
    let base = NonNull::new(base).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the library has mapped `chunks` chunks of zeros there, and unmaps them only when the
    // last `Umem` has gone, of which the arena has one. From here on the bytes are reached only
    // through the frames and regions cut from the arena, and by the kernel through the rings.
    let arena = unsafe { Arena::new(base, bytes, Box::new(umem.clone())) };
    Ok(Registered {
        arena,
        unbound: Unbound {
            umem,
            entries: wanted.ring,
        },
        takes_requests: false,
    })
}

fn queue_size(entries: u32) -> io::Result<QueueSize> {
    QueueSize::new(entries).map_err(io::Error::other)
}

/// The kernel's error, if there is one: callers check its number.
fn cause(error: &(dyn Error + 'static)) -> io::Error {
    let said = error.source().and_then(|cause| cause.downcast_ref());
    let number = said.and_then(io::Error::raw_os_error);
    number.map_or_else(
        || io::Error::other(error.to_string()),
        io::Error::from_raw_os_error,
    )
}

impl Unbound {
    fn socket(&self, queue: &Queue) -> io::Result<BoundSocket> {
        let config = SocketConfig::builder()
            .rx_queue_size(queue_size(self.entries)?)
            .tx_queue_size(queue_size(self.entries)?)
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(BindFlags::from_bits_retain(queue.flags))
            .build();
        let interface = Interface::new(nix::net::if_::if_indextoname(queue.interface)?);
        // SAFETY: no other socket shares this memory, and no program is loaded by the library.
        let made = unsafe { xsk_rs::Socket::new(config, &self.umem, &interface, queue.number) };
        let (tx, rx, memory_rings) = made.map_err(|error| cause(&error))?;
        // SAFETY: the library closes the descriptor with the last of its queues, and `tx` is one.
        let descriptor = unsafe { BorrowedFd::borrow_raw(tx.fd().as_raw_fd()) };
        let calls = Socket::from(descriptor.try_clone_to_owned()?);
        calls.take_all_at_once(self.entries)?;
        Ok(BoundSocket {
            tx,
            rx,
            _memory_rings: memory_rings,
            calls,
        })
    }
}

impl Bind for Unbound {
    type Socket = BoundSocket;

    fn bind(self, queue: &Queue) -> Result<(BoundSocket, RingSet), (Self, io::Error)> {
        let bound = self.socket(queue);
        let bound = bound.and_then(|socket| {
            let rings = socket.calls.map_rings(self.entries)?;
            Ok((socket, rings))
        });
        bound.map_err(|error| (self, error))
    }
}

impl Calls for BoundSocket {
    fn transmit(&self) -> io::Result<()> {
        self.tx.wakeup()
    }

    fn receive(&self) -> io::Result<()> {
        self.calls.receive()
    }

    fn has_zero_copy(&self) -> io::Result<bool> {
        self.calls.has_zero_copy()
    }

    fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        let counted = self.rx.fd().xdp_statistics()?;
        Ok(libc::xdp_statistics {
            rx_dropped: counted.rx_dropped(),
            rx_invalid_descs: counted.rx_invalid_descs(),
            tx_invalid_descs: counted.tx_invalid_descs(),
            rx_ring_full: counted.rx_ring_full(),
            rx_fill_ring_empty_descs: counted.rx_fill_ring_empty_descs(),
            tx_ring_empty_descs: counted.tx_ring_empty_descs(),
        })
    }

    fn poll_busily(&self) -> io::Result<bool> {
        self.calls.poll_busily()
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.calls.as_fd()
    }
}

//! One mapping registered with the kernel: frames first, then the region area.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::frame::{Arena, Frame, Layout};
use crate::region::RegionPool;
use crate::xsk::{RingSet, Socket, UmemArea};

/// Bytes between two frames: one page, the largest chunk that the kernel takes.
pub(crate) const CHUNK: usize = CHUNK_BYTES as usize;
const CHUNK_BYTES: u32 = 4096;
/// Bytes of a chunk that the kernel keeps for itself ahead of a received frame (`XDP_PACKET_HEADROOM`).
const KERNEL_HEADROOM: usize = 256;
/// Bytes of a chunk that a frame can use.
pub const FRAME_CAPACITY: usize = CHUNK - KERNEL_HEADROOM;

/// Why the memory of a queue could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UmemError {
    /// A size is not what the kernel takes.
    #[error("{0} is not a usable size for frames and rings: {1}")]
    Size(usize, &'static str),
    /// No privilege.
    #[error("AF_XDP needs root, or CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN")]
    NotPermitted,
    /// The kernel refused the memory.
    #[error(
        "the kernel would not take {bytes} bytes of packet memory: {reason}; without CAP_IPC_LOCK the limit is `ulimit -l`"
    )]
    Register {
        /// Bytes of frames and regions.
        bytes: usize,
        /// What the kernel said.
        reason: String,
    },
}

/// A socket with its part of the registered memory. It is not bound to a queue yet.
pub(crate) struct QueueMemory {
    pub(crate) socket: Socket,
    pub(crate) rings: RingSet,
    /// What the chunks lie in.
    pub(crate) arena: Arc<Arena>,
    /// The chunks, by number.
    pub(crate) chunks: Vec<Frame>,
}

/// Maps and registers `frames` frames and at least `region_bytes` bytes of region area, and makes rings of `ring` entries.
pub(crate) fn create(
    frames: u32,
    ring: u32,
    region_bytes: usize,
) -> Result<(QueueMemory, RegionPool), UmemError> {
    let frame_count = frames as usize;
    let chunks = frame_count + region_bytes.div_ceil(CHUNK);
    let bytes = chunks.saturating_mul(CHUNK);
    if frame_count == 0 {
        return Err(UmemError::Size(bytes, "there must be at least one frame"));
    }
    if !ring.is_power_of_two() {
        let reason = "a ring has a power of two of entries";
        return Err(UmemError::Size(ring as usize, reason));
    }
    let (arena, socket, rings) = register(bytes, ring).map_err(|error| refusal(&error, bytes))?;
    let (arena, chunks) = arena.into_frames(&Layout {
        first: KERNEL_HEADROOM,
        count: frame_count,
        capacity: FRAME_CAPACITY,
        stride: CHUNK,
    });
    let (mapping, begin) = (Arc::clone(&arena), frame_count * CHUNK);
    // SAFETY: the frames end at `frame_count * CHUNK`, where the region area begins, and no ring ever sees a descriptor of it.
    let regions = unsafe { RegionPool::new(mapping, begin, bytes - begin) };
    let memory = QueueMemory {
        socket,
        rings,
        arena,
        chunks,
    };
    Ok((memory, regions))
}

/// Maps memory, and registers it with a new socket.
fn register(bytes: usize, ring: u32) -> io::Result<(Arena, Socket, RingSet)> {
    let socket = Socket::open()?;
    let mapping = SharedMapping::new(bytes)?;
    let base = mapping.start.cast();
    socket.register(&UmemArea {
        address: base.addr().get() as u64,
        bytes: bytes as u64,
        chunk: CHUNK_BYTES,
    })?;
    let rings = socket.rings(ring)?;
    // SAFETY: the mapping has `bytes` bytes from `base` on, zeroed at first. Its bytes are reached only through the frames and regions cut
    // from the arena, and by the kernel through the rings.
    let arena = unsafe { Arena::new(base, bytes, Box::new(mapping)) };
    Ok((arena, socket, rings))
}

fn refusal(error: &io::Error, bytes: usize) -> UmemError {
    match error.raw_os_error() {
        Some(nix::libc::EPERM) => UmemError::NotPermitted,
        _ => UmemError::Register {
            bytes,
            reason: crate::error_chain(error),
        },
    }
}

/// Anonymous memory that a forked child shares, so that a fork copies none of it: the kernel goes on writing where the parent reads.
struct SharedMapping {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: it is only an address and a length. The memory is reached through the arena that owns it.
unsafe impl Send for SharedMapping {}
// SAFETY: as for Send.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    fn new(bytes: usize) -> io::Result<Self> {
        let len = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // All pages at once, as the kernel pins them anyway.
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: the kernel chooses an address where nothing is.
        let start = unsafe { mmap_anonymous(None, len, protection, flags) }?;
        Ok(Self { start, bytes })
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and who reaches its memory keeps it from being dropped.
        let unmapped = unsafe { munmap(self.start, self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

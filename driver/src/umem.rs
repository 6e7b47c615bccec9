//! One mapping registered with the kernel: frames first, then the region area.
#![allow(unsafe_code)]

use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Arc;

use xsk_rs::config::{FrameSize, QueueSize, UmemConfig};
use xsk_rs::{FrameDesc, Umem};

use crate::frame::{Arena, Frame, Layout};
use crate::region::RegionPool;

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

/// A queue's part of the registered memory.
pub(crate) struct QueueMemory {
    pub(crate) umem: Umem,
    /// The kernel's view of each chunk, by number.
    pub(crate) descriptors: Vec<FrameDesc>,
    /// What the chunks lie in.
    pub(crate) arena: Arc<Arena>,
    /// Our view of the chunks, in the same order.
    pub(crate) chunks: Vec<Frame>,
}

/// Maps and registers `frames` frames and at least `region_bytes` bytes of region area.
pub(crate) fn create(
    frames: u32,
    ring: u32,
    region_bytes: usize,
) -> Result<(QueueMemory, RegionPool), UmemError> {
    let frame_count = frames as usize;
    let chunks = frame_count + region_bytes.div_ceil(CHUNK);
    let bytes = chunks.saturating_mul(CHUNK);
    let count = u32::try_from(chunks)
        .ok()
        .and_then(NonZeroU32::new)
        .ok_or(UmemError::Size(bytes, "at most 2^32 chunks of 4096 bytes"))?;
    let (umem, mut descriptors) =
        Umem::new(config(ring)?, count, false).map_err(|error| refusal(&error, bytes))?;
    let arena = arena_of(&umem, &descriptors, bytes)
        .ok_or(UmemError::Size(bytes, "there must be at least one frame"))?;
    let (arena, chunks) = arena.into_frames(&Layout {
        first: KERNEL_HEADROOM,
        count: frame_count,
        capacity: FRAME_CAPACITY,
        stride: CHUNK,
    });
    descriptors.truncate(frame_count);
    let (mapping, begin) = (Arc::clone(&arena), frame_count * CHUNK);
    // SAFETY: the frames end at `frame_count * CHUNK`, where the region area begins, and no ring ever sees a descriptor of it.
    let regions = unsafe { RegionPool::new(mapping, begin, bytes - begin) };
    let memory = QueueMemory {
        umem,
        descriptors,
        arena,
        chunks,
    };
    Ok((memory, regions))
}

fn refusal(error: &(dyn std::error::Error + 'static), bytes: usize) -> UmemError {
    match crate::errno_of(error) {
        Some(nix::libc::EPERM) => UmemError::NotPermitted,
        _ => UmemError::Register {
            bytes,
            reason: crate::error_chain(error),
        },
    }
}

fn config(ring: u32) -> Result<UmemConfig, UmemError> {
    let bad_ring = UmemError::Size(ring as usize, "a ring has a power of two of entries");
    let ring = QueueSize::new(ring).map_err(|_| bad_ring)?;
    let chunk = FrameSize::new(CHUNK_BYTES)
        .map_err(|_| UmemError::Size(CHUNK, "the kernel takes 2048 or 4096"))?;
    UmemConfig::builder()
        .frame_size(chunk)
        .fill_queue_size(ring)
        .comp_queue_size(ring)
        .build()
        .map_err(|_| UmemError::Size(CHUNK, "no room beside the headroom"))
}

/// The arena of the whole mapping. xsk-rs names no base address, but a frame's address less its offset is it.
fn arena_of(umem: &Umem, descriptors: &[FrameDesc], bytes: usize) -> Option<Arena> {
    let first = descriptors.first()?;
    // SAFETY: the descriptor is this UMEM's and no ring has it yet; only the address is taken from the view, which has no bytes.
    let data = unsafe { umem.data(first) };
    let address = data.contents().as_ptr().addr().checked_sub(first.addr())?;
    // The view's own pointer may neither leave the view nor write. But the mapping is memory that `mmap` made outside of the language's
    // own, and libxdp has given its address to the kernel as an integer: its provenance is exposed, for all of its bytes.
    let base = NonNull::new(std::ptr::with_exposed_provenance_mut(address))?;
    // SAFETY: the mapping has `bytes` bytes from `base` on, zeroed at first, and the UMEM handle keeps it mapped. Its bytes are reached
    // only through the frames and regions cut here, by the kernel through the rings, and by xsk-rs when we ask it for a view of a
    // frame that is ours.
    Some(unsafe { Arena::new(base, bytes, Box::new(umem.clone())) })
}

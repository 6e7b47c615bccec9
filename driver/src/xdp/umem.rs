//! One mapping registered with the kernel: frames first, then the region area (decision record
//! driver/0002).
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;

#[cfg(test)]
use super::xsk::RingSet;
#[cfg(test)]
use super::xsk::double::{Kernel, UnboundKernel};
use super::xsk::{CHUNK_BYTES, MemoryRequest, TxMetadata, Unbound, register};
use crate::attach::user_namespace::{NOT_INITIAL, in_initial_user_namespace};
use crate::memory::{Arena, RegionPool};
use crate::packet_io::{Frame, Layout};

/// Bytes between two frames.
pub(crate) const CHUNK: usize = CHUNK_BYTES as usize;
/// Bytes of a chunk that the kernel keeps for itself ahead of a received frame
/// (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Bytes of a chunk that a frame can use.
pub const FRAME_CAPACITY: usize = CHUNK - HEADROOM;
/// Chunks that the kernel takes for a frame: on some interfaces as many pages as a packet has
/// (`MAX_SKB_FRAGS`), on others one more.
const RUN_MAX: usize = 17;
/// Frames to send that there are at least, if each takes several chunks.
const LARGE_FRAMES_MIN: usize = 128;

/// Why the memory of a queue could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UmemError {
    /// The kernel does not accept this size.
    #[error("{0} is not a usable size for frames and rings: {1}")]
    Size(usize, &'static str),
    /// The process lacks privileges.
    #[error("AF_XDP needs root, or CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN")]
    NotPermitted,
    /// Privileges do not help, as they belong to a user namespace other than the initial one.
    #[error("{NOT_INITIAL}")]
    UserNamespace,
    /// The kernel refused the memory.
    #[error(
        "the kernel would not take {bytes} bytes of packet memory: {reason}; free some, or raise a limit: of the control group, of the address space (`ulimit -v`), or without CAP_IPC_LOCK of locked memory (`sudo prlimit --pid $$ --memlock=unlimited`)"
    )]
    Register {
        /// Size of frames and regions in bytes.
        bytes: usize,
        /// Error from the kernel.
        reason: String,
    },
}

/// A socket with its part of the registered memory. It is not bound to a queue yet.
pub(crate) struct QueueMemory<B = Unbound> {
    pub(crate) unbound: B,
    /// The memory of the frames.
    pub(crate) arena: Arc<Arena>,
    /// The chunks to receive into, by number.
    pub(crate) receive: Vec<Frame>,
    /// The frames to send, which lie behind those chunks.
    pub(crate) transmit: Vec<Frame>,
    /// Chunks of a frame to send. They lie side by side, so that the frame is one piece of memory.
    pub(crate) run: usize,
    /// Chunks that the driver's receive ring takes in zero copy.
    pub(crate) posted: usize,
    /// The kernel takes requests in front of frames to send.
    pub(crate) takes_requests: bool,
}

/// Sizes of a queue's memory.
pub(crate) struct UmemSpec {
    /// Chunks to receive into.
    pub(crate) receive: u32,
    /// Chunks for frames to send; none for a queue that only receives.
    pub(crate) transmit: u32,
    /// Bytes of the largest frame.
    pub(crate) frame_bytes: usize,
    /// Entries of each ring.
    pub(crate) ring: u32,
    /// Chunks that the driver's receive ring takes in zero copy.
    pub(crate) posted: u32,
    /// Bytes of the region area at least.
    pub(crate) region_bytes: usize,
    /// The memory node of the NIC, where there are several.
    pub(crate) node: Option<u32>,
    /// Metadata that frames to send may have in front.
    pub(crate) metadata: Option<TxMetadata>,
}

/// Chunks that a frame to send takes. Like those that are received, it begins behind the headroom,
/// so that a frame of either kind takes one chunk up to the same size.
pub(crate) fn chunks_of(frame_bytes: usize) -> usize {
    (HEADROOM + frame_bytes).div_ceil(CHUNK)
}

impl UmemSpec {
    fn check(&self) -> Result<(), UmemError> {
        let (ring, run) = (self.ring as usize, chunks_of(self.frame_bytes));
        let refuse = |size, reason| Err(UmemError::Size(size, reason));
        if self.receive == 0 {
            return refuse(0, "there must be at least one frame");
        }
        if !ring.is_power_of_two() {
            return refuse(ring, "a ring has a power of two of entries");
        }
        if run > RUN_MAX {
            return refuse(self.frame_bytes, "a frame has at most 17 chunks");
        }
        if ring < run {
            return refuse(ring, "a ring has an entry for each chunk of a frame");
        }
        Ok(())
    }

    /// The metadata of frames to send, where each is one chunk. Of several, all but the first begin
    /// where their chunks do, and the kernel wants room in front of every one.
    fn metadata(&self) -> Option<TxMetadata> {
        let one_chunk = self.transmit > 0 && chunks_of(self.frame_bytes) == 1;
        self.metadata.filter(|_| one_chunk)
    }

    /// Where the chunks to receive into lie, and the frames to send.
    fn layouts(&self) -> [Layout; 2] {
        let (receive, transmit) = (self.receive as usize, self.transmit as usize);
        let run = chunks_of(self.frame_bytes);
        let least = match run {
            2.. if transmit > 0 => LARGE_FRAMES_MIN,
            _ => 0,
        };
        [
            Layout {
                first: HEADROOM,
                count: receive,
                capacity: FRAME_CAPACITY,
                stride: CHUNK,
            },
            Layout {
                first: receive * CHUNK + HEADROOM,
                count: (transmit / run).max(least),
                capacity: run * CHUNK - HEADROOM,
                stride: run * CHUNK,
            },
        ]
    }
}

/// Maps and registers memory for frames and regions, and makes the rings.
pub(crate) fn create(wanted: &UmemSpec) -> Result<(QueueMemory, RegionPool), UmemError> {
    wanted.check()?;
    let layouts = wanted.layouts();
    let [receive, transmit] = &layouts;
    let (receive, run) = (receive.count, transmit.stride / CHUNK);
    let frame_chunks = receive + transmit.count * run;
    let chunks = frame_chunks + wanted.region_bytes.div_ceil(CHUNK);
    let (bytes, begin) = (chunks.saturating_mul(CHUNK), frame_chunks * CHUNK);
    let registered = register(&MemoryRequest {
        bytes,
        ring: wanted.ring,
        node: wanted.node,
        metadata: wanted.metadata(),
    });
    let registered = registered.map_err(|error| refusal(&error, bytes))?;
    let (arena, mut frames) = registered.arena.into_frames(&layouts, HEADROOM);
    let mapping = Arc::clone(&arena);
    // SAFETY: the frames end at `begin`, where the region area begins, and no ring ever sees a
    // descriptor of it.
    let regions = unsafe { RegionPool::new(mapping, begin, bytes - begin) };
    let transmit = frames.split_off(receive);
    let memory = QueueMemory {
        unbound: registered.unbound,
        arena,
        receive: frames,
        transmit,
        run,
        posted: wanted.posted as usize,
        takes_requests: registered.takes_requests,
    };
    Ok((memory, regions))
}

/// Memory of a queue whose kernel is a double. The double is shown it, and takes metadata where
/// there may be some.
#[cfg(test)]
pub(crate) fn on_double(
    wanted: &UmemSpec,
    kernel: &Kernel,
    rings: RingSet,
) -> QueueMemory<UnboundKernel> {
    wanted.check().unwrap();
    let layouts = wanted.layouts();
    let [receive, transmit] = &layouts;
    let (receive, run) = (receive.count, transmit.stride / CHUNK);
    let bytes = (receive + transmit.count * run) * CHUNK;
    let (arena, mut frames) = (Arena::anonymous(bytes).unwrap()).into_frames(&layouts, HEADROOM);
    let transmit = frames.split_off(receive);
    kernel.register(&arena);
    QueueMemory {
        unbound: UnboundKernel {
            kernel: kernel.clone(),
            rings,
        },
        arena,
        receive: frames,
        transmit,
        run,
        posted: wanted.posted as usize,
        takes_requests: wanted.metadata().is_some(),
    }
}

fn refusal(error: &io::Error, bytes: usize) -> UmemError {
    match error.raw_os_error() {
        // A limit of locked memory is only the first thing that is in the way there.
        Some(nix::libc::EPERM | nix::libc::ENOBUFS) if !in_initial_user_namespace() => {
            UmemError::UserNamespace
        }
        Some(nix::libc::EPERM) => UmemError::NotPermitted,
        _ => UmemError::Register {
            bytes,
            reason: super::error_chain(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::xsk::Computes;

    fn wanted(chunks: u32, frame_bytes: usize, ring: u32) -> UmemSpec {
        UmemSpec {
            receive: chunks / 2,
            transmit: chunks / 2,
            frame_bytes,
            ring,
            posted: 0,
            region_bytes: 0,
            node: None,
            metadata: Some(TxMetadata {
                bytes: 24,
                computes: Computes::Nic,
            }),
        }
    }

    #[test]
    fn frames_have_room_and_lie_behind_the_chunks_to_receive_into() {
        let expected = [(FRAME_CAPACITY, 1, 2048), (9022, 3, 682), (65_557, 17, 128)];
        for (bytes, run, count) in expected {
            let [receive, transmit] = wanted(4096, bytes, 2048).layouts();
            assert_eq!((receive.count, receive.stride), (2048, CHUNK));
            assert_eq!((transmit.count, transmit.stride), (count, run * CHUNK));
            assert_eq!(transmit.first, 2048 * CHUNK + HEADROOM);
            assert!(transmit.capacity >= bytes);
        }
    }

    #[test]
    fn queue_that_only_receives_has_no_frames_to_send() {
        for bytes in [FRAME_CAPACITY, 65_557] {
            let wanted = UmemSpec {
                transmit: 0,
                ..wanted(4096, bytes, 2048)
            };
            let [receive, transmit] = wanted.layouts();
            assert_eq!((receive.count, transmit.count), (2048, 0));
        }
    }

    #[test]
    fn frames_of_one_chunk_that_are_sent_may_have_metadata() {
        assert!(wanted(64, FRAME_CAPACITY, 64).metadata().is_some());
        assert!(wanted(64, FRAME_CAPACITY + 1, 64).metadata().is_none());
        assert!(wanted(0, 1500, 64).metadata().is_none(), "none are sent");
    }

    #[test]
    fn sizes_that_the_kernel_would_not_take_are_refused() {
        let refused = [
            (wanted(0, 1500, 64), "one frame"),
            (wanted(64, 1500, 48), "power of two"),
            (wanted(64, 17 * CHUNK, 64), "17 chunks"),
            (wanted(64, 65_557, 16), "an entry for each chunk"),
        ];
        for (wanted, why) in refused {
            let error = wanted.check().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(wanted(64, 65_557, 32).check().is_ok());
    }
}

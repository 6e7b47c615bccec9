//! An open queue whose kernel is a double.

mod opening;
mod receiving;
mod sending;
mod waking;

use nix::libc;
use xwarp_bpf::Buffers;
use xwarp_test_kit::{cases, pattern_of};

use super::{OpenQueueError, Target, XdpIo, ZeroCopy};
use crate::packet_io::{PacketIo, RxFrame, TxFrame};
use crate::xdp::umem::{CHUNK, FRAME_CAPACITY, UmemSpec, on_double};
use crate::xdp::xsk::double::Kernel;
use crate::xdp::xsk::{Computes, Descriptor, TxMetadata};

/// Bytes ahead of a received frame in its chunk.
const HEADROOM: u64 = (CHUNK - FRAME_CAPACITY) as u64;
/// Bytes of a frame at an MTU of 1500, and at one of 9000.
const SMALL: usize = 1514;
const LARGE: usize = 9014;
/// Chunks to receive into, if nothing else is said.
const CHUNKS: usize = 1024;

/// The memory of a queue with 8 frames to send.
fn wanted() -> UmemSpec {
    UmemSpec {
        receive: 1024,
        transmit: 8,
        frame_bytes: SMALL,
        ring: 1024,
        posted: 0,
        region_bytes: 0,
        node: None,
        metadata: None,
    }
}

fn target() -> Target<'static> {
    Target {
        interface: "eth0",
        index: 3,
        queue: 1,
        zero_copy: ZeroCopy::Try,
        frames: Buffers::One,
        receives_icmp: false,
    }
}

/// An open queue and its kernel, which holds the chunks that it has taken.
struct Bed {
    kernel: Kernel,
    io: XdpIo<Kernel>,
    chunks: Vec<u64>,
}

impl Bed {
    fn new() -> Self {
        Self::of(&wanted())
    }

    fn of(wanted: &UmemSpec) -> Self {
        Self::open(&target(), wanted, |_| ()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens a queue at a kernel that is prepared for it.
    fn open(
        target: &Target<'_>,
        wanted: &UmemSpec,
        prepare: impl FnOnce(&Kernel),
    ) -> Result<Self, OpenQueueError> {
        let (kernel, rings) = Kernel::new(wanted.ring);
        prepare(&kernel);
        let memory = on_double(wanted, &kernel, rings);
        Ok(Self {
            io: XdpIo::open(target, wanted.frame_bytes, memory)?,
            kernel,
            chunks: Vec::new(),
        })
    }

    /// Has the kernel take all chunks that it has been given; how many it has to receive into.
    fn fill(&mut self) -> usize {
        self.chunks.extend(self.kernel.take_chunks(usize::MAX));
        self.chunks.len()
    }

    /// A frame arrives.
    fn deliver(&mut self, bytes: &[u8]) {
        self.deliver_piece(bytes, false);
    }

    fn deliver_piece(&mut self, bytes: &[u8], more: bool) {
        let chunk = self.next_chunk();
        self.kernel.receive_at(chunk + HEADROOM, bytes, more);
    }

    /// The chunk that the kernel fills next.
    fn next_chunk(&mut self) -> u64 {
        self.fill();
        assert!(!self.chunks.is_empty(), "the kernel has no chunk left");
        self.chunks.remove(0)
    }

    fn receive(&mut self) -> Vec<RxFrame> {
        let mut frames = Vec::new();
        self.io.receive(usize::MAX, &mut frames);
        frames
    }

    /// Receives what has arrived, and gives it back; how many frames.
    fn pass(&mut self) -> usize {
        let frames = self.receive();
        let count = frames.len();
        self.give_back(frames);
        self.io.flush().unwrap();
        count
    }

    fn give_back(&mut self, frames: Vec<RxFrame>) {
        for frame in frames {
            self.io.recycle(frame);
        }
    }

    /// Asserts that `held` chunks to receive into are held, and that the rest are lent or spare.
    fn assert_held(&self, held: u64) {
        let levels = self.io.levels();
        let elsewhere = levels.rx_chunks_lent + levels.rx_chunks_spare;
        assert_eq!(levels.rx_chunks_held, held);
        assert_eq!(elsewhere + held, CHUNKS as u64);
    }

    /// A frame that holds `bytes`.
    fn frame(&mut self, bytes: &[u8]) -> TxFrame {
        let mut frame = self.io.tx_frame().expect("a frame");
        frame.set_len(bytes.len());
        frame.copy_from_slice(bytes);
        frame
    }

    /// Sends a frame, which stays in the queue until a flush.
    fn send(&mut self, bytes: &[u8]) {
        let frame = self.frame(bytes);
        self.io.send(frame);
    }

    /// Has the kernel send all that was given to it, and complete none of it: the addresses.
    fn take_sent(&self) -> Vec<u64> {
        let pieces = self.kernel.take_pieces(usize::MAX);
        pieces.iter().map(Descriptor::addr).collect()
    }

    /// Has the kernel send all that was given to it, and complete it.
    fn complete_all(&self) {
        (self.take_sent().iter()).for_each(|sent| self.kernel.complete(*sent));
    }
}

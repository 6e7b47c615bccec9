//! A queue whose frames may take several chunks.
//!
//! The kernel takes a large frame as a row of descriptors, each within its chunk and behind the chunk's headroom. So what lies in one piece
//! for us must be copied there and back. A frame that arrives in one chunk is read where it is.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use super::bind::{OpenQueueError, Target};
use super::joined::Joiner;
use super::rings::{BATCH, LENT_LEAST, Piece, Rings};
use crate::frame::{Arena, Layout, Queue, RxFrame, SentFrame, TxFrame};
use crate::frame_pool::FramePool;
use crate::packet_io::{Icmp, IoCounters, IoError, PacketIo};
use crate::umem::{CHUNK, FRAME_CAPACITY, QueueMemory};

/// Frames that there are at least, for each direction.
const FRAMES_MIN: usize = 128;
/// Frames that the kernel has chunks for at least: somewhat more than a connection's window.
const FRAMES_LENT: usize = 20;
/// Frames start on a cache line.
const LINE: usize = 64;

/// An open queue.
pub(crate) struct MultiBufferIo {
    rings: Rings,
    joiner: Joiner,
    /// Free frames, and sent ones that are kept or wait for chunks. Frames that were joined are of the same arena.
    pool: FramePool<Queue>,
    /// Sent frames that wait for chunks, by place, with their lengths.
    waiting: VecDeque<(usize, usize)>,
    counters: IoCounters,
}

impl MultiBufferIo {
    /// Binds the queue and gives it half of the chunks to receive into. Frames of `bytes` have memory of their own, as much as the
    /// chunks have.
    pub(crate) fn open(
        target: &Target<'_>,
        bytes: usize,
        memory: QueueMemory,
    ) -> Result<Self, OpenQueueError> {
        let stride = bytes.next_multiple_of(LINE);
        let each = (memory.chunks.len() * CHUNK / stride / 2).max(FRAMES_MIN);
        let arena = Arena::anonymous(2 * each * stride).map_err(|error| target.refused(&error))?;
        let (arena, mut free) = arena.into_frames(&Layout {
            first: 0,
            count: 2 * each,
            capacity: bytes,
            stride,
        });
        let joined = free.split_off(each);
        let least = LENT_LEAST.max(FRAMES_LENT * bytes.div_ceil(FRAME_CAPACITY));
        Ok(Self {
            rings: Rings::open(target, memory, least)?,
            joiner: Joiner::new(joined),
            pool: FramePool::new(arena, free),
            waiting: VecDeque::new(),
            counters: IoCounters::default(),
        })
    }

    fn transmit(&mut self, frame: TxFrame, kept: bool) -> SentFrame {
        let len = frame.len();
        let parked = self.pool.park(frame.into_frame(), kept);
        if let Ok(place) = parked {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += len as u64;
            self.waiting.push_back((place, len));
            self.scatter();
        }
        self.pool.token(parked, len)
    }

    /// Copies waiting frames into chunks, as far as there are any. A frame is its sender's again as soon as it has been copied.
    fn scatter(&mut self) {
        while let Some(&(place, len)) = self.waiting.front() {
            if self.rings.free_chunks() < len.div_ceil(FRAME_CAPACITY) {
                self.rings.complete();
                if self.rings.free_chunks() < len.div_ceil(FRAME_CAPACITY) {
                    return;
                }
            }
            self.waiting.pop_front();
            self.scatter_one(place, len);
            let completed = self.pool.complete(place);
            debug_assert!(completed.is_ok(), "a frame that waited is gone");
        }
    }

    fn scatter_one(&mut self, place: usize, len: usize) {
        let Some(bytes) = self.pool.bytes(place, len) else {
            return;
        };
        let mut pieces = bytes.chunks(FRAME_CAPACITY).peekable();
        while let Some(piece) = pieces.next() {
            let Some(chunk) = self.rings.take_chunk() else {
                return;
            };
            let mut chunk = TxFrame::new(chunk);
            chunk.set_len(piece.len());
            chunk.copy_from_slice(piece);
            let more = pieces.peek().is_some();
            let chunk = chunk.into_frame();
            let _ours = self.rings.transmit(chunk, piece.len(), more, false);
        }
    }

    /// A frame, if the piece is one or was the last of one.
    fn accept(&mut self, piece: Piece) -> Option<RxFrame> {
        if !piece.more && self.joiner.is_between() {
            return Some(RxFrame::new(piece.chunk, piece.len));
        }
        let chunk = RxFrame::new(piece.chunk, piece.len);
        let frame = self.joiner.take(&chunk, piece.more, &mut self.counters);
        self.rings.recycle(chunk.into_frame());
        frame
    }
}

impl AsFd for MultiBufferIo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}

impl PacketIo for MultiBufferIo {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let mut left = budget;
        while left > 0 {
            let want = left.min(BATCH);
            let n = self.rings.arrived(want);
            for _ in 0..n {
                let frame = self.rings.piece().and_then(|piece| self.accept(piece));
                if let Some(frame) = frame {
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += frame.len() as u64;
                    left -= 1;
                    out.push(frame);
                }
            }
            self.rings.taken();
            if n < want {
                return;
            }
        }
    }

    fn recycle(&mut self, frame: RxFrame) {
        let frame = frame.into_frame();
        if self.pool.owns(&frame) {
            self.joiner.give_back(frame);
        } else {
            self.rings.recycle(frame);
        }
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        if self.pool.free() == 0 {
            self.scatter();
        }
        let frame = self.pool.take();
        if frame.is_none() {
            self.counters.tx_exhausted += 1;
        }
        frame.map(TxFrame::new)
    }

    fn send(&mut self, frame: TxFrame) {
        let _completes_by_itself = self.transmit(frame, false);
    }

    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        self.transmit(frame, true)
    }

    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.scatter();
        self.pool.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.pool.release(&sent);
    }

    fn tx_free(&self) -> usize {
        self.pool.free()
    }

    fn rx_frames(&self) -> usize {
        self.joiner.frames()
    }

    fn discard(&mut self, frame: TxFrame) {
        self.pool.give_back(frame.into_frame());
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.scatter();
        self.rings.flush()
    }

    fn backlog(&self) -> bool {
        self.rings.is_up() && (!self.waiting.is_empty() || self.rings.in_flight())
    }

    fn set_up(&mut self, up: bool) {
        self.rings.set_up(up);
    }

    fn too_big(&mut self) -> Option<Icmp> {
        self.rings.too_big()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn counters(&self) -> IoCounters {
        let mut counters = self.counters;
        counters.drop_foreign += self.pool.refused();
        self.rings.counters(counters)
    }
}

//! An open queue. Frames are written and read where the kernel has them, whatever they take of
//! chunks. But what arrives in several chunks is joined in memory of its own, as the protocols want
//! it in one piece.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::bind::{OpenQueueError, Target};
use super::busy_poll::{BusyPollError, InterruptDeferral};
use super::joined::Joiner;
use super::rings::{BATCH, LENT_LEAST, Piece, Rings};
use super::umem::{CHUNK, FRAME_CAPACITY, QueueMemory};
use super::xsk::{Bind, BoundSocket, Calls};
use crate::packet_io::{
    Icmp, IoCounters, IoError, PacketIo, QueueLevels, RxFrame, SentFrame, TxFrame,
};

/// Joined frames that there are at least, if frames take several chunks.
const JOINED_MIN: usize = 128;
/// Frames that the kernel has chunks for at least: somewhat more than a connection's window.
const FRAMES_LENT: usize = 20;

/// An open queue.
pub(crate) struct XdpIo<S = BoundSocket> {
    rings: Rings<S>,
    joiner: Joiner,
    counters: IoCounters,
}

impl<S: Calls> XdpIo<S> {
    /// Binds the queue for frames of at most `bytes`.
    pub(crate) fn open(
        target: &Target<'_>,
        bytes: usize,
        memory: QueueMemory<impl Bind<Socket = S>>,
    ) -> Result<Self, OpenQueueError> {
        let frames = match bytes.div_ceil(FRAME_CAPACITY) {
            0 | 1 => 0,
            // As much memory as there is to receive into.
            _ => (memory.receive.len() * CHUNK / bytes).max(JOINED_MIN),
        };
        let joiner = Joiner::new(frames, bytes).map_err(|error| target.refused(&error))?;
        let least = LENT_LEAST.max(FRAMES_LENT * bytes.div_ceil(FRAME_CAPACITY));
        Ok(Self {
            rings: Rings::open(target, memory, least)?,
            joiner,
            counters: IoCounters::default(),
        })
    }

    /// Whether frames are the driver's own buffers.
    pub(crate) fn has_zero_copy(&self) -> bool {
        self.rings.has_zero_copy()
    }

    /// Polls the driver at each [`flush`](PacketIo::flush) from now on.
    pub(crate) fn poll_busily(
        &mut self,
        deferral: &Arc<InterruptDeferral>,
    ) -> Result<(), BusyPollError> {
        self.rings.poll_busily(deferral)
    }

    fn transmit(&mut self, frame: TxFrame, kept: bool) -> SentFrame {
        let len = frame.len();
        let parked = self.rings.transmit(frame, kept);
        if parked.is_ok() {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += len as u64;
        }
        self.rings.token(parked, len)
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

impl<S: Calls> AsFd for XdpIo<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}

impl<S: Calls> PacketIo for XdpIo<S> {
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
        if self.joiner.owns(&frame) {
            self.joiner.give_back(frame);
        } else {
            self.rings.recycle(frame);
        }
    }

    fn owns(&self, frame: &RxFrame) -> bool {
        self.joiner.owns(frame.frame()) || self.rings.owns(frame.frame())
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        let frame = self.rings.take_frame();
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

    fn keep(&mut self, frame: TxFrame) -> SentFrame {
        self.rings.keep(frame)
    }

    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.rings.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.rings.release(&sent);
    }

    fn tx_free(&self) -> usize {
        self.rings.free_frames()
    }

    fn rx_frames(&self) -> usize {
        match self.joiner.frames() {
            0 => self.rings.receive_chunks(),
            joined => joined,
        }
    }

    fn discard(&mut self, frame: TxFrame) {
        self.rings.give_back(frame.into_frame());
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.rings.flush()
    }

    fn backlog(&self) -> bool {
        (self.rings.is_up() && self.rings.in_flight()) || self.rings.owes_wakeup()
    }

    fn set_up(&mut self, up: bool) {
        self.rings.set_up(up);
    }

    fn too_big(&mut self) -> Option<Icmp> {
        self.rings.too_big()
    }

    fn offers_checksums(&self) -> bool {
        self.rings.takes_requests()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn levels(&self) -> QueueLevels {
        self.rings.levels()
    }

    fn diagnosis(&self) -> String {
        self.rings.diagnosis()
    }

    fn counters(&self) -> IoCounters {
        self.rings.counters(self.counters)
    }
}

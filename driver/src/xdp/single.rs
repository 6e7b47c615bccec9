//! A queue whose frames take one chunk each, and are read and written where the kernel has them.

use std::os::fd::{AsFd, BorrowedFd};

use super::bind::{OpenQueueError, Target};
use super::rings::{BATCH, LENT_LEAST, Rings};
use crate::frame::{RxFrame, SentFrame, TxFrame};
use crate::packet_io::{Icmp, IoCounters, IoError, PacketIo};
use crate::umem::QueueMemory;

/// An open queue.
pub(crate) struct XdpIo {
    rings: Rings,
    counters: IoCounters,
}

impl XdpIo {
    /// Binds the queue and gives it half of the chunks to receive into.
    pub(crate) fn open(target: &Target<'_>, memory: QueueMemory) -> Result<Self, OpenQueueError> {
        Ok(Self {
            rings: Rings::open(target, memory, LENT_LEAST)?,
            counters: IoCounters::default(),
        })
    }

    fn transmit(&mut self, frame: TxFrame, kept: bool) -> SentFrame {
        let len = frame.len();
        let parked = self.rings.transmit(frame.into_frame(), len, false, kept);
        if parked.is_ok() {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += len as u64;
        }
        self.rings.token(parked, len)
    }
}

impl AsFd for XdpIo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}

impl PacketIo for XdpIo {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let mut left = budget;
        while left > 0 {
            let want = left.min(BATCH);
            let n = self.rings.arrived(want);
            for _ in 0..n {
                if let Some(piece) = self.rings.piece() {
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += piece.len as u64;
                    out.push(RxFrame::new(piece.chunk, piece.len));
                }
            }
            self.rings.taken();
            left -= n;
            if n < want {
                return;
            }
        }
    }

    fn recycle(&mut self, frame: RxFrame) {
        self.rings.recycle(frame.into_frame());
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        let chunk = self.rings.take_chunk();
        if chunk.is_none() {
            self.counters.tx_exhausted += 1;
        }
        chunk.map(TxFrame::new)
    }

    fn send(&mut self, frame: TxFrame) {
        let _completes_by_itself = self.transmit(frame, false);
    }

    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        self.transmit(frame, true)
    }

    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.rings.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.rings.release(&sent);
    }

    fn tx_free(&self) -> usize {
        self.rings.free_chunks()
    }

    fn rx_frames(&self) -> usize {
        self.rings.receive_chunks()
    }

    fn discard(&mut self, frame: TxFrame) {
        self.rings.give_back(frame.into_frame());
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.rings.flush()
    }

    fn backlog(&self) -> bool {
        self.rings.is_up() && self.rings.in_flight()
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
        self.rings.counters(self.counters)
    }
}

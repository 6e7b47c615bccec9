//! An interface that announces another window than the stack above it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use xwarp_driver::{IoCounters, IoError, MemoryIo, PacketIo, RxFrame, SentFrame, TxFrame};

/// No window is announced but the stack's.
const HONEST: u32 = u32::MAX;

/// What the window field of all segments is to say.
#[derive(Clone)]
pub(crate) struct Announced(Arc<AtomicU32>);

impl Announced {
    pub(crate) fn set(&self, window: Option<u16>) {
        let window = window.map_or(HONEST, u32::from);
        self.0.store(window, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u16> {
        u16::try_from(self.0.load(Ordering::Relaxed)).ok()
    }
}

/// See the module.
pub(crate) struct Windowed {
    io: MemoryIo,
    announced: Announced,
}

impl Windowed {
    pub(crate) fn new(io: MemoryIo) -> (Self, Announced) {
        let announced = Announced(Arc::new(AtomicU32::new(HONEST)));
        let kept = announced.clone();
        (Self { io, announced }, kept)
    }

    fn announce(&self, frame: &mut TxFrame) {
        if let Some(window) = self.announced.get() {
            rewrite(frame, window);
        }
    }
}

/// Changes the window of a segment in an untagged frame, and its checksum by as much (RFC 1624,
/// equation 3).
fn rewrite(frame: &mut [u8], window: u16) {
    let tcp = if frame[12..14] == [8, 0] {
        14 + 20
    } else {
        14 + 40
    };
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (old, sum) = (word(frame, tcp + 14), word(frame, tcp + 16));
    let total = u32::from(!sum) + u32::from(!old) + u32::from(window);
    let folded = (total & 0xffff) + (total >> 16);
    let [_, _, high, low] = (!(folded + (folded >> 16))).to_be_bytes();
    frame[tcp + 14..tcp + 16].copy_from_slice(&window.to_be_bytes());
    frame[tcp + 16..tcp + 18].copy_from_slice(&[high, low]);
}

impl PacketIo for Windowed {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        self.io.receive(budget, out);
    }

    fn recycle(&mut self, frame: RxFrame) {
        self.io.recycle(frame);
    }

    fn owns(&self, frame: &RxFrame) -> bool {
        self.io.owns(frame)
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        self.io.tx_frame()
    }

    fn send(&mut self, mut frame: TxFrame) {
        self.announce(&mut frame);
        self.io.send(frame);
    }

    fn send_kept(&mut self, mut frame: TxFrame) -> SentFrame {
        self.announce(&mut frame);
        self.io.send_kept(frame)
    }

    fn keep(&mut self, frame: TxFrame) -> SentFrame {
        self.io.keep(frame)
    }

    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.io.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.io.release(sent);
    }

    fn tx_free(&self) -> usize {
        self.io.tx_free()
    }

    fn rx_frames(&self) -> usize {
        self.io.rx_frames()
    }

    fn discard(&mut self, frame: TxFrame) {
        self.io.discard(frame);
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.io.flush()
    }

    fn backlog(&self) -> bool {
        self.io.backlog()
    }

    fn set_up(&mut self, up: bool) {
        self.io.set_up(up);
    }

    fn is_looped(&self, frame: &RxFrame) -> bool {
        self.io.is_looped(frame)
    }

    fn stays_on_host(&self, next_hop: [u8; 6]) -> bool {
        self.io.stays_on_host(next_hop)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.io.readiness()
    }

    fn counters(&self) -> IoCounters {
        self.io.counters()
    }
}

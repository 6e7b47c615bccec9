//! The rings of one AF_XDP socket in copy mode, and the chunks that go round in them.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue, Umem};

use super::bind::{OpenQueueError, Target, bind};
use super::receive_chunks::ReceiveChunks;
use crate::frame::{Foreign, Frame, Kernel, SentFrame, TxFrame};
use crate::frame_pool::FramePool;
use crate::net::icmp::IcmpSockets;
use crate::packet_io::{BURST, Icmp, IoCounters, IoError};
use crate::umem::{CHUNK, QueueMemory};

/// Descriptors moved between a ring and us in one go.
pub(super) const BATCH: usize = BATCH_ENTRIES as usize;
const BATCH_ENTRIES: u32 = 64;
/// Chunks that the kernel has at least to receive into. They suffice for what one connection may have in flight, and for those taken and
/// not given back yet. So no burst of a single peer, however small its segments, finds none.
pub(super) const LENT_LEAST: usize = BURST + BATCH;
/// A frame that the kernel has not completed after this long will never be.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The option of a descriptor whose frame goes on in the next one (`XDP_PKT_CONTD`).
const GOES_ON: u32 = 1;

/// A chunk that the kernel has filled: a received frame, or a piece of one.
pub(super) struct Piece {
    pub(super) chunk: Frame,
    pub(super) len: usize,
    /// The frame goes on in the next piece.
    pub(super) more: bool,
}

/// The rings of an open queue. Half of its chunks receive, the others are there to be filled and sent.
pub(super) struct Rings {
    interface: String,
    descriptors: Vec<FrameDesc>,
    /// Free chunks, and those that the kernel has.
    pool: FramePool<Kernel>,
    /// Filled chunks that the transmit ring has not taken yet.
    queued: Vec<FrameDesc>,
    batch: Vec<FrameDesc>,
    /// Where descriptors are gathered that leave a ring. Making them anew for each look would cost more than the look.
    taken: Box<[FrameDesc; BATCH]>,
    in_flight: usize,
    /// The link is up, as far as is known.
    up: bool,
    receiving: ReceiveChunks,
    last_progress: Option<Instant>,
    drop_rx_unusable: u64,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    umem: Umem,
    /// `None` if the kernel refused them.
    icmp: Option<IcmpSockets>,
}

impl Rings {
    /// Binds the queue in copy mode. Half of the chunks are to receive into, of which the kernel has `least` or more at a time.
    pub(super) fn open(
        target: &Target<'_>,
        memory: QueueMemory,
        least: usize,
    ) -> Result<Self, OpenQueueError> {
        let (tx, rx, rings) = bind(target, &memory.umem)?;
        let (fill, completion) = rings.ok_or_else(|| target.busy())?;
        let mut free = memory.chunks;
        let receiving = free.split_off(free.len() - free.len() / 2);
        let mut rings = Self {
            interface: target.interface.to_owned(),
            pool: FramePool::new(memory.arena, free),
            queued: Vec::with_capacity(memory.descriptors.len()),
            batch: Vec::with_capacity(BATCH),
            taken: Box::new([memory.descriptors[0]; BATCH]),
            descriptors: memory.descriptors,
            in_flight: 0,
            up: true,
            receiving: ReceiveChunks::new(receiving, least),
            last_progress: None,
            drop_rx_unusable: 0,
            rx,
            tx,
            fill,
            completion,
            umem: memory.umem,
            icmp: open_icmp(target.interface),
        };
        rings.lend_spare();
        rings.produce_fill();
        Ok(rings)
    }

    /// Lends as many spare chunks as the kernel is to have.
    fn lend_spare(&mut self) {
        while let Some(chunk) = self.receiving.take_spare() {
            self.lend(chunk);
        }
    }

    fn produce_fill(&mut self) {
        // SAFETY: `lend` put the descriptors there, each named by `park`: it is of this UMEM and the chunk's own, and the chunk is
        // parked, so that nobody touches it until it comes back.
        let taken = unsafe { self.fill.produce(&self.batch) };
        if taken == 0 {
            self.receiving.note_refused(self.batch.len());
            for descriptor in self.batch.drain(..) {
                let unused = self.pool.unpark(chunk_of(&descriptor));
                self.receiving.keep(unused.ok().flatten());
            }
        }
        self.batch.clear();
    }

    /// Puts a frame out of our own reach and names it as the kernel does; its place and name. A frame of another queue is dropped.
    fn park(&mut self, frame: Frame, kept: bool) -> Result<(usize, FrameDesc), Foreign> {
        let parked = self.pool.park(frame, kept);
        parked.map(|place| (place, self.descriptors[place]))
    }

    /// Takes a frame back from the kernel; `None` for one that its sender keeps.
    fn unpark(&mut self, descriptor: &FrameDesc) -> Option<Frame> {
        let Ok(frame) = self.pool.unpark(chunk_of(descriptor)) else {
            log::error!(
                "{}: the kernel returned a frame that it did not have",
                self.interface
            );
            return None;
        };
        frame
    }

    /// Queues a filled chunk for transmission; its place.
    pub(super) fn transmit(
        &mut self,
        chunk: Frame,
        len: usize,
        more: bool,
        kept: bool,
    ) -> Result<usize, Foreign> {
        let (place, mut descriptor) = self.park(chunk, kept)?;
        // SAFETY: the descriptor is this UMEM's and the chunk's own, whose only frame was just parked, and the kernel has it only when
        // the descriptor is produced. So nobody else accesses its bytes, of which this view covers none of a neighbour's.
        let mut view = unsafe { self.umem.data_mut(&mut descriptor) };
        view.cursor().set_pos(len);
        if more {
            descriptor.set_options(GOES_ON);
        }
        self.queued.push(descriptor);
        self.in_flight += 1;
        Ok(place)
    }

    /// The token for a chunk that was queued for its sender.
    pub(super) fn token(&self, queued: Result<usize, Foreign>, len: usize) -> SentFrame {
        self.pool.token(queued, len)
    }

    /// Takes up to `want` descriptors, at most [`BATCH`], out of the receive ring; how many.
    pub(super) fn consume(&mut self, want: usize) -> usize {
        // SAFETY: the array holds descriptors of this UMEM, which the call overwrites.
        let taken = unsafe { self.rx.consume(&mut self.taken[..want]) };
        self.receiving.note_filled(taken, taken < want);
        taken
    }

    /// What came with a descriptor that was consumed last. It must lie where our chunks begin: an XDP program of somebody else may
    /// have moved its start.
    pub(super) fn piece(&mut self, at: usize) -> Option<Piece> {
        let descriptor = self.taken[at];
        let chunk = self.unpark(&descriptor)?;
        if descriptor.addr() != chunk.offset() {
            self.drop_rx_unusable += 1;
            self.recycle(chunk);
            return None;
        }
        Some(Piece {
            chunk,
            len: descriptor.lengths().data(),
            more: descriptor.has_more_frames(),
        })
    }

    /// Gives a chunk back that was received.
    pub(super) fn recycle(&mut self, chunk: Frame) {
        let Some(chunk) = self.pool.own(chunk) else {
            return;
        };
        if self.receiving.too_few_lent() {
            self.lend(chunk);
        } else {
            self.receiving.keep([chunk]);
        }
    }

    /// Lends a chunk to the kernel to receive into.
    fn lend(&mut self, chunk: Frame) {
        let Ok((_, descriptor)) = self.park(chunk, false) else {
            return;
        };
        self.receiving.note_lent();
        self.batch.push(descriptor);
        if self.batch.len() == BATCH {
            self.produce_fill();
        }
    }

    /// A chunk to be filled.
    pub(super) fn take_chunk(&mut self) -> Option<Frame> {
        if self.pool.free() == 0 {
            self.complete();
        }
        self.pool.take()
    }

    pub(super) fn give_back(&mut self, chunk: Frame) {
        self.pool.give_back(chunk);
    }

    pub(super) fn free_chunks(&self) -> usize {
        self.pool.free()
    }

    pub(super) fn receive_chunks(&self) -> usize {
        self.receiving.count()
    }

    pub(super) fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.complete();
        self.pool.reclaim(sent)
    }

    pub(super) fn release(&mut self, sent: &SentFrame) {
        self.pool.release(sent);
    }

    /// Whether the kernel has chunks that it has not sent.
    pub(super) fn in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Says whether the link is up: while it is down the kernel takes nothing.
    pub(super) fn set_up(&mut self, up: bool) {
        self.up = up;
        self.last_progress = None;
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Sets everything that is queued in motion and takes back what was sent.
    pub(super) fn flush(&mut self) -> Result<(), IoError> {
        self.set_off()?;
        self.lend_spare();
        if !self.batch.is_empty() {
            self.produce_fill();
        }
        self.watch_progress()
    }

    fn set_off(&mut self) -> Result<(), IoError> {
        if self.in_flight == 0 {
            return Ok(());
        }
        self.produce_tx();
        if self.up && self.tx.needs_wakeup() {
            self.tx.wakeup().map_err(|source| IoError::Transmit {
                interface: self.interface.clone(),
                source,
            })?;
        }
        self.complete();
        Ok(())
    }

    pub(super) fn too_big(&mut self) -> Option<Icmp> {
        self.icmp.as_ref()?.next()
    }

    /// `ours`, and what the kernel and the rings know.
    pub(super) fn counters(&self, ours: IoCounters) -> IoCounters {
        let mut counters = ours;
        counters.drop_rx_other += self.drop_rx_unusable;
        counters.drop_foreign += self.pool.refused();
        if let Ok(kernel) = self.rx.fd().xdp_statistics() {
            counters.drop_rx_ring_full += kernel.rx_ring_full();
            counters.drop_rx_no_frame += kernel.rx_fill_ring_empty_descs();
            counters.drop_rx_other += kernel.rx_dropped();
            counters.drop_tx_invalid += kernel.tx_invalid_descs();
        }
        counters
    }

    /// Moves queued frames to the transmit ring as far as it has room.
    fn produce_tx(&mut self) {
        while !self.queued.is_empty() {
            let n = self
                .queued
                .len()
                .min(BATCH)
                .min(self.tx.nb_free(BATCH_ENTRIES) as usize);
            // SAFETY: `transmit` queued the descriptors, each named by `park`: it is of this UMEM and the chunk's own, and the chunk is
            // parked until the completion ring returns it.
            let taken = unsafe { self.tx.produce(&self.queued[..n]) };
            if taken == 0 {
                return;
            }
            self.queued.drain(..taken);
        }
    }

    /// Takes back the chunks that the kernel has sent.
    pub(super) fn complete(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        loop {
            // SAFETY: the array holds descriptors of this UMEM, which the call overwrites.
            let n = unsafe { self.completion.consume(&mut self.taken[..]) };
            for descriptor in &self.taken[..n] {
                if self.pool.complete(chunk_of(descriptor)).is_err() {
                    log::error!("{}: a completion without a frame", self.interface);
                    continue;
                }
                self.in_flight -= 1;
            }
            if n > 0 {
                self.last_progress = None;
            }
            if n < BATCH {
                return;
            }
        }
    }

    /// Fails when frames are in flight and none has come back for [`STALL_TIMEOUT`].
    fn watch_progress(&mut self) -> Result<(), IoError> {
        if self.in_flight == 0 || !self.up {
            self.last_progress = None;
            return Ok(());
        }
        let since = *self.last_progress.get_or_insert_with(Instant::now);
        if since.elapsed() < STALL_TIMEOUT {
            return Ok(());
        }
        Err(IoError::Stalled {
            interface: self.interface.clone(),
            frames: self.in_flight,
            seconds: STALL_TIMEOUT.as_secs(),
        })
    }
}

impl AsFd for Rings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the receive queue keeps the socket open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.rx.fd().as_raw_fd()) }
    }
}

/// `None` if the kernel refuses them.
fn open_icmp(interface: &str) -> Option<IcmpSockets> {
    IcmpSockets::open(interface)
        .inspect_err(|error| {
            log::warn!("no ICMP on {interface}, so paths must take the interface's MTU: {error}");
        })
        .ok()
}

fn chunk_of(descriptor: &FrameDesc) -> usize {
    descriptor.addr() / CHUNK
}

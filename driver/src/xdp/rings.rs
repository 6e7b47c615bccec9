//! The rings of one AF_XDP socket, and the chunks that go round in them.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bind::{OpenQueueError, Target, bind};
use super::busy_poll::{BusyPollError, InterruptDeferral};
use super::receive_chunks::ReceiveChunks;
use super::rows::{Row, Rows};
use super::stall::{FillRing, FillWatch, StallWatch, Stand};
use super::umem::{CHUNK, QueueMemory};
use super::xsk::{Bind, BoundSocket, Calls, RingSet};
use crate::net::icmp::IcmpSockets;
use crate::packet_io::{
    BURST, Foreign, Frame, FramePool, Icmp, IoCounters, IoError, NotLent, QueueLevels, SentFrame,
    TxFrame,
};
use crate::wake::is_any_readable;

/// Descriptors moved between a ring and us in one go.
pub(super) const BATCH: usize = 64;
/// Chunks that the kernel has at least to receive into. They suffice for what one connection may
/// have in flight, and for those taken and not given back yet. So no burst of a single peer,
/// however small its segments, finds none.
pub(crate) const LENT_LEAST: usize = BURST + BATCH;
/// A frame that the kernel has not completed after this long will never be.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A driver that asks for wake-ups of the fill ring gets them at most this often, with or without
/// new chunks. Some ask for it though they have all that they want.
const REFILL_INTERVAL: Duration = Duration::from_micros(100);
const IDLE_REFILL_INTERVAL: Duration = Duration::from_millis(1);

/// A chunk that the kernel has filled: a received frame, or a piece of one.
pub(super) struct Piece {
    pub(super) chunk: Frame,
    pub(super) len: usize,
    /// The frame continues in the next piece.
    pub(super) more: bool,
}

/// Features that the kernel has accepted.
struct Agreed {
    /// Frames are the driver's own buffers.
    zero_copy: bool,
    /// Requests may lie in front of frames to send.
    requests: bool,
}

impl Agreed {
    /// The accepted features of a bound queue.
    fn about(
        target: &Target<'_>,
        socket: &impl Calls,
        requests: bool,
    ) -> Result<Self, OpenQueueError> {
        let zero_copy = socket.has_zero_copy();
        Ok(Self {
            zero_copy: zero_copy.map_err(|error| target.refused(&error))?,
            requests,
        })
    }
}

/// The rings of an open queue, with chunks to receive into and frames to send.
pub(super) struct Rings<S = BoundSocket> {
    interface: String,
    /// Free frames to send, and all that the kernel has.
    pool: FramePool,
    rows: Rows,
    /// Filled frames that the transmit ring has not taken yet.
    queued: VecDeque<Row>,
    /// Chunks in the fill ring that the kernel has not been shown yet.
    unpublished: usize,
    /// The driver has not been woken since chunks were put into the fill ring.
    refilled: bool,
    last_refill: Option<Instant>,
    fill_stall: FillWatch,
    /// Frames to send, wherever they are.
    frames: usize,
    /// Filled frames that have not been sent.
    in_flight: usize,
    /// The link is up, as far as is known.
    up: bool,
    receiving: ReceiveChunks,
    completion_stall: StallWatch,
    drop_rx_unusable: u64,
    agreed: Agreed,
    shared: RingSet,
    socket: S,
    /// Set while each call polls the driver.
    polling: Option<Arc<InterruptDeferral>>,
    /// `None` if the kernel refused them, or another queue has them.
    icmp: Option<IcmpSockets>,
}

impl<S: Calls> Rings<S> {
    /// Binds the queue. The kernel has `least` chunks to receive into or more at a time, and in
    /// zero copy those that fill the driver's ring.
    pub(super) fn open(
        target: &Target<'_>,
        memory: QueueMemory<impl Bind<Socket = S>>,
        least: usize,
    ) -> Result<Self, OpenQueueError> {
        let (socket, shared) = bind(target, memory.unbound)?;
        let agreed = Agreed::about(target, &socket, memory.takes_requests)?;
        let posted = if agreed.zero_copy { memory.posted } else { 0 };
        let (first, frames) = (memory.receive.len(), memory.transmit.len());
        let mut rings = Self {
            interface: target.interface.to_owned(),
            pool: FramePool::new(memory.arena, memory.transmit),
            rows: Rows::new(first, memory.run, frames),
            queued: VecDeque::with_capacity(frames),
            unpublished: 0,
            refilled: false,
            last_refill: None,
            fill_stall: FillWatch::default(),
            frames,
            in_flight: 0,
            up: true,
            receiving: ReceiveChunks::new(memory.receive, least + posted),
            completion_stall: StallWatch::default(),
            drop_rx_unusable: 0,
            agreed,
            shared,
            socket,
            polling: None,
            icmp: open_icmp(target),
        };
        rings.lend_spare();
        rings.publish_lent();
        Ok(rings)
    }

    /// Whether the kernel is to have another chunk to receive into, and can take it.
    fn wants_chunk(&mut self) -> bool {
        self.receiving.too_few_lent() && self.shared.fill.has_room(1)
    }

    /// Lends as many spare chunks as the kernel is to have.
    fn lend_spare(&mut self) {
        while self.wants_chunk() {
            let Some(chunk) = self.receiving.take_spare() else {
                return;
            };
            self.lend(chunk);
        }
    }

    /// Lends a chunk to the kernel to receive into.
    fn lend(&mut self, chunk: Frame) {
        let Ok(place) = self.pool.park(chunk, false) else {
            return;
        };
        // SAFETY: a chunk to receive into has its place as number. It is of this UMEM, and parked,
        // so that no code touches it until it comes back.
        let pushed = unsafe { self.shared.fill.push((place * CHUNK) as u64) };
        debug_assert!(pushed, "the kernel was to have another chunk");
        self.receiving.note_lent();
        self.unpublished += 1;
        if self.unpublished == BATCH {
            self.publish_lent();
        }
    }

    fn publish_lent(&mut self) {
        self.shared.fill.publish();
        self.unpublished = 0;
        self.refilled = true;
    }

    /// Wakes a driver that asks for it if chunks are in the fill ring, and polls it on demand. A
    /// driver that copies never waits.
    fn wake_receiver(&mut self) -> Result<(), IoError> {
        if !self.up {
            return Ok(());
        }
        // A call that sends has polled already.
        if self.polling.is_some() && self.in_flight == 0 {
            self.tell_receiver()?;
        }
        if !self.shared.fill.needs_wakeup() {
            return Ok(());
        }
        let now = self.socket.now();
        // It may have asked just when chunks came, so it is woken without new ones, too.
        let interval = if self.refilled {
            REFILL_INTERVAL
        } else {
            IDLE_REFILL_INTERVAL
        };
        if self.last_refill.is_some_and(|last| now - last < interval) {
            return Ok(());
        }
        self.last_refill = Some(now);
        self.refilled = false;
        self.watch_fill_ring(now);
        self.tell_receiver()
    }

    /// Whether the driver must be called soon, as there are chunks. It was not called since some
    /// came, and asks for it or has nothing to receive into. A `poll` of the socket calls it, but
    /// that of a set with the socket in it does not. So a sleep must be short.
    pub(super) fn owes_wakeup(&self) -> bool {
        let lent = self.receiving.lent_and_spare().0;
        let has_nothing = self.agreed.zero_copy && lent > 0 && self.shared.fill.occupied() == lent;
        self.up && self.refilled && (has_nothing || self.shared.fill.needs_wakeup())
    }

    fn tell_receiver(&self) -> Result<(), IoError> {
        self.socket.receive().map_err(|source| IoError::Receive {
            interface: self.interface.clone(),
            source,
        })
    }

    /// Notices a driver that is woken and takes no chunks, though it has nothing to receive into.
    fn watch_fill_ring(&mut self, now: Instant) {
        let lent = self.receiving.lent_and_spare().0;
        let ring = FillRing {
            taken: self.shared.fill.taken(),
            occupied: self.shared.fill.occupied(),
            lent,
        };
        if let Stand::Noticed(time) = self.fill_stall.woken(ring, now) {
            log::warn!(
                "{}: the driver has taken none of the {lent} chunks in the fill ring for {} s, so nothing is received; set the interface down and up",
                self.interface,
                time.as_secs()
            );
        }
    }

    pub(super) fn takes_requests(&self) -> bool {
        self.agreed.requests
    }

    pub(super) fn has_zero_copy(&self) -> bool {
        self.agreed.zero_copy
    }

    /// Polls the driver at each [`flush`](Self::flush) from now on, where the device defers its
    /// interrupts.
    pub(super) fn poll_busily(
        &mut self,
        deferral: &Arc<InterruptDeferral>,
    ) -> Result<(), BusyPollError> {
        if !self.agreed.zero_copy {
            return Err(BusyPollError::NoZeroCopy {
                interface: self.interface.clone(),
            });
        }
        let polls = self.socket.poll_busily();
        if !polls.map_err(|error| BusyPollError::refused(&self.interface, &error))? {
            let why = io::Error::other("it knows of no NAPI instance to poll");
            return Err(BusyPollError::refused(&self.interface, &why));
        }
        self.polling = Some(Arc::clone(deferral));
        Ok(())
    }

    /// Takes the chunk back that was received into.
    fn unpark(&mut self, addr: u64) -> Option<Frame> {
        let place = self.rows.received(chunk_of(addr));
        let Ok(frame) = place.and_then(|place| self.pool.unpark(place)) else {
            log::error!(
                "{}: the kernel returned a frame that it did not have",
                self.interface
            );
            return None;
        };
        frame
    }

    /// Queues a filled frame for transmission; its place.
    pub(super) fn transmit(&mut self, mut frame: TxFrame, kept: bool) -> Result<usize, Foreign> {
        let (len, described) = (frame.len(), self.agreed.requests && frame.describe());
        let frame = frame.into_frame();
        let row = Row::new(frame.offset(), len, described);
        let place = self.pool.park(frame, kept)?;
        self.rows.lend(place, row.pieces());
        self.queued.push_back(row);
        self.in_flight += 1;
        Ok(place)
    }

    /// The token for a frame that was queued for its sender.
    pub(super) fn token(&self, queued: Result<usize, Foreign>, len: usize) -> SentFrame {
        self.pool.token(queued, len)
    }

    /// Keeps a frame for its sender that was sent by other means.
    pub(super) fn keep(&mut self, frame: TxFrame) -> SentFrame {
        self.pool.keep(frame)
    }

    /// How many pieces can be taken out of the receive ring by [`piece`](Self::piece), at most
    /// `want`.
    pub(super) fn arrived(&mut self, want: usize) -> usize {
        let arrived = self.shared.rx.available(want);
        self.receiving.note_filled(arrived, arrived < want);
        arrived
    }

    /// The next piece that has arrived. It must lie where our chunks begin: a foreign XDP program
    /// may have moved its start.
    pub(super) fn piece(&mut self) -> Option<Piece> {
        let descriptor = self.shared.rx.pop()?;
        let chunk = self.unpark(descriptor.addr())?;
        if descriptor.addr() != chunk.offset() as u64 {
            self.drop_rx_unusable += 1;
            self.recycle(chunk);
            return None;
        }
        Some(Piece {
            chunk,
            len: descriptor.len(),
            more: descriptor.more(),
        })
    }

    /// Says that the pieces that had arrived have been taken.
    pub(super) fn taken(&mut self) {
        self.shared.rx.release();
    }

    /// Gives a chunk back that was received.
    pub(super) fn recycle(&mut self, chunk: Frame) {
        let Some(chunk) = self.pool.own(chunk) else {
            return;
        };
        if self.wants_chunk() {
            self.lend(chunk);
        } else {
            self.receiving.keep(chunk);
        }
    }

    /// True for a chunk of this queue.
    pub(super) fn owns(&self, chunk: &Frame) -> bool {
        self.pool.owns(chunk)
    }

    /// A frame to be filled.
    pub(super) fn take_frame(&mut self) -> Option<Frame> {
        if self.pool.free() == 0 {
            self.complete();
        }
        self.pool.take()
    }

    pub(super) fn give_back(&mut self, frame: Frame) {
        self.pool.give_back(frame);
    }

    pub(super) fn free_frames(&self) -> usize {
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

    /// Whether frames are on their way that the kernel has not sent.
    pub(super) fn in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Says whether the link is up: while it is down the kernel takes nothing.
    pub(super) fn set_up(&mut self, up: bool) {
        self.up = up;
        self.completion_stall.moves();
        self.fill_stall.begin_again();
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Sets everything that is queued in motion and takes back what was sent.
    pub(super) fn flush(&mut self) -> Result<(), IoError> {
        self.set_off()?;
        self.lend_spare();
        if self.unpublished > 0 {
            self.publish_lent();
        }
        self.wake_receiver()?;
        self.watch_progress()
    }

    fn set_off(&mut self) -> Result<(), IoError> {
        if self.in_flight == 0 {
            return Ok(());
        }
        self.produce_tx();
        if self.up && (self.shared.tx.needs_wakeup() || self.polling.is_some()) {
            self.socket.transmit().map_err(|source| IoError::Transmit {
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
        counters.fill_stalls += self.fill_stall.stalls();
        counters.completion_stalls += self.completion_stall.stalls();
        if let Ok(kernel) = self.socket.statistics() {
            counters.drop_rx_ring_full += kernel.rx_ring_full;
            // "Failed to retrieve item from fill ring" (<linux/if_xdp.h>). Where the kernel copies,
            // `__xsk_rcv` then counts the frame as dropped, too. A driver with zero copy looks into
            // the ring without a frame.
            let no_frame = kernel.rx_fill_ring_empty_descs;
            let told_twice = if self.agreed.zero_copy { 0 } else { no_frame };
            counters.drop_rx_no_frame += no_frame;
            counters.drop_rx_other += kernel.rx_dropped.saturating_sub(told_twice);
            counters.drop_tx_invalid += kernel.tx_invalid_descs;
        }
        counters
    }

    pub(super) fn levels(&self) -> QueueLevels {
        let (lent, spare) = self.receiving.lent_and_spare();
        let held = self.receiving.count().saturating_sub(lent + spare);
        let free = self.pool.free();
        let kept = self.frames.saturating_sub(free + self.in_flight);
        let (fill_invalid, tx_ring_empty) = self.socket.statistics().map_or((0, 0), |kernel| {
            (kernel.rx_invalid_descs, kernel.tx_ring_empty_descs)
        });
        QueueLevels {
            fill_ring: self.shared.fill.occupied() as u64,
            rx_ring: self.shared.rx.occupied() as u64,
            tx_ring: self.shared.tx.occupied() as u64,
            completion_ring: self.shared.completion.occupied() as u64,
            rx_chunks_lent: lent as u64,
            rx_chunks_spare: spare as u64,
            rx_chunks_held: held as u64,
            tx_frames_free: free as u64,
            tx_frames_in_flight: self.in_flight as u64,
            tx_frames_kept: kept as u64,
            fill_invalid,
            tx_ring_empty,
        }
    }

    /// Its levels, and which calls the kernel waits for.
    pub(super) fn diagnosis(&self) -> String {
        let wants_wakeup = [
            self.shared.fill.needs_wakeup(),
            self.shared.tx.needs_wakeup(),
        ];
        format!(
            "{:?}, fill and tx ring want a wake-up: {wants_wakeup:?}, not published {}, refilled {}, last refill {:?} ago, up {}, readable {:?}",
            self.levels(),
            self.unpublished,
            self.refilled,
            self.last_refill.map(|last| last.elapsed()),
            self.up,
            is_any_readable(&[self.as_fd()]).ok(),
        )
    }

    /// Moves queued frames to the transmit ring as far as it has room for whole ones.
    fn produce_tx(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        while let Some(row) = self.queued.front()
            && self.shared.tx.has_room(row.pieces())
        {
            for descriptor in row.descriptors() {
                // SAFETY: `transmit` made the row of a frame of this UMEM, which is parked until
                // all of its chunks have come back.
                let pushed = unsafe { self.shared.tx.push(descriptor) };
                debug_assert!(pushed, "the transmit ring had room");
            }
            self.queued.pop_front();
        }
        self.shared.tx.publish();
    }

    /// Takes back the frames that the kernel has sent.
    fn complete(&mut self) {
        if self.in_flight == 0 || self.shared.completion.available(usize::MAX) == 0 {
            return;
        }
        while let Some(addr) = self.shared.completion.pop() {
            if self.complete_chunk(chunk_of(addr)).is_err() {
                log::error!("{}: a completion without a frame", self.interface);
            }
        }
        self.shared.completion.release();
        self.completion_stall.moves();
    }

    fn complete_chunk(&mut self, chunk: usize) -> Result<(), NotLent> {
        if let Some(place) = self.rows.returned(chunk)? {
            self.pool.complete(place)?;
            self.in_flight -= 1;
        }
        Ok(())
    }

    /// Notices that frames are in flight and none comes back, and fails after [`STALL_TIMEOUT`].
    fn watch_progress(&mut self) -> Result<(), IoError> {
        if self.in_flight == 0 || !self.up {
            self.completion_stall.moves();
            return Ok(());
        }
        match self.completion_stall.stands(self.socket.now()) {
            Stand::Noticed(time) | Stand::Known(time) if time >= STALL_TIMEOUT => {
                Err(IoError::Stalled {
                    interface: self.interface.clone(),
                    frames: self.in_flight,
                    seconds: STALL_TIMEOUT.as_secs(),
                })
            }
            Stand::Noticed(time) => {
                log::warn!(
                    "{}: the driver has completed none of {} frames for {} s; xwarp fails after {} s",
                    self.interface,
                    self.in_flight,
                    time.as_secs(),
                    STALL_TIMEOUT.as_secs()
                );
                Ok(())
            }
            Stand::Short | Stand::Known(_) => Ok(()),
        }
    }
}

impl<S: Calls> AsFd for Rings<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `None` if the kernel refuses them, or another queue has them.
fn open_icmp(target: &Target<'_>) -> Option<IcmpSockets> {
    if !target.receives_icmp {
        return None;
    }
    let interface = target.interface;
    IcmpSockets::open(interface)
        .inspect_err(|error| {
            log::warn!("no ICMP on {interface}, so paths must take the interface's MTU: {error}");
        })
        .ok()
}

/// The number of the chunk that an address is in.
fn chunk_of(addr: u64) -> usize {
    usize::try_from(addr).map_or(usize::MAX, |addr| addr / CHUNK)
}

//! One AF_XDP socket: the rings of one queue of one interface, in copy mode.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

use crate::frame::{Frame, Parking, RxFrame, SentFrame, TxFrame};
use crate::net::icmp::IcmpSockets;
use crate::packet_io::{Icmp, IoCounters, IoError, PacketIo};
use crate::umem::CHUNK;

/// Descriptors moved between a ring and us in one go.
const BATCH: usize = BATCH_ENTRIES as usize;
const BATCH_ENTRIES: u32 = 64;
/// The kernel frees a queue some milliseconds after its last user closed it (3 to 22 ms were seen).
const REBIND_PATIENCE: Duration = Duration::from_secs(1);
const REBIND_PAUSE: Duration = Duration::from_millis(5);
/// A frame that the kernel has not completed after this long will never be.
const STALL_LIMIT: Duration = Duration::from_secs(5);

/// Why a queue could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenQueueError {
    /// Somebody else has it.
    #[error(
        "queue {queue} of {interface} is in use by another AF_XDP socket; end that process or choose another queue"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
    },
    /// No privilege.
    #[error("AF_XDP on {interface} needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// Anything else that the kernel said.
    #[error("the kernel would not open queue {queue} of {interface} for AF_XDP: {reason}")]
    Refused {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
        /// What it said.
        reason: String,
    },
}

/// An open queue.
pub(crate) struct XdpIo {
    interface: String,
    descriptors: Vec<FrameDesc>,
    /// Frames that the kernel has, by chunk number.
    parked: Parking,
    free: Vec<Frame>,
    /// Filled frames that the transmit ring has not taken yet.
    queued: Vec<FrameDesc>,
    batch: Vec<FrameDesc>,
    /// Where descriptors are gathered that leave a ring. Making them anew for each look would cost more than the look.
    taken: Box<[FrameDesc; BATCH]>,
    in_flight: usize,
    /// Frames that circulate between the fill ring and the receive ring, or are with whoever received them.
    receive_frames: usize,
    last_progress: Option<Instant>,
    counters: IoCounters,
    drop_rx_unusable: u64,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    umem: Umem,
    /// `None` if the kernel refused them.
    icmp: Option<IcmpSockets>,
}

impl XdpIo {
    /// Binds queue `queue` of `interface` in copy mode and gives it half of the frames to receive into.
    pub(crate) fn open(
        interface: &str,
        queue: u32,
        ring: u32,
        memory: (Umem, Vec<FrameDesc>, Vec<Frame>),
    ) -> Result<Self, OpenQueueError> {
        let (umem, descriptors, frames) = memory;
        let (tx, rx, rings) = bind(interface, queue, ring, &umem)?;
        let (fill, completion) = rings.ok_or_else(|| OpenQueueError::Busy {
            interface: interface.to_owned(),
            queue,
        })?;
        let icmp = IcmpSockets::open(interface).inspect_err(|error| {
            log::warn!("no ICMP on {interface}, so paths must take the interface's MTU: {error}");
        });
        let mut io = Self {
            icmp: icmp.ok(),
            interface: interface.to_owned(),
            parked: Parking::new(frames.len()),
            receive_frames: frames.len() / 2,
            free: frames,
            queued: Vec::with_capacity(descriptors.len()),
            batch: Vec::with_capacity(BATCH),
            taken: Box::new([descriptors[0]; BATCH]),
            descriptors,
            in_flight: 0,
            last_progress: None,
            counters: IoCounters::default(),
            drop_rx_unusable: 0,
            rx,
            tx,
            fill,
            completion,
            umem,
        };
        io.refill(io.receive_frames);
        Ok(io)
    }

    /// The socket, to be put into the XSKMAP.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the receive queue keeps the socket open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.rx.fd().as_raw_fd()) }
    }

    /// Lends `count` free frames to the kernel to receive into.
    fn refill(&mut self, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.free.pop() else { break };
            let descriptor = self.park(frame, false);
            self.batch.push(descriptor);
            if self.batch.len() == BATCH {
                self.produce_fill();
            }
        }
        self.produce_fill();
    }

    fn produce_fill(&mut self) {
        // SAFETY: every descriptor is of this UMEM and its frame was just parked, so nobody touches it until it comes back.
        let taken = unsafe { self.fill.produce(&self.batch) };
        if taken == 0 {
            for descriptor in self.batch.drain(..) {
                let unused = self.parked.returned(chunk_of(&descriptor));
                self.free.extend(unused.ok().flatten());
            }
        }
        self.batch.clear();
    }

    /// Puts a frame out of our own reach and names it as the kernel does.
    fn park(&mut self, frame: Frame, kept: bool) -> FrameDesc {
        let chunk = frame.offset() / CHUNK;
        self.parked.park(chunk, frame, kept);
        self.descriptors[chunk]
    }

    /// Takes a frame back from the kernel; `None` for one that its sender keeps.
    fn unpark(&mut self, descriptor: &FrameDesc) -> Option<Frame> {
        let Ok(frame) = self.parked.returned(chunk_of(descriptor)) else {
            log::error!(
                "{}: the kernel returned a frame that it did not have",
                self.interface
            );
            return None;
        };
        frame
    }

    fn transmit(&mut self, frame: TxFrame, kept: bool) -> SentFrame {
        let len = frame.len();
        self.counters.tx_frames += 1;
        self.counters.tx_octets += len as u64;
        let mut descriptor = self.park(frame.into_frame(), kept);
        // SAFETY: the frame is ours until the descriptor is produced; only the length is set through this view.
        let mut view = unsafe { self.umem.data_mut(&mut descriptor) };
        view.cursor().set_pos(len);
        self.queued.push(descriptor);
        self.in_flight += 1;
        SentFrame::new(chunk_of(&descriptor), len)
    }

    /// Takes in a frame that lies where our frames begin; an XDP program of somebody else may have moved its start.
    fn accept(&mut self, descriptor: &FrameDesc, frame: Frame, out: &mut Vec<RxFrame>) {
        let len = descriptor.lengths().data();
        if descriptor.addr() != frame.offset() || descriptor.has_more_frames() {
            self.drop_rx_unusable += 1;
            self.recycle(RxFrame::new(frame, 0));
            return;
        }
        self.counters.rx_frames += 1;
        self.counters.rx_octets += len as u64;
        out.push(RxFrame::new(frame, len));
    }

    /// Moves queued frames to the transmit ring as far as it has room.
    fn produce_tx(&mut self) {
        while !self.queued.is_empty() {
            let n = self
                .queued
                .len()
                .min(BATCH)
                .min(self.tx.nb_free(BATCH_ENTRIES) as usize);
            // SAFETY: every queued descriptor is of this UMEM and its frame is parked until the completion ring returns it.
            let taken = unsafe { self.tx.produce(&self.queued[..n]) };
            if taken == 0 {
                return;
            }
            self.queued.drain(..taken);
        }
    }

    /// Takes back the frames that the kernel has sent.
    fn complete(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        loop {
            // SAFETY: the array holds descriptors of this UMEM, which the call overwrites.
            let n = unsafe { self.completion.consume(&mut self.taken[..]) };
            for descriptor in &self.taken[..n] {
                let Ok(frame) = self.parked.returned(chunk_of(descriptor)) else {
                    log::error!("{}: a completion without a frame", self.interface);
                    continue;
                };
                self.free.extend(frame);
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

    /// Fails when frames are in flight and none has come back for [`STALL_LIMIT`].
    fn watch_progress(&mut self) -> Result<(), IoError> {
        if self.in_flight == 0 {
            self.last_progress = None;
            return Ok(());
        }
        let since = *self.last_progress.get_or_insert_with(Instant::now);
        if since.elapsed() < STALL_LIMIT {
            return Ok(());
        }
        Err(IoError::Stalled {
            interface: self.interface.clone(),
            frames: self.in_flight,
            seconds: STALL_LIMIT.as_secs(),
        })
    }
}

impl PacketIo for XdpIo {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let mut left = budget;
        while left > 0 {
            let want = left.min(BATCH);
            // SAFETY: the array holds descriptors of this UMEM, which the call overwrites.
            let n = unsafe { self.rx.consume(&mut self.taken[..want]) };
            for at in 0..n {
                let descriptor = self.taken[at];
                if let Some(frame) = self.unpark(&descriptor) {
                    self.accept(&descriptor, frame, out);
                }
            }
            left -= n;
            if n < want {
                return;
            }
        }
    }

    fn recycle(&mut self, frame: RxFrame) {
        let descriptor = self.park(frame.into_frame(), false);
        self.batch.push(descriptor);
        if self.batch.len() == BATCH {
            self.produce_fill();
        }
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        if self.free.is_empty() {
            self.complete();
        }
        let frame = self.free.pop();
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
        self.complete();
        self.parked.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.free.extend(self.parked.release(&sent));
    }

    fn tx_free(&self) -> usize {
        self.free.len()
    }

    fn rx_frames(&self) -> usize {
        self.receive_frames
    }

    fn discard(&mut self, frame: TxFrame) {
        self.free.push(frame.into_frame());
    }

    fn flush(&mut self) -> Result<(), IoError> {
        if !self.batch.is_empty() {
            self.produce_fill();
        }
        if self.in_flight == 0 {
            return Ok(());
        }
        self.produce_tx();
        if self.tx.needs_wakeup() {
            self.tx.wakeup().map_err(|source| IoError::Transmit {
                interface: self.interface.clone(),
                source,
            })?;
        }
        self.complete();
        self.watch_progress()
    }

    fn backlog(&self) -> bool {
        self.in_flight > 0
    }

    fn too_big(&mut self) -> Option<Icmp> {
        self.icmp.as_ref()?.next()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd())
    }

    fn counters(&self) -> IoCounters {
        let mut counters = self.counters;
        if let Ok(kernel) = self.rx.fd().xdp_statistics() {
            counters.drop_rx_ring_full = kernel.rx_ring_full();
            counters.drop_rx_no_frame = kernel.rx_fill_ring_empty_descs();
            counters.drop_rx_other = kernel.rx_dropped() + self.drop_rx_unusable;
            counters.drop_tx_invalid = kernel.tx_invalid_descs();
        }
        counters
    }
}

fn chunk_of(descriptor: &FrameDesc) -> usize {
    descriptor.addr() / CHUNK
}

type Rings = (TxQueue, RxQueue, Option<(FillQueue, CompQueue)>);

/// Binds, and waits for a queue that its former owner closed a moment ago.
fn bind(interface: &str, queue: u32, ring: u32, umem: &Umem) -> Result<Rings, OpenQueueError> {
    let refused = |reason: String| OpenQueueError::Refused {
        interface: interface.to_owned(),
        queue,
        reason,
    };
    let name = CString::new(interface).map_err(|error| refused(error.to_string()))?;
    let name = Interface::new(name);
    let ring = QueueSize::new(ring).map_err(|error| refused(error.to_string()))?;
    let config = SocketConfig::builder()
        .rx_queue_size(ring)
        .tx_queue_size(ring)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP)
        .build();
    let patience = Instant::now() + REBIND_PATIENCE;
    loop {
        // SAFETY: the program load is inhibited, and this UMEM has no other socket on the pair.
        let error = match unsafe { Socket::new(config, umem, &name, queue) } {
            Ok(rings) => return Ok(rings),
            Err(error) => error,
        };
        match crate::errno_of(&error) {
            Some(nix::libc::EBUSY) if Instant::now() < patience => std::thread::sleep(REBIND_PAUSE),
            Some(nix::libc::EBUSY) => {
                return Err(OpenQueueError::Busy {
                    interface: interface.to_owned(),
                    queue,
                });
            }
            Some(nix::libc::EPERM | nix::libc::EACCES) => {
                return Err(OpenQueueError::NotPermitted {
                    interface: interface.to_owned(),
                });
            }
            _ => return Err(refused(crate::error_chain(&error))),
        }
    }
}

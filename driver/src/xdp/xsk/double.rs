//! Double of the kernel for tests: the kernel's ends of a socket's four rings, its system calls,
//! and its clock.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, Stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapRaw};
use nix::libc;

use super::ring::{Consumer, Descriptor, Entry, Offsets, Producer};
use super::socket::{Bind, Calls, Queue, RingSet};
use crate::memory::Arena;

pub(super) const OFFSETS: Offsets = Offsets {
    producer: 0,
    consumer: 64,
    flags: 128,
    entries: 192,
};

/// Memory for a ring of entries of either type.
pub(super) fn mapping(size: u32) -> Arc<MmapRaw> {
    let bytes = OFFSETS.entries + size as usize * size_of::<Descriptor>();
    Arc::new(MmapRaw::from(MmapMut::map_anon(bytes).unwrap()))
}

/// Both ends of a new ring.
pub(super) fn ends<E: Entry>(size: u32) -> (Producer<E>, Consumer<E>) {
    let mapping = mapping(size);
    let producer = Producer::new(Arc::clone(&mapping), &OFFSETS, size).unwrap();
    (producer, Consumer::new(mapping, &OFFSETS, size).unwrap())
}

/// The kernel behind one socket. A clone is the same kernel: the queue has one as its socket, and
/// the test has one.
#[derive(Clone)]
pub(crate) struct Kernel(Arc<Mutex<State>>);

struct State {
    rx: Producer<Descriptor>,
    tx: Consumer<Descriptor>,
    fill: Consumer<u64>,
    completion: Producer<u64>,
    umem: Option<Arc<Arena>>,
    now: Instant,
    /// Calls that send, and calls that look for chunks to receive into.
    calls: [usize; 2],
    /// The error of each such call.
    refusal: Option<i32>,
    /// The flags of each try to bind.
    binds: Vec<u16>,
    /// Errors of the next tries.
    bind_errors: VecDeque<i32>,
    zero_copy: bool,
    statistics: libc::xdp_statistics,
}

impl Kernel {
    /// A kernel, and the queue's ends of its rings, which have `entries` entries.
    pub(crate) fn new(entries: u32) -> (Self, RingSet) {
        let (producer, rx) = ends(entries);
        let (tx, consumer) = ends(entries);
        let (fill, chunks) = ends(entries);
        let (completed, completion) = ends(entries);
        let state = State {
            rx: producer,
            tx: consumer,
            fill: chunks,
            completion: completed,
            umem: None,
            now: Instant::now(),
            calls: [0; 2],
            refusal: None,
            binds: Vec::new(),
            bind_errors: VecDeque::new(),
            zero_copy: false,
            // SAFETY: it is made of numbers, so that zeros are one.
            statistics: unsafe { std::mem::zeroed() },
        };
        let rings = RingSet {
            rx,
            tx,
            fill,
            completion,
        };
        (Self(Arc::new(Mutex::new(state))), rings)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Is shown the memory that frames lie in.
    pub(crate) fn register(&self, umem: &Arc<Arena>) {
        self.state().umem = Some(Arc::clone(umem));
    }

    /// Makes the driver's own buffers carry the frames.
    pub(crate) fn set_zero_copy(&self) {
        self.state().zero_copy = true;
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, time: Duration) {
        self.state().now += time;
    }

    /// Calls that have sent, and calls that have looked for chunks, since this was asked last.
    pub(crate) fn calls(&self) -> [usize; 2] {
        std::mem::take(&mut self.state().calls)
    }

    /// Makes each call fail from now on, or none.
    pub(crate) fn refuse(&self, errno: Option<i32>) {
        self.state().refusal = errno;
    }

    /// Makes the next attempts to bind fail.
    pub(crate) fn refuse_binding(&self, errnos: impl IntoIterator<Item = i32>) {
        self.state().bind_errors.extend(errnos);
    }

    /// The flags of each try to bind.
    pub(crate) fn binds(&self) -> Vec<u16> {
        self.state().binds.clone()
    }

    /// Counts something.
    pub(crate) fn count(&self, change: impl FnOnce(&mut libc::xdp_statistics)) {
        change(&mut self.state().statistics);
    }

    /// Says whether it must be called to send, and to receive.
    pub(crate) fn ask_for_wakeups(&self, send: bool, receive: bool) {
        let state = self.state();
        state.tx.ask_for_wakeup(send);
        state.fill.ask_for_wakeup(receive);
    }

    /// Takes `most` chunks to receive into at most. Returns their addresses.
    pub(crate) fn take_chunks(&self, most: usize) -> Vec<u64> {
        let fill = &mut self.state().fill;
        let there = fill.available(most);
        let chunks = (0..there).filter_map(|_| fill.pop()).collect();
        fill.release();
        chunks
    }

    /// Writes bytes to an address, and shows them as a frame, or as a piece with `more` to come.
    /// Refuses what finds no room in the ring.
    pub(crate) fn receive_at(&self, addr: u64, bytes: &[u8], more: bool) {
        let mut state = self.state();
        let at = usize::try_from(addr).unwrap();
        if let Some(place) = state.place(at, bytes.len()) {
            // SAFETY: the place lies in the memory. The queue has lent it, or a test plays a kernel
            // that is wrong while nothing reads there.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        // SAFETY: entries of this ring are only read, by the queue that is tested.
        let pushed = unsafe { state.rx.push(Descriptor::new(at, bytes.len(), more)) };
        assert!(pushed, "the receive ring is full");
        state.rx.publish();
    }

    /// Takes `most` pieces that are to be sent at most.
    pub(crate) fn take_pieces(&self, most: usize) -> Vec<Descriptor> {
        let tx = &mut self.state().tx;
        let there = tx.available(most);
        let pieces = (0..there).filter_map(|_| tx.pop()).collect();
        tx.release();
        pieces
    }

    /// The bytes of a piece, or those in front of it.
    pub(crate) fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        let place = self.state().place(usize::try_from(addr).unwrap(), len);
        let place = place.expect("bytes of the memory");
        // SAFETY: the place lies in the memory, and the queue does not write there until the piece
        // is completed.
        unsafe { std::slice::from_raw_parts(place, len) }.to_vec()
    }

    /// Completes the chunk at an address.
    pub(crate) fn complete(&self, addr: u64) {
        let completion = &mut self.state().completion;
        // SAFETY: entries of this ring are only read, by the queue that is tested.
        let pushed = unsafe { completion.push(addr) };
        assert!(pushed, "the completion ring is full");
        completion.publish();
    }
}

impl State {
    fn place(&self, at: usize, len: usize) -> Option<*mut u8> {
        let place = self.umem.as_ref()?.checked_ptr(at, len)?;
        Some(place.as_ptr())
    }

    fn called(&mut self, which: usize) -> io::Result<()> {
        self.calls[which] += 1;
        let refusal = self.refusal.map(io::Error::from_raw_os_error);
        refusal.map_or(Ok(()), Err)
    }
}

/// A queue's end before it is bound.
pub(crate) struct UnboundKernel {
    pub(crate) kernel: Kernel,
    pub(crate) rings: RingSet,
}

impl Bind for UnboundKernel {
    type Socket = Kernel;

    fn bind(self, queue: &Queue) -> Result<(Kernel, RingSet), (Self, io::Error)> {
        let error = {
            let mut state = self.kernel.state();
            state.binds.push(queue.flags);
            state.bind_errors.pop_front()
        };
        match error {
            None => Ok((self.kernel, self.rings)),
            Some(errno) => Err((self, io::Error::from_raw_os_error(errno))),
        }
    }
}

impl Calls for Kernel {
    fn transmit(&self) -> io::Result<()> {
        self.state().called(0)
    }

    fn receive(&self) -> io::Result<()> {
        self.state().called(1)
    }

    fn has_zero_copy(&self) -> io::Result<bool> {
        Ok(self.state().zero_copy)
    }

    fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        Ok(self.state().statistics)
    }

    fn poll_busily(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn now(&self) -> Instant {
        self.state().now
    }
}

impl AsFd for Kernel {
    /// Something open.
    fn as_fd(&self) -> BorrowedFd<'_> {
        static OPEN: std::sync::LazyLock<Stdin> = std::sync::LazyLock::new(io::stdin);
        OPEN.as_fd()
    }
}

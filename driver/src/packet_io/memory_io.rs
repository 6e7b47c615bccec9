//! A packet interface without a kernel: frames wait in memory until a test that plays the network
//! carries them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xwarp_bpf::RxMetadata;

use super::frame::{Layout, RxFrame, SentFrame, TxFrame};
use super::frame_pool::FramePool;
use super::tx_metadata::ChecksumRequest;
use super::{Icmp, IoCounters, IoError, PacketIo};
use crate::memory::Arena;
use crate::wake::Signal;

/// A frame's room, if nothing else is said. It takes the largest IP packet behind an Ethernet
/// header with two VLAN tags, up to a whole cache line. Memory that is never written takes none.
const ROOM: usize = 65_600;
/// Bytes in front of a frame: a whole cache line, where metadata of its arrival has room.
const HEADROOM: usize = 64;

/// A [`PacketIo`] whose other end is a [`Wire`].
pub struct MemoryIo {
    /// Free frames, and sent ones that are kept or have not completed.
    pool: FramePool,
    /// Places of frames that have not completed.
    uncompleted: Vec<usize>,
    frames: usize,
    /// Bytes of each.
    room: usize,
    /// Frames that were sent while the link was down.
    held: Vec<Vec<u8>>,
    up: bool,
    /// Checksums can be left to it.
    offers_checksums: bool,
    local_hop: Option<LocalHop>,
    wire: Wire,
    /// Raised while frames wait to be received, if they are announced.
    arrival: Option<Arc<Signal>>,
    counters: IoCounters,
}

/// A next hop of a [`MemoryIo`] whose peers are processes of this host, as behind a switch between
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalHop {
    /// Ethernet address of the next hop. Frames from it are of this host.
    pub mac: [u8; 6],
    /// Size in bytes of the largest IP packet to it, if the MTU of the interface is not the bound.
    pub mtu: Option<usize>,
    /// Frames need no TCP checksum, in either direction.
    pub is_trusted: bool,
}

/// Buffers that a wire keeps at most.
const BUFFERS: usize = 512;

/// The cable of a [`MemoryIo`]: what it sent can be taken off, what it shall receive can be put on.
#[derive(Clone, Default)]
pub struct Wire(Arc<Cable>);

#[derive(Default)]
struct Cable {
    /// There may be frames in `arriving`: an interface that is polled without any takes no lock.
    arrives: AtomicBool,
    ends: Mutex<Ends>,
}

#[derive(Default)]
struct Ends {
    sent: VecDeque<Vec<u8>>,
    arriving: VecDeque<Vec<u8>>,
    /// When each of them arrived by the NIC's clock, from the first on that has a time.
    times: Option<VecDeque<Option<Duration>>>,
    /// Raised while there is something in `arriving`.
    arrival: Option<Arc<Signal>>,
    icmp: VecDeque<Icmp>,
    /// Transmissions do not complete.
    busy: bool,
    /// Checksums that are left to the interface are never computed.
    leaves_checksums: bool,
    /// Buffers of frames that have been received, for frames to come.
    buffers: Vec<Vec<u8>>,
}

impl Ends {
    /// A copy of a frame.
    fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let Some(mut bytes) = self.buffers.pop() else {
            return frame.to_vec();
        };
        bytes.clear();
        bytes.extend_from_slice(frame);
        bytes
    }

    /// The next frame to be put on arrives then.
    fn put_time(&mut self, arrival: Duration) {
        let earlier = self.arriving.len();
        let times = self.times.get_or_insert_with(|| vec![None; earlier].into());
        times.push_back(Some(arrival));
    }

    /// Writes the time of arrival in front of the frame that was just taken off, if there is one.
    #[cold]
    fn describe(&mut self, frame: Option<&mut RxFrame>) {
        let time = self.times.as_mut().and_then(VecDeque::pop_front).flatten();
        if let (Some(time), Some(frame)) = (time, frame) {
            frame.describe(&RxMetadata::at(time));
        }
    }

    /// Computes the checksum of a frame that was left to the interface, if it does.
    #[cold]
    fn finish(&self, bytes: &mut [u8], request: ChecksumRequest) {
        if !self.leaves_checksums {
            request.fulfil(bytes);
        }
    }

    /// Takes the buffer of a frame that was received.
    fn keep(&mut self, bytes: Vec<u8>) {
        if self.buffers.len() < BUFFERS {
            self.buffers.push(bytes);
        }
    }
}

impl Wire {
    /// Takes the oldest frame that was sent and not yet taken.
    pub fn take_sent(&self) -> Option<Vec<u8>> {
        self.ends().sent.pop_front()
    }

    /// Lets a frame arrive, after those that are waiting already.
    pub fn deliver(&self, frame: Vec<u8>) {
        let mut ends = self.ends();
        if let Some(times) = &mut ends.times {
            times.push_back(None);
        }
        self.put_on(ends, frame);
    }

    /// Carries a frame with the NIC's time of arrival. A frame in the place of one with a time has
    /// its own only behind [`WithRxMetadata`](crate::WithRxMetadata).
    pub fn deliver_at(&self, frame: Vec<u8>, arrival: Duration) {
        let mut ends = self.ends();
        ends.put_time(arrival);
        self.put_on(ends, frame);
    }

    #[inline]
    fn put_on(&self, mut ends: MutexGuard<'_, Ends>, frame: Vec<u8>) {
        ends.arriving.push_back(frame);
        self.0.arrives.store(true, Ordering::Release);
        if let Some(arrival) = &ends.arrival {
            arrival.raise();
        }
    }

    /// Lets an ICMP message arrive that is to be asked for.
    pub fn deliver_icmp(&self, message: Icmp) {
        self.ends().icmp.push_back(message);
    }

    /// Says whether the interface is busy. While it is, what it sends reaches the wire, but no
    /// transmission completes, as with a kernel that is slow to return frames.
    pub fn set_busy(&self, busy: bool) {
        self.ends().busy = busy;
    }

    /// Says whether the interface computes the checksums that are left to it, as it does at first.
    /// If not, it sends frames without.
    pub fn set_computes_checksums(&self, computes: bool) {
        self.ends().leaves_checksums = !computes;
    }

    /// Gives another wire some of the buffers that received frames have left here, so that both
    /// have as many. So frames that go one way only cost no allocation either.
    pub fn share_buffers(&self, other: &Self) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let wanted = other.ends().buffers.len();
        let mut given = {
            let buffers = &mut self.ends().buffers;
            let surplus = buffers.len().saturating_sub(wanted);
            buffers.split_off(buffers.len() - surplus.div_ceil(2))
        };
        other.ends().buffers.append(&mut given);
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ends, if a frame may wait to be received.
    fn arrivals(&self) -> Option<MutexGuard<'_, Ends>> {
        let arrives = self.0.arrives.load(Ordering::Acquire);
        arrives.then(|| self.ends())
    }
}

impl MemoryIo {
    /// An interface with `frames` frames that have room for any packet, and its wire.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory is left for the frames.
    pub fn new(frames: usize) -> io::Result<(Self, Wire)> {
        Self::with_room(frames, ROOM)
    }

    /// An interface with `frames` frames of at most `room` bytes, and its wire.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory is left for the frames.
    pub fn with_room(frames: usize, room: usize) -> io::Result<(Self, Wire)> {
        let stride = HEADROOM + room;
        let (arena, free) = Arena::anonymous(frames * stride)?.into_frames(
            &[Layout {
                first: HEADROOM,
                count: frames,
                capacity: room,
                stride,
            }],
            HEADROOM,
        );
        let wire = Wire::default();
        let io = Self {
            pool: FramePool::new(arena, free),
            uncompleted: Vec::new(),
            frames,
            room,
            held: Vec::new(),
            up: true,
            offers_checksums: false,
            local_hop: None,
            wire: wire.clone(),
            arrival: None,
            counters: IoCounters::default(),
        };
        Ok((io, wire))
    }

    /// The same interface, which announces frames by a descriptor, as an AF_XDP socket does: for
    /// engines that sleep.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn announced(mut self) -> io::Result<Self> {
        let arrival = Arc::new(Signal::new()?);
        self.wire.ends().arrival = Some(Arc::clone(&arrival));
        self.arrival = Some(arrival);
        Ok(self)
    }

    /// The same interface, which offers to compute checksums, as some NICs do.
    /// [`Wire::set_computes_checksums`] says whether it does.
    #[must_use]
    pub fn offering_checksums(mut self) -> Self {
        self.offers_checksums = true;
        self
    }

    /// The same interface with a next hop to processes of this host.
    #[must_use]
    pub fn with_local_hop(mut self, hop: LocalHop) -> Self {
        self.local_hop = Some(hop);
        self
    }

    /// The next hop to processes of this host, if it has this Ethernet address.
    fn local_hop(&self, mac: &[u8]) -> Option<&LocalHop> {
        self.local_hop.as_ref().filter(|hop| hop.mac == mac)
    }

    fn emit(&mut self, frame: TxFrame, kept: bool) -> SentFrame {
        let len = frame.len();
        let mut ends = self.wire.ends();
        let mut bytes = ends.copy(&frame);
        if let Some(request) = frame.left_checksum() {
            ends.finish(&mut bytes, request);
        }
        let parked = self.pool.park(frame.into_frame(), kept);
        if let Ok(place) = parked {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += len as u64;
            if self.up {
                ends.sent.push_back(bytes);
            } else {
                self.held.push(bytes);
            }
            if self.up && !ends.busy {
                complete(&mut self.pool, place);
            } else {
                self.uncompleted.push(place);
            }
        }
        self.pool.token(parked, len)
    }

    /// Puts what was sent on the wire, unless the link is down.
    fn let_go(&mut self) {
        if self.up {
            self.wire.ends().sent.extend(self.held.drain(..));
        }
    }

    #[inline]
    fn complete(&mut self) {
        if !self.uncompleted.is_empty() {
            self.complete_all();
        }
    }

    #[inline(never)]
    fn complete_all(&mut self) {
        if !self.up || self.wire.ends().busy {
            return;
        }
        for place in self.uncompleted.drain(..) {
            complete(&mut self.pool, place);
        }
    }
}

fn complete(pool: &mut FramePool, place: usize) {
    let completed = pool.complete(place);
    debug_assert!(completed.is_ok(), "a frame that was sent is gone");
}

/// A frame of the pool with a copy of `bytes`, at most `room` of them.
fn accept(
    bytes: &[u8],
    room: usize,
    pool: &mut FramePool,
    counters: &mut IoCounters,
) -> Option<RxFrame> {
    if bytes.len() > room {
        counters.drop_rx_other += 1;
        return None;
    }
    let Some(frame) = pool.take() else {
        counters.drop_rx_no_frame += 1;
        return None;
    };
    let mut filled = TxFrame::new(frame);
    filled.set_len(bytes.len());
    filled.copy_from_slice(bytes);
    counters.rx_frames += 1;
    counters.rx_bytes += bytes.len() as u64;
    Some(RxFrame::new(filled.into_frame(), bytes.len()))
}

impl PacketIo for MemoryIo {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let Some(mut ends) = self.wire.arrivals() else {
            return;
        };
        if !self.up {
            ends.arriving.clear();
            ends.times = None;
        }
        for _ in 0..budget.min(ends.arriving.len()) {
            let Some(bytes) = ends.arriving.pop_front() else {
                break;
            };
            let (pool, counters) = (&mut self.pool, &mut self.counters);
            let before = out.len();
            if let Some(frame) = accept(&bytes, self.room, pool, counters) {
                out.push(frame);
            }
            if ends.times.is_some() {
                ends.describe(out.get_mut(before));
            }
            ends.keep(bytes);
        }
        if ends.arriving.is_empty() {
            self.wire.0.arrives.store(false, Ordering::Release);
            if let Some(arrival) = &ends.arrival {
                arrival.clear();
            }
        }
    }

    fn recycle(&mut self, frame: RxFrame) {
        self.pool.give_back(frame.into_frame());
    }

    fn owns(&self, frame: &RxFrame) -> bool {
        self.pool.owns(frame.frame())
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        let frame = self.pool.take();
        if frame.is_none() {
            self.counters.tx_exhausted += 1;
        }
        frame.map(TxFrame::new)
    }

    fn send(&mut self, frame: TxFrame) {
        let _completes_by_itself = self.emit(frame, false);
    }

    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        self.emit(frame, true)
    }

    fn keep(&mut self, frame: TxFrame) -> SentFrame {
        self.pool.keep(frame)
    }

    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.complete();
        self.pool.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.pool.release(&sent);
    }

    fn tx_free(&self) -> usize {
        self.pool.free()
    }

    fn rx_frames(&self) -> usize {
        self.frames
    }

    fn discard(&mut self, frame: TxFrame) {
        self.pool.give_back(frame.into_frame());
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.complete();
        Ok(())
    }

    fn backlog(&self) -> bool {
        self.up && !self.uncompleted.is_empty()
    }

    fn set_up(&mut self, up: bool) {
        self.up = up;
        self.let_go();
    }

    fn too_big(&mut self) -> Option<Icmp> {
        self.wire.ends().icmp.pop_front()
    }

    fn offers_checksums(&self) -> bool {
        self.offers_checksums
    }

    /// By the source Ethernet address. A queue between processes knows a frame by its memory.
    fn is_looped(&self, frame: &RxFrame) -> bool {
        let source = frame.get(6..12);
        source.is_some_and(|source| self.local_hop(source).is_some())
    }

    fn stays_on_host(&self, next_hop: [u8; 6]) -> bool {
        self.local_hop(&next_hop).is_some()
    }

    fn mtu_towards(&self, next_hop: [u8; 6]) -> Option<usize> {
        self.local_hop(&next_hop)?.mtu
    }

    /// By the source Ethernet address, as for `is_looped`.
    fn trusts(&self, frame: &RxFrame) -> bool {
        let hop = frame.get(6..12).and_then(|source| self.local_hop(source));
        hop.is_some_and(|hop| hop.is_trusted)
    }

    fn needs_no_checksum(&self, next_hop: [u8; 6]) -> bool {
        self.local_hop(&next_hop).is_some_and(|hop| hop.is_trusted)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.arrival.as_ref().map(|arrival| arrival.as_fd())
    }

    fn counters(&self) -> IoCounters {
        let mut counters = self.counters;
        counters.drop_foreign += self.pool.refused();
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    #[test]
    fn sent_frame_reaches_the_wire_and_its_memory_is_reused() {
        let (mut io, wire) = MemoryIo::new(1).unwrap();
        for round in 0..3_u8 {
            let mut frame = io.tx_frame().unwrap();
            frame.set_len(3);
            frame.copy_from_slice(&[1, 2, round]);
            assert!(io.tx_frame().is_none(), "the only frame is taken");
            io.send(frame);
            assert_eq!(wire.take_sent(), Some(vec![1, 2, round]));
        }
        assert_eq!(io.counters().tx_exhausted, 3);
    }

    #[test]
    fn shared_buffers_are_those_of_received_frames() {
        let [(mut a, at_a), (mut b, at_b)] = [1, 1].map(|frames| MemoryIo::new(frames).unwrap());
        let mut places = Vec::new();
        for round in 0..3_u8 {
            let mut frame = a.tx_frame().unwrap();
            frame.set_len(60);
            frame.fill(round);
            a.send(frame);
            let sent = at_a.take_sent().unwrap();
            assert_eq!(sent, [round; 60]);
            places.push(sent.as_ptr());
            at_b.deliver(sent);
            let mut frames = Vec::new();
            b.receive(8, &mut frames);
            assert_eq!(frames[0][..], [round; 60]);
            b.recycle(frames.remove(0));
            at_b.share_buffers(&at_a);
        }
        assert_eq!(places, [places[0]; 3]);
    }

    #[test]
    fn left_checksum_is_computed_once_if_it_is_at_all() {
        let (io, wire) = MemoryIo::new(1).unwrap();
        assert!(!io.offers_checksums(), "it was not asked for");
        let mut io = io.offering_checksums();
        assert!(io.offers_checksums());
        for (computes, field) in [(true, [0xfc, 0xfa]), (false, [3, 4])] {
            wire.set_computes_checksums(computes);
            let mut frame = io.tx_frame().unwrap();
            frame.set_len(6);
            frame.copy_from_slice(&[9, 9, 3, 4, 0, 1]);
            frame.leave_checksum(2, 0);
            let sent = io.send_kept(frame);
            let expected = [&[9, 9], &field[..], &[0, 1]].concat();
            assert_eq!(wire.take_sent(), Some(expected));
            let frame = io.reclaim(sent).unwrap();
            assert_eq!(*frame, [9, 9, 3, 4, 0, 1], "the NIC writes no memory");
            io.send(frame);
            let plain = vec![9, 9, 3, 4, 0, 1];
            assert_eq!(wire.take_sent(), Some(plain), "it was asked once");
        }
    }

    #[test]
    fn delivered_frame_is_received_once() {
        let (mut io, wire) = MemoryIo::new(2).unwrap();
        wire.deliver(vec![7; 60]);
        let mut frames = Vec::new();
        io.receive(8, &mut frames);
        assert_eq!(&*frames[0], &[7; 60]);
        assert_eq!(frames.len(), 1);
        io.recycle(frames.remove(0));
        io.receive(8, &mut frames);
        assert!(frames.is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn announced_frames_make_the_descriptor_readable() {
        let (io, wire) = MemoryIo::new(2).unwrap();
        assert!(io.readiness().is_none(), "it was not asked for");
        let mut io = io.announced().unwrap();
        let is_readable = |io: &MemoryIo| {
            let mut watched = [PollFd::new(io.readiness().unwrap(), PollFlags::POLLIN)];
            poll(&mut watched, PollTimeout::ZERO).unwrap() == 1
        };
        assert!(!is_readable(&io));
        wire.deliver(vec![7; 60]);
        wire.deliver(vec![8; 60]);
        let mut frames = Vec::new();
        io.receive(1, &mut frames);
        assert!(is_readable(&io), "there is one more");
        io.receive(1, &mut frames);
        assert!(!is_readable(&io));
    }

    #[test]
    fn while_the_link_is_down_frames_wait_and_what_arrives_is_lost() {
        let (mut io, wire) = MemoryIo::new(2).unwrap();
        io.set_up(false);
        let frame = io.tx_frame().unwrap();
        let sent = io.send_kept(frame);
        wire.deliver(vec![7; 60]);
        let mut frames = Vec::new();
        io.receive(8, &mut frames);
        assert!(frames.is_empty());
        let sent = io.reclaim(sent).expect_err("it has not left");
        assert_eq!((wire.take_sent(), io.backlog()), (None, false));
        io.set_up(true);
        assert!(wire.take_sent().is_some());
        assert!(io.reclaim(sent).is_ok());
        io.receive(8, &mut frames);
        assert!(frames.is_empty(), "it is not there later either");
    }

    #[test]
    fn frames_without_room_are_counted_as_dropped() {
        let (mut io, wire) = MemoryIo::new(1).unwrap();
        wire.deliver(vec![0; ROOM + 1]);
        wire.deliver(vec![0; 60]);
        wire.deliver(vec![0; 60]);
        let mut frames = Vec::new();
        io.receive(8, &mut frames);
        assert_eq!(frames.len(), 1);
        assert_eq!(io.counters().drop_rx_other, 1);
        assert_eq!(io.counters().drop_rx_no_frame, 1);
        io.recycle(frames.remove(0));
    }

    #[test]
    fn kept_frame_comes_back_as_it_was_sent_once_its_transmission_has_completed() {
        let (mut io, wire) = MemoryIo::new(1).unwrap();
        let mut frame = io.tx_frame().unwrap();
        frame.set_len(3);
        frame.copy_from_slice(&[1, 2, 3]);
        wire.set_busy(true);
        let sent = io.send_kept(frame);
        assert_eq!((sent.len(), wire.take_sent()), (3, Some(vec![1, 2, 3])));
        let sent = io.reclaim(sent).expect_err("the kernel has it");
        assert!(io.backlog());
        wire.set_busy(false);
        io.flush().unwrap();
        assert!(io.tx_frame().is_none(), "it is its sender's");
        let mut frame = io.reclaim(sent).unwrap();
        assert_eq!(*frame, [1, 2, 3]);
        frame[0] = 9;
        let sent = io.send_kept(frame);
        assert_eq!(wire.take_sent(), Some(vec![9, 2, 3]));
        io.release(sent);
        assert!(io.tx_frame().is_some());
    }

    #[test]
    fn frame_released_before_its_completion_is_free_after_it() {
        let (mut io, wire) = MemoryIo::new(1).unwrap();
        wire.set_busy(true);
        let frame = io.tx_frame().unwrap();
        let sent = io.send_kept(frame);
        io.release(sent);
        assert!(io.tx_frame().is_none());
        wire.set_busy(false);
        io.flush().unwrap();
        assert_eq!(io.tx_free(), 1);
        assert!(io.tx_frame().is_some());
    }

    /// Two queues with four frames each, of which the second has received one and holds one to
    /// send.
    fn two_queues() -> (MemoryIo, MemoryIo, RxFrame, TxFrame) {
        let (a, _) = MemoryIo::new(4).unwrap();
        let (mut b, wire) = MemoryIo::new(4).unwrap();
        wire.deliver(vec![7; 60]);
        let mut received = Vec::new();
        b.receive(1, &mut received);
        let mut filled = b.tx_frame().unwrap();
        filled.set_len(2);
        (a, b, received.remove(0), filled)
    }

    #[test]
    fn frame_of_another_queue_is_neither_sent_nor_kept_nor_reused() {
        for give in [
            |a: &mut MemoryIo, rx, _| a.recycle(rx),
            |a: &mut MemoryIo, _, tx| a.discard(tx),
            |a: &mut MemoryIo, _, tx| a.send(tx),
            |a: &mut MemoryIo, _, tx| {
                let sent = a.send_kept(tx);
                let sent = a.reclaim(sent).expect_err("it was not sent");
                a.release(sent);
            },
        ] {
            let (mut a, _b, rx, tx) = two_queues();
            give(&mut a, rx, tx);
            a.flush().unwrap();
            assert_eq!((a.counters().drop_foreign, a.counters().tx_frames), (1, 0));
            assert_eq!((a.wire.take_sent(), a.tx_free()), (None, 4));
        }
    }

    #[test]
    fn token_of_another_queue_opens_nothing() {
        let (mut a, mut b, _rx, theirs) = two_queues();
        let mut ours = a.tx_frame().unwrap();
        ours.set_len(5);
        ours.fill(1);
        let (mut ours, theirs) = (a.send_kept(ours), b.send_kept(theirs));
        let theirs = a.reclaim(theirs).expect_err("it is b's");
        a.release(theirs);
        assert_eq!((a.counters().drop_foreign, a.tx_free()), (1, 3));
        for _ in 0..2 {
            let frame = a.reclaim(ours).expect("still its sender's");
            assert_eq!(*frame, [1; 5]);
            ours = a.send_kept(frame);
        }
        assert_eq!(b.tx_free(), 2, "b was not given its token back");
    }

    #[test]
    fn frame_that_was_live_when_a_foreign_one_came_keeps_its_bytes() {
        let (mut a, mut b) = (MemoryIo::new(2).unwrap(), MemoryIo::new(2).unwrap());
        let receive = |(io, wire): &mut (MemoryIo, Wire), byte: u8| {
            wire.deliver(vec![byte; 60]);
            let mut received = Vec::new();
            io.receive(1, &mut received);
            received.pop()
        };
        let live = receive(&mut a, 1).unwrap();
        let foreign = receive(&mut b, 2).unwrap();
        a.0.recycle(foreign);
        let _other = receive(&mut a, 3).unwrap();
        assert!(receive(&mut a, 4).is_none(), "two frames are two frames");
        assert_eq!(*live, [1; 60]);
    }
}

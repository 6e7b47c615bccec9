//! Hairpin: frames of a queue to its own interface are received again (decision record
//! driver/0025).
//!
//! The kernel routes packets for a local address over `lo`, and no switch sends a frame back to its
//! source port. So a connection between two programs on one queue is carried here, as an RDMA NIC
//! does by its internal loopback. All other frames go to the queue.

use std::io;
use std::os::fd::BorrowedFd;

use super::forward::forward;
use super::frame::{RxFrame, SentFrame, TxFrame};
use super::frame_copies::FrameCopies;
use super::levels::QueueLevels;
use super::memory_io::MemoryIo;
use super::{Icmp, IoCounters, IoError, PacketIo};

/// Bytes of an Ethernet address.
const ADDRESS: usize = 6;

/// A [`PacketIo`] with a hairpin. Frames whose source and destination are the same Ethernet address
/// are received again, in their own memory.
pub struct Hairpin {
    net: Box<dyn PacketIo>,
    /// Frames that come back.
    looped: FrameCopies,
}

impl Hairpin {
    /// Puts a hairpin between a queue and its owner. Its frames have room for `capacity` bytes.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory is left for the frames. The queue is unchanged.
    pub fn put_on(io: &mut Box<dyn PacketIo>, capacity: usize) -> io::Result<()> {
        let looped = FrameCopies::new(io.rx_frames(), capacity)?;
        let (nothing, _wire) = MemoryIo::new(0)?;
        let net = std::mem::replace(io, Box::new(nothing));
        *io = Box::new(Self { net, looped });
        Ok(())
    }

    /// True for a received frame that came back here.
    fn has_turned(&self, frame: &RxFrame) -> bool {
        frame.frame().is_of(self.looped.arena())
    }
}

/// True for a frame from an interface to itself.
fn comes_back(frame: &[u8]) -> bool {
    match frame.split_at_checked(ADDRESS) {
        Some((destination, rest)) => rest.starts_with(destination),
        None => false,
    }
}

impl PacketIo for Hairpin {
    forward!(net: tx_frame, keep, reclaim, release, tx_free, rx_frames, discard, flush, backlog, set_up, too_big, offers_checksums, stays_on_host, mtu_towards, trusts, needs_no_checksum, has_crossed, readiness, levels, diagnosis);

    /// Neither kind of frames starves the other: each may use half of the budget, and what the
    /// other leaves of it.
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let end = out.len() + budget;
        self.looped.receive(budget.div_ceil(2), out);
        self.net.receive(end - out.len(), out);
        self.looped.receive(end.saturating_sub(out.len()), out);
    }

    fn recycle(&mut self, frame: RxFrame) {
        if self.has_turned(&frame) {
            self.looped.recycle(frame);
        } else {
            self.net.recycle(frame);
        }
    }

    fn owns(&self, frame: &RxFrame) -> bool {
        self.has_turned(frame) || self.net.owns(frame)
    }

    fn send(&mut self, frame: TxFrame) {
        if comes_back(&frame) {
            let sent = self.send_kept(frame);
            self.net.release(sent);
        } else {
            self.net.send(frame);
        }
    }

    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        if !comes_back(&frame) {
            return self.net.send_kept(frame);
        }
        self.looped.take_in(&frame);
        self.net.keep(frame)
    }

    fn has_looped(&self) -> bool {
        self.looped.has_any() || self.net.has_looped()
    }

    fn is_looped(&self, frame: &RxFrame) -> bool {
        self.has_turned(frame) || self.net.is_looped(frame)
    }

    fn counters(&self) -> IoCounters {
        let mut counters = self.net.counters();
        counters.looped_frames += self.looped.taken();
        counters.drop_looped += self.looped.dropped();
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalHop, Wire};

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    /// Bytes of a frame of the tests.
    const CAPACITY: usize = 100;

    fn hairpin(frames: usize) -> (Box<dyn PacketIo>, Wire) {
        let (io, wire) = MemoryIo::with_room(frames, CAPACITY).unwrap();
        let mut io: Box<dyn PacketIo> = Box::new(io);
        Hairpin::put_on(&mut io, CAPACITY).unwrap();
        (io, wire)
    }

    /// A frame of the queue from the own interface.
    fn filled(io: &mut dyn PacketIo, to: [u8; 6], content: u8) -> TxFrame {
        let mut frame = io.tx_frame().unwrap();
        frame.set_len(60);
        frame.fill(content);
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&OWN);
        frame
    }

    fn received(io: &mut dyn PacketIo, budget: usize) -> Vec<RxFrame> {
        let mut frames = Vec::new();
        io.receive(budget, &mut frames);
        frames
    }

    fn recycle_all(io: &mut dyn PacketIo, frames: Vec<RxFrame>) {
        for frame in frames {
            io.recycle(frame);
        }
    }

    #[test]
    fn frames_to_the_own_interface_come_back_and_no_others() {
        let (mut io, wire) = hairpin(4);
        for round in 0..9 {
            let own = filled(&mut *io, OWN, round);
            io.send(own);
            let other = filled(&mut *io, OTHER, round);
            io.send(other);
            assert!(io.has_looped());
            let frames = received(&mut *io, 8);
            assert!(frames.len() == 1 && !io.has_looped());
            assert!(frames[0].len() == 60 && frames[0][12..] == [round; 48]);
            assert!(io.is_looped(&frames[0]));
            recycle_all(&mut *io, frames);
            assert_eq!(wire.take_sent().unwrap()[..6], OTHER);
            assert_eq!(wire.take_sent(), None);
        }
        let counters = io.counters();
        assert_eq!((counters.looped_frames, counters.drop_looped), (9, 0));
        assert_eq!((counters.tx_frames, counters.rx_frames), (9, 0));
    }

    #[test]
    fn kept_frame_can_be_reclaimed_at_once_and_what_came_back_stays_as_it_was() {
        let (mut io, wire) = hairpin(4);
        wire.set_busy(true);
        let frame = filled(&mut *io, OWN, 1);
        let sent = io.send_kept(frame);
        assert_eq!(io.tx_free(), 3, "it is its sender's");
        let mut again = io.reclaim(sent).expect("no queue has it");
        assert_eq!((again.len(), again[59]), (60, 1));
        again[59] = 2;
        let sent = io.send_kept(again);
        let frames = received(&mut *io, 8);
        assert_eq!([frames[0][59], frames[1][59]], [1, 2]);
        recycle_all(&mut *io, frames);
        io.release(sent);
        assert_eq!(io.tx_free(), 4);
    }

    #[test]
    fn frames_that_nobody_receives_are_dropped_and_counted() {
        let (mut io, _wire) = hairpin(2);
        for round in 0..5 {
            let frame = filled(&mut *io, OWN, round);
            io.send(frame);
        }
        let frames = received(&mut *io, 8);
        assert_eq!((frames.len(), frames[1][59]), (2, 1), "the first two");
        assert_eq!(io.counters().drop_looped, 3);
        recycle_all(&mut *io, frames);
        assert_eq!(io.tx_free(), 2, "their senders have theirs");
        let frame = filled(&mut *io, OWN, 9);
        io.send(frame);
        assert_eq!(received(&mut *io, 8).len(), 1);
    }

    #[test]
    fn frames_of_the_wire_and_looped_ones_share_the_budget() {
        let (mut io, wire) = hairpin(32);
        for round in 0..8 {
            let frame = filled(&mut *io, OWN, round);
            io.send(frame);
            wire.deliver(vec![round; 60]);
        }
        let is_looped = |io: &dyn PacketIo, frames: &[RxFrame]| {
            frames.iter().filter(|frame| io.is_looped(frame)).count()
        };
        let frames = received(&mut *io, 5);
        assert_eq!((frames.len(), is_looped(&*io, &frames)), (5, 3));
        let frames = received(&mut *io, 8);
        assert_eq!((frames.len(), is_looped(&*io, &frames)), (8, 4));
        let rest = received(&mut *io, 8);
        assert_eq!((rest.len(), is_looped(&*io, &rest)), (3, 1));
    }

    #[test]
    fn received_frame_goes_back_to_the_queue_that_it_came_from() {
        let (mut io, wire) = hairpin(1);
        for round in 0..3 {
            wire.deliver(vec![round; 60]);
            for frame in received(&mut *io, 8) {
                assert!(!io.is_looped(&frame));
                io.recycle(frame);
            }
        }
        let counters = io.counters();
        assert_eq!((counters.rx_frames, counters.drop_foreign), (3, 0));
    }

    #[test]
    fn frame_of_another_process_is_looped_and_goes_back_to_the_queue() {
        let (io, wire) = MemoryIo::with_room(1, CAPACITY).unwrap();
        let mut io: Box<dyn PacketIo> = Box::new(io.with_local_hop(LocalHop {
            mac: OTHER,
            mtu: Some(5000),
            is_trusted: true,
        }));
        Hairpin::put_on(&mut io, CAPACITY).unwrap();
        assert!(io.stays_on_host(OTHER) && !io.stays_on_host(OWN));
        assert_eq!(io.mtu_towards(OTHER), Some(5000));
        assert!(io.needs_no_checksum(OTHER) && !io.needs_no_checksum(OWN));
        for _ in 0..3 {
            wire.deliver([OWN, OTHER].concat());
            let frames = received(&mut *io, 8);
            assert!(io.is_looped(&frames[0]) && io.trusts(&frames[0]));
            recycle_all(&mut *io, frames);
        }
        let counters = io.counters();
        assert_eq!((counters.rx_frames, counters.drop_foreign), (3, 0));
    }

    #[test]
    fn frame_without_addresses_is_left_to_the_queue() {
        let (mut io, wire) = hairpin(2);
        for len in 0..12 {
            let mut frame = io.tx_frame().unwrap();
            frame.set_len(len);
            frame.fill(7);
            io.send(frame);
            assert_eq!(wire.take_sent(), Some(vec![7; len]));
        }
    }
}

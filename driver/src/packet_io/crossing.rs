//! Cross-queue I/O: frames that arrived at a queue of one engine and belong to another engine of
//! the same interface (decision record driver/0026).
//!
//! A NIC chooses the queue of a frame, and may change its choice (`ethtool -X`, `ethtool -L`, a
//! bond). The engine that receives the frame puts a copy of it into the [`HandoffQueue`] of the
//! engine that has the connection. That engine receives it besides the frames of its own queues.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, MutexGuard};

use super::forward::forward;
use super::frame::{RxFrame, SentFrame, TxFrame};
use super::frame_copies::FrameCopies;
use super::levels::QueueLevels;
use super::memory_io::MemoryIo;
use super::{Icmp, IoCounters, IoError, PacketIo};
use crate::memory::Arena;
use crate::wake::{Doorbell, Hinted};

/// A [`PacketIo`] with an inlet for frames of other queues.
pub struct CrossQueueIo {
    net: Box<dyn PacketIo>,
    inlet: HandoffQueue,
    /// The inlet's memory.
    arena: Arc<Arena>,
}

/// Inlet of an engine for frames from other engines. Clones are handles of the same inlet.
#[derive(Clone)]
pub struct HandoffQueue(Arc<Shared>);

struct Shared {
    copies: Hinted<FrameCopies>,
    bell: Doorbell,
}

impl HandoffQueue {
    /// Passes a copy of `frame` to the engine, and wakes it. If the queue is full, the frame is
    /// lost, as in a full receive ring.
    pub fn put(&self, frame: &[u8]) {
        let Shared { copies, bell } = &*self.0;
        copies.change(|copies| copies.take_in(frame), FrameCopies::has_any);
        bell.ring();
    }

    fn receive(&self, budget: usize, out: &mut Vec<RxFrame>) {
        if self.has_any() {
            let receive = |copies: &mut FrameCopies| copies.receive(budget, out);
            self.0.copies.change(receive, FrameCopies::has_any);
        }
    }

    fn has_any(&self) -> bool {
        self.0.copies.has_any()
    }

    fn copies(&self) -> MutexGuard<'_, FrameCopies> {
        self.0.copies.lock()
    }
}

impl CrossQueueIo {
    /// Puts a handoff queue between a queue and its owner, which `bell` wakes. Its frames have room
    /// for `capacity` bytes.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory is left for the frames. The queue is unchanged.
    pub fn put_on(
        io: &mut Box<dyn PacketIo>,
        capacity: usize,
        bell: Doorbell,
    ) -> io::Result<HandoffQueue> {
        let copies = FrameCopies::new(io.rx_frames(), capacity)?;
        let (nothing, _wire) = MemoryIo::new(0)?;
        let arena = Arc::clone(copies.arena());
        let inlet = HandoffQueue(Arc::new(Shared {
            copies: Hinted::new(copies),
            bell,
        }));
        let crossing = Self {
            net: std::mem::replace(io, Box::new(nothing)),
            inlet: inlet.clone(),
            arena,
        };
        *io = Box::new(crossing);
        Ok(inlet)
    }
}

impl PacketIo for CrossQueueIo {
    forward!(net: tx_frame, send, send_kept, keep, reclaim, release, tx_free, rx_frames, discard, flush, backlog, set_up, too_big, offers_checksums, is_looped, stays_on_host, mtu_towards, trusts, needs_no_checksum, readiness, levels);

    /// Neither kind of frames starves the other: each may use half of the budget, and what the
    /// other leaves of it.
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let end = out.len() + budget;
        self.inlet.receive(budget.div_ceil(2), out);
        self.net.receive(end - out.len(), out);
        self.inlet.receive(end.saturating_sub(out.len()), out);
    }

    fn recycle(&mut self, frame: RxFrame) {
        if self.has_crossed(&frame) {
            self.inlet.copies().recycle(frame);
        } else {
            self.net.recycle(frame);
        }
    }

    fn has_crossed(&self, frame: &RxFrame) -> bool {
        frame.frame().is_of(&self.arena)
    }

    fn owns(&self, frame: &RxFrame) -> bool {
        self.has_crossed(frame) || self.net.owns(frame)
    }

    fn has_looped(&self) -> bool {
        self.inlet.has_any() || self.net.has_looped()
    }

    fn diagnosis(&self) -> String {
        let (waiting, has_any) = (self.inlet.copies().waiting(), self.inlet.has_any());
        format!(
            "{}; inlet: {waiting} frames, has_any {has_any}, {:?}",
            self.net.diagnosis(),
            self.inlet.0.bell
        )
    }

    fn counters(&self) -> IoCounters {
        let mut counters = self.net.counters();
        let copies = self.inlet.copies();
        counters.crossed_frames += copies.taken();
        counters.drop_crossed += copies.dropped();
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hairpin, Sleeper, Wire};

    /// Bytes of a frame of the tests.
    const CAPACITY: usize = 100;

    struct Host {
        io: Box<dyn PacketIo>,
        wire: Wire,
        inlet: HandoffQueue,
        sleeper: Sleeper,
    }

    fn host(frames: usize) -> Host {
        let (io, wire) = MemoryIo::with_room(frames, CAPACITY).unwrap();
        let mut io: Box<dyn PacketIo> = Box::new(io);
        let (sleeper, bell) = Sleeper::new().unwrap();
        let inlet = CrossQueueIo::put_on(&mut io, CAPACITY, bell).unwrap();
        Host {
            io,
            wire,
            inlet,
            sleeper,
        }
    }

    fn received(io: &mut dyn PacketIo, budget: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        io.receive(budget, &mut frames);
        let bytes = frames.iter().map(|frame| frame.to_vec()).collect();
        for frame in frames {
            io.recycle(frame);
        }
        bytes
    }

    #[test]
    fn frame_comes_as_it_was_put_and_its_memory_is_used_again() {
        let Host { mut io, inlet, .. } = host(2);
        for round in 0..9 {
            inlet.put(&[round; 60]);
            assert!(io.has_looped());
            assert_eq!(received(&mut *io, 8), [vec![round; 60]]);
            assert!(!io.has_looped());
        }
        let counters = io.counters();
        assert_eq!((counters.crossed_frames, counters.drop_crossed), (9, 0));
        assert_eq!((counters.rx_frames, counters.drop_foreign), (0, 0));
    }

    /// Also behind what connections to the own host need.
    #[test]
    fn frame_is_known_by_the_way_that_it_has_come() {
        let Host {
            mut io,
            wire,
            inlet,
            ..
        } = host(2);
        Hairpin::put_on(&mut io, CAPACITY).unwrap();
        for has_crossed in [true, false] {
            if has_crossed {
                inlet.put(&[1; 60]);
            } else {
                wire.deliver(vec![1; 60]);
            }
            let mut frames = Vec::new();
            io.receive(8, &mut frames);
            let frame = frames.pop().unwrap();
            assert_eq!(io.has_crossed(&frame), has_crossed);
            assert!(!io.is_looped(&frame));
            io.recycle(frame);
        }
    }

    #[test]
    fn frames_without_room_are_dropped_and_counted() {
        let Host { mut io, inlet, .. } = host(2);
        (0..5).for_each(|round| inlet.put(&[round; 60]));
        inlet.put(&[9; CAPACITY + 1]);
        assert_eq!(received(&mut *io, 8), [vec![0; 60], vec![1; 60]]);
        inlet.put(&[9; CAPACITY + 1]);
        assert_eq!(received(&mut *io, 8), [] as [Vec<u8>; 0]);
        let counters = io.counters();
        assert_eq!((counters.crossed_frames, counters.drop_crossed), (2, 5));
    }

    #[test]
    fn own_and_crossed_frames_share_the_budget() {
        let Host {
            mut io,
            wire,
            inlet,
            ..
        } = host(32);
        for _ in 0..8 {
            inlet.put(&[1; 60]);
            wire.deliver(vec![0; 60]);
        }
        let crossed = |frames: Vec<Vec<u8>>| frames.iter().map(|it| usize::from(it[0])).sum();
        let shares: [usize; 3] = [5, 8, 8].map(|budget| crossed(received(&mut *io, budget)));
        assert_eq!(shares, [3, 4, 1]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn owner_is_woken_who_sleeps() {
        let Host { inlet, sleeper, .. } = host(2);
        sleeper.arm(|| true).unwrap();
        let woken = || {
            use std::os::fd::AsFd;
            crate::is_any_readable(&[sleeper.as_fd()]).unwrap()
        };
        assert!(!woken());
        inlet.put(&[1; 60]);
        assert!(woken());
    }
}

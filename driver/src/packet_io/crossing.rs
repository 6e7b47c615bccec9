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

/// What the queue that received a frame knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameOrigin {
    /// As [`PacketIo::is_looped`].
    pub is_looped: bool,
    /// As [`PacketIo::trusts`].
    pub is_trusted: bool,
}

impl FrameOrigin {
    /// What `io` knows of a frame that it received.
    pub fn of(frame: &RxFrame, io: &dyn PacketIo) -> Self {
        Self {
            is_looped: io.is_looped(frame),
            is_trusted: io.trusts(frame),
        }
    }
}

struct Shared {
    inbox: Hinted<Inbox>,
    bell: Doorbell,
}

struct Inbox {
    copies: FrameCopies,
    /// By the place of the copy.
    origins: Vec<FrameOrigin>,
}

impl Inbox {
    fn take_in(&mut self, frame: &[u8], origin: FrameOrigin) {
        let at = self.copies.take_in(frame);
        if let Some(of_copy) = at.and_then(|at| self.origins.get_mut(at)) {
            *of_copy = origin;
        }
    }

    fn has_any(&self) -> bool {
        self.copies.has_any()
    }
}

impl HandoffQueue {
    /// Passes a copy of `frame` to the engine, and wakes it. If the queue is full, the frame is
    /// lost, as in a full receive ring.
    pub fn put(&self, frame: &[u8], origin: FrameOrigin) {
        let Shared { inbox, bell } = &*self.0;
        inbox.change(|inbox| inbox.take_in(frame, origin), Inbox::has_any);
        bell.ring();
    }

    fn receive(&self, budget: usize, out: &mut Vec<RxFrame>) {
        if self.has_any() {
            let receive = |inbox: &mut Inbox| inbox.copies.receive(budget, out);
            self.0.inbox.change(receive, Inbox::has_any);
        }
    }

    fn has_any(&self) -> bool {
        self.0.inbox.has_any()
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.0.inbox.lock()
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
        let count = io.rx_frames();
        let copies = FrameCopies::new(count, capacity)?;
        let (nothing, _wire) = MemoryIo::new(0)?;
        let arena = Arc::clone(copies.arena());
        let inlet = HandoffQueue(Arc::new(Shared {
            inbox: Hinted::new(Inbox {
                copies,
                origins: vec![FrameOrigin::default(); count],
            }),
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

impl CrossQueueIo {
    /// What the queue that received a frame knows of it.
    fn origin(&self, frame: &RxFrame) -> FrameOrigin {
        if !self.has_crossed(frame) {
            return FrameOrigin::of(frame, &*self.net);
        }
        let inbox = self.inlet.inbox();
        let origin = inbox.origins.get(frame.frame().place());
        origin.copied().unwrap_or_default()
    }
}

impl PacketIo for CrossQueueIo {
    forward!(net: tx_frame, send, send_kept, keep, reclaim, release, tx_free, rx_frames, discard, flush, backlog, set_up, too_big, offers_checksums, stays_on_host, mtu_towards, needs_no_checksum, readiness, levels);

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
            self.inlet.inbox().copies.recycle(frame);
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

    fn is_looped(&self, frame: &RxFrame) -> bool {
        self.origin(frame).is_looped
    }

    fn trusts(&self, frame: &RxFrame) -> bool {
        self.origin(frame).is_trusted
    }

    fn has_looped(&self) -> bool {
        self.inlet.has_any() || self.net.has_looped()
    }

    fn diagnosis(&self) -> String {
        let waiting = self.inlet.inbox().copies.waiting();
        let has_any = self.inlet.has_any();
        format!(
            "{}; inlet: {waiting} frames, has_any {has_any}, {:?}",
            self.net.diagnosis(),
            self.inlet.0.bell
        )
    }

    fn counters(&self) -> IoCounters {
        let mut counters = self.net.counters();
        let inbox = self.inlet.inbox();
        counters.crossed_frames += inbox.copies.taken();
        counters.drop_crossed += inbox.copies.dropped();
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
            inlet.put(&[round; 60], FrameOrigin::default());
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
                inlet.put(&[1; 60], FrameOrigin::default());
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
        (0..5).for_each(|round| inlet.put(&[round; 60], FrameOrigin::default()));
        inlet.put(&[9; CAPACITY + 1], FrameOrigin::default());
        assert_eq!(received(&mut *io, 8), [vec![0; 60], vec![1; 60]]);
        inlet.put(&[9; CAPACITY + 1], FrameOrigin::default());
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
            inlet.put(&[1; 60], FrameOrigin::default());
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
        inlet.put(&[1; 60], FrameOrigin::default());
        assert!(woken());
    }

    #[test]
    fn copy_is_judged_as_the_frame_was_by_the_queue_that_received_it() {
        let Host { mut io, inlet, .. } = host(4);
        let origins = [(false, false), (true, false), (false, true), (true, true)];
        for _ in 0..3 {
            for (is_looped, is_trusted) in origins {
                let origin = FrameOrigin {
                    is_looped,
                    is_trusted,
                };
                inlet.put(&[1; 60], origin);
            }
            let mut frames = Vec::new();
            io.receive(4, &mut frames);
            let judged = |frame: &RxFrame| (io.is_looped(frame), io.trusts(frame));
            assert_eq!(frames.iter().map(judged).collect::<Vec<_>>(), origins);
            for frame in frames {
                io.recycle(frame);
            }
        }
    }
}

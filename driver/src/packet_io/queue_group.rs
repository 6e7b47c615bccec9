//! Queue group: several receive queues of one interface, served by one owner (decision record
//! driver/0026).
//!
//! The NIC spreads received frames over its queues. No caller has to know where the frames of a
//! connection arrive. All frames are sent by one queue: those of a connection stay in order.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::forward::forward;
use super::frame::{RxFrame, SentFrame, TxFrame};
use super::levels::QueueLevels;
use super::{Icmp, IoCounters, IoError, PacketIo};
use crate::wake::DescriptorSet;

/// A [`PacketIo`] of several queues. It takes a file descriptor.
pub struct QueueGroup {
    /// The queue that sends, which receives as well.
    sender: Box<dyn PacketIo>,
    /// The others.
    receivers: Vec<Box<dyn PacketIo>>,
    /// The queue that is asked for frames first, next time.
    next: usize,
    arrival: DescriptorSet,
}

impl QueueGroup {
    /// Joins queues. The first one sends.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn new(sender: Box<dyn PacketIo>, receivers: Vec<Box<dyn PacketIo>>) -> io::Result<Self> {
        let arrival = DescriptorSet::new()?;
        for queue in [&sender].into_iter().chain(&receivers) {
            if let Some(fd) = queue.readiness() {
                arrival.watch(fd)?;
            }
        }
        Ok(Self {
            sender,
            receivers,
            next: 0,
            arrival,
        })
    }

    fn all(&self) -> impl Iterator<Item = &dyn PacketIo> {
        let receivers = self.receivers.iter().map(|queue| &**queue);
        std::iter::once(&*self.sender).chain(receivers)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn PacketIo>> {
        std::iter::once(&mut self.sender).chain(&mut self.receivers)
    }

    /// The queue that has received a frame.
    fn owner(&self, frame: &RxFrame) -> Option<&dyn PacketIo> {
        self.all().find(|queue| queue.owns(frame))
    }

    fn queue(&mut self, number: usize) -> &mut dyn PacketIo {
        let receiver = number.checked_sub(1);
        match receiver.and_then(|at| self.receivers.get_mut(at)) {
            Some(queue) => &mut **queue,
            None => &mut *self.sender,
        }
    }
}

impl PacketIo for QueueGroup {
    forward!(sender: tx_frame, send, send_kept, keep, reclaim, release, tx_free, discard, offers_checksums, stays_on_host, mtu_towards, needs_no_checksum);

    /// The queues take turns in being asked first, so that none starves the others.
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let (end, count) = (out.len() + budget, self.receivers.len() + 1);
        for turn in self.next..self.next + count {
            let left = end.saturating_sub(out.len());
            if left == 0 {
                break;
            }
            self.queue(turn % count).receive(left, out);
        }
        self.next = (self.next + 1) % count;
    }

    fn recycle(&mut self, frame: RxFrame) {
        // A frame of no queue is counted by the first one.
        let receiver = self.receivers.iter_mut().find(|queue| queue.owns(&frame));
        receiver.unwrap_or(&mut self.sender).recycle(frame);
    }

    fn owns(&self, frame: &RxFrame) -> bool {
        self.owner(frame).is_some()
    }

    fn is_looped(&self, frame: &RxFrame) -> bool {
        self.owner(frame)
            .is_some_and(|queue| queue.is_looped(frame))
    }

    fn trusts(&self, frame: &RxFrame) -> bool {
        self.owner(frame).is_some_and(|queue| queue.trusts(frame))
    }

    /// The number of the queue that has the fewest: all frames of a connection may arrive at one
    /// queue.
    fn rx_frames(&self) -> usize {
        let each = self.all().map(PacketIo::rx_frames);
        each.min().unwrap_or(0)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.all_mut().try_for_each(|queue| queue.flush())
    }

    fn backlog(&self) -> bool {
        self.all().any(PacketIo::backlog)
    }

    fn set_up(&mut self, up: bool) {
        self.all_mut().for_each(|queue| queue.set_up(up));
    }

    fn too_big(&mut self) -> Option<Icmp> {
        self.all_mut().find_map(|queue| queue.too_big())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        let sleeps = self.all().all(|queue| queue.readiness().is_some());
        sleeps.then(|| self.arrival.as_fd())
    }

    fn counters(&self) -> IoCounters {
        self.all().map(PacketIo::counters).sum()
    }

    fn diagnosis(&self) -> String {
        let each: Vec<String> = self.all().map(PacketIo::diagnosis).collect();
        each.join("; next queue: ")
    }

    fn levels(&self) -> QueueLevels {
        self.all().map(PacketIo::levels).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalHop, MemoryIo, Wire};

    /// A group of memory queues with `frames` frames each, and their wires.
    fn group(frames: &[usize]) -> (QueueGroup, Vec<Wire>) {
        let made = frames.iter().map(|frames| {
            let (io, wire) = MemoryIo::new(*frames).unwrap();
            (Box::new(io) as Box<dyn PacketIo>, wire)
        });
        let (mut queues, wires): (Vec<_>, Vec<_>) = made.unzip();
        let sender = queues.remove(0);
        (QueueGroup::new(sender, queues).unwrap(), wires)
    }

    /// The first byte of each frame that is received.
    fn received(io: &mut dyn PacketIo, budget: usize) -> Vec<u8> {
        let mut frames = Vec::new();
        io.receive(budget, &mut frames);
        let firsts = frames.iter().map(|frame| frame[0]).collect();
        for frame in frames {
            io.recycle(frame);
        }
        firsts
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn frames_go_back_to_the_queue_that_they_came_from() {
        let (mut io, wires) = group(&[1, 1, 1]);
        for _ in 0..5 {
            for (number, wire) in (0..).zip(&wires) {
                wire.deliver(vec![number; 60]);
            }
            let mut came = received(&mut io, 64);
            came.sort_unstable();
            assert_eq!(came, [0, 1, 2], "each has its only frame back");
        }
        let counters = io.counters();
        assert_eq!((counters.rx_frames, counters.drop_foreign), (15, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn frame_is_judged_by_the_queue_that_received_it() {
        let mac = [2, 0, 0, 0, 0, 9];
        let (sender, to_sender) = MemoryIo::new(4).unwrap();
        let (receiver, to_receiver) = MemoryIo::new(4).unwrap();
        let receiver = receiver.with_local_hop(LocalHop {
            mac,
            mtu: None,
            is_trusted: true,
        });
        let mut io = QueueGroup::new(Box::new(sender), vec![Box::new(receiver)]).unwrap();
        for wire in [to_sender, to_receiver] {
            wire.deliver([[0; 6], mac].concat());
        }
        let mut frames = Vec::new();
        io.receive(8, &mut frames);
        let looped: Vec<bool> = frames.iter().map(|frame| io.is_looped(frame)).collect();
        let trusted: Vec<bool> = frames.iter().map(|frame| io.trusts(frame)).collect();
        assert_eq!([looped, trusted], [[false, true], [false, true]]);
        assert!(!io.stays_on_host(mac), "it is the first queue that sends");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn no_queue_keeps_another_waiting() {
        let (mut io, wires) = group(&[64, 64, 64]);
        for (number, wire) in (0..).zip(&wires) {
            (0..9).for_each(|_| wire.deliver(vec![number; 60]));
        }
        let firsts: Vec<u8> = (0..3).map(|_| received(&mut io, 4)[0]).collect();
        assert_eq!(firsts, [0, 1, 2]);
        let rest = received(&mut io, 64);
        assert_eq!(rest.len(), 27 - 12);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn first_queue_sends_all_frames() {
        let (mut io, wires) = group(&[2, 2]);
        for round in 0..6 {
            let mut frame = io.tx_frame().unwrap();
            frame.set_len(60);
            frame.fill(round);
            let sent = io.send_kept(frame);
            io.flush().unwrap();
            let again = io.reclaim(sent).expect("it was sent");
            io.discard(again);
            assert_eq!(wires[0].take_sent(), Some(vec![round; 60]));
            assert_eq!(wires[1].take_sent(), None);
        }
        assert_eq!((io.tx_free(), io.counters().tx_frames), (2, 6));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn backlog_of_any_queue_is_the_groups() {
        for (busy, other) in [(0, 1), (1, 0)] {
            let (mut io, wires) = group(&[2, 2]);
            assert!(!io.backlog());
            wires[busy].set_busy(true);
            let mut frame = io.queue(busy).tx_frame().unwrap();
            frame.set_len(60);
            io.queue(busy).send(frame);
            assert!(io.backlog());
            assert!(!io.queue(other).backlog());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn group_has_the_frames_of_its_smallest_queue() {
        assert_eq!(group(&[8, 3, 5]).0.rx_frames(), 3);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn frame_of_another_group_is_refused_and_counted() {
        let ((mut io, _), (mut other, wires)) = (group(&[2, 2]), group(&[2, 2]));
        wires[1].deliver(vec![7; 60]);
        let mut frames = Vec::new();
        other.receive(1, &mut frames);
        assert!(other.owns(&frames[0]) && !io.owns(&frames[0]));
        io.recycle(frames.remove(0));
        assert_eq!(io.counters().drop_foreign, 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn group_is_readable_while_one_of_its_queues_is() {
        let (queues, wires): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (io, wire) = MemoryIo::new(4).unwrap();
                let io: Box<dyn PacketIo> = Box::new(io.announced().unwrap());
                (io, wire)
            })
            .unzip();
        let mut queues = queues.into_iter();
        let sender = queues.next().unwrap();
        let mut io = QueueGroup::new(sender, queues.collect()).unwrap();
        let is_readable =
            |io: &QueueGroup| crate::is_any_readable(&[io.readiness().unwrap()]).unwrap();
        for wire in wires {
            assert!(!is_readable(&io));
            wire.deliver(vec![1; 60]);
            assert!(is_readable(&io));
            assert_eq!(received(&mut io, 64), [1]);
        }
    }
}

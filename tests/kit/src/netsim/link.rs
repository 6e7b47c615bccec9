//! A link: two lanes between two wires.

use std::time::Duration;

use xwarp_driver::{Icmp, Wire};

use super::conditions::Conditions;
use super::direction::Direction;
use super::lane::{Lane, LaneCounters};
use super::rng::{Rng, Seed};
use super::trace::{Sighting, Trace};

/// Is shown every frame as it is sent.
type Observer = Box<dyn FnMut(&Sighting<'_>)>;

/// Takes the next frame that enters a direction.
pub type Source = Box<dyn FnMut() -> Option<Vec<u8>>>;

/// A link between two packet interfaces, in virtual time.
pub struct Link {
    seed: Seed,
    ends: [Wire; 2],
    /// What enters each direction.
    sources: [Source; 2],
    lanes: [Lane; 2],
    trace: Trace,
    observer: Option<Observer>,
}

impl Link {
    /// A perfect link without delay between two wires.
    pub fn new(seed: Seed, a: Wire, b: Wire) -> Self {
        let sent = |wire: &Wire| -> Source {
            let wire = wire.clone();
            Box::new(move || wire.take_sent())
        };
        let sources = [sent(&a), sent(&b)];
        Self::fed_by(seed, [a, b], sources)
    }

    /// A perfect link without delay to two wires. The frames that enter each direction are what its
    /// source returns, not what the wire at its beginning has sent.
    pub fn fed_by(seed: Seed, ends: [Wire; 2], sources: [Source; 2]) -> Self {
        Self {
            seed,
            ends,
            sources,
            lanes: [0, 1].map(|stream| Lane::new(Rng::new(seed, stream))),
            trace: Trace::default(),
            observer: None,
        }
    }

    /// Where its randomness comes from.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// The same with this delay in either direction.
    #[must_use]
    pub fn one_way_delay(self, delay: Duration) -> Self {
        self.with(|conditions| conditions.one_way_delay = delay)
    }

    /// The same with this rate in bits per second in either direction, and room for `queue` frames
    /// that wait.
    #[must_use]
    pub fn rate(self, bits_per_second: u64, queue: usize) -> Self {
        self.with(|conditions| {
            conditions.rate = Some(bits_per_second);
            conditions.queue = queue;
        })
    }

    /// The same, with frames marked that find `frames` or more waiting for transmission.
    #[must_use]
    pub fn mark(self, frames: usize) -> Self {
        self.with(|conditions| conditions.mark = Some(frames))
    }

    /// The same with this probability of loss.
    #[must_use]
    pub fn loss(self, probability: f64) -> Self {
        self.with(|conditions| conditions.loss = probability)
    }

    /// The same with this probability of holding a frame back, up to `delay`.
    #[must_use]
    pub fn reorder(self, probability: f64, delay: Duration) -> Self {
        self.with(|conditions| {
            conditions.reorder = probability;
            conditions.reorder_delay = delay;
        })
    }

    /// The same with this probability of delivering a frame twice.
    #[must_use]
    pub fn duplicate(self, probability: f64) -> Self {
        self.with(|conditions| conditions.duplicate = probability)
    }

    /// The same with this probability of flipping `bits` bits of a frame.
    #[must_use]
    pub fn corrupt(self, probability: f64, bits: u32) -> Self {
        self.with(|conditions| {
            conditions.corrupt = probability;
            conditions.corrupt_bits = bits;
        })
    }

    /// The same with `change` made in both directions.
    #[must_use]
    pub fn with(mut self, change: impl Fn(&mut Conditions)) -> Self {
        self.change(change);
        self
    }

    /// Changes the conditions of both directions.
    pub fn change(&mut self, change: impl Fn(&mut Conditions)) {
        for lane in &mut self.lanes {
            change(&mut lane.conditions);
        }
    }

    /// Has every frame shown to `observer` as it is sent, in place of any earlier one.
    pub fn observe(&mut self, observer: impl FnMut(&Sighting<'_>) + 'static) {
        self.observer = Some(Box::new(observer));
    }

    /// One direction.
    pub fn lane(&mut self, direction: Direction) -> &mut Lane {
        &mut self.lanes[direction as usize]
    }

    /// What one direction has done to frames.
    pub fn counters(&self, direction: Direction) -> LaneCounters {
        self.lanes[direction as usize].counters()
    }

    /// The last frames that were sent.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// When the next frame arrives at either end.
    pub fn next_arrival(&self) -> Option<Duration> {
        self.lanes.iter().filter_map(Lane::next_arrival).min()
    }

    /// Delivers a frame that neither end has sent at the end of a direction, now.
    pub fn inject(&self, direction: Direction, frame: Vec<u8>) {
        self.ends[1 - direction as usize].deliver(frame);
    }

    /// Delivers a router's message, that a packet was too large, to the sender of a direction, now.
    pub fn complain(&self, direction: Direction, message: Icmp) {
        self.ends[direction as usize].deliver_icmp(message);
    }

    /// Takes what either end has sent and delivers what has arrived; how many frames that were.
    pub fn carry(&mut self, now: Duration) -> usize {
        Direction::ALL
            .into_iter()
            .map(|direction| self.take(direction, now) + self.deliver(direction, now))
            .sum()
    }

    fn take(&mut self, direction: Direction, now: Duration) -> usize {
        let mut taken = 0;
        while let Some(frame) = self.sources[direction as usize]() {
            taken += 1;
            let bytes = frame.clone();
            let fate = self.lanes[direction as usize].send(frame, now);
            let sighting = Sighting {
                at: now,
                direction,
                frame: &bytes,
                fate,
            };
            self.trace.record(&sighting);
            if let Some(observer) = &mut self.observer {
                observer(&sighting);
            }
        }
        taken
    }

    fn deliver(&mut self, direction: Direction, now: Duration) -> usize {
        let to = &self.ends[1 - direction as usize];
        let mut delivered = 0;
        while let Some(frame) = self.lanes[direction as usize].arrived(now) {
            to.deliver(frame);
            delivered += 1;
        }
        delivered
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use xwarp_driver::{MemoryIo, PacketIo};

    use super::*;

    fn send(io: &mut MemoryIo, byte: u8) {
        let mut frame = io.tx_frame().unwrap();
        frame.set_len(60);
        frame.copy_from_slice(&[byte; 60]);
        io.send(frame);
    }

    fn receive(io: &mut MemoryIo) -> Vec<u8> {
        let mut frames = Vec::new();
        io.receive(64, &mut frames);
        let bytes = frames.iter().map(|frame| frame[0]).collect();
        for frame in frames {
            io.recycle(frame);
        }
        bytes
    }

    #[test]
    fn each_end_receives_what_the_other_sent() {
        let (mut a, wire_a) = MemoryIo::new(8).unwrap();
        let (mut b, wire_b) = MemoryIo::new(8).unwrap();
        let mut link = Link::new(Seed(1), wire_a, wire_b);
        send(&mut a, 1);
        send(&mut a, 2);
        send(&mut b, 3);
        assert_eq!(
            link.carry(Duration::ZERO),
            6,
            "three taken, three delivered"
        );
        assert_eq!(receive(&mut a), [3]);
        assert_eq!(receive(&mut b), [1, 2]);
        assert_eq!(link.carry(Duration::ZERO), 0);
    }

    #[test]
    fn directions_have_conditions_of_their_own() {
        let (mut a, wire_a) = MemoryIo::new(8).unwrap();
        let (mut b, wire_b) = MemoryIo::new(8).unwrap();
        let mut link = Link::new(Seed(1), wire_a, wire_b);
        link.lane(Direction::AToB).conditions.loss = 1.0;
        send(&mut a, 1);
        send(&mut b, 2);
        link.carry(Duration::ZERO);
        assert_eq!(receive(&mut a), [2]);
        assert_eq!(receive(&mut b), []);
        assert_eq!(link.counters(Direction::AToB).lost, 1);
        assert_eq!(link.counters(Direction::BToA).lost, 0);
    }

    #[test]
    fn same_seed_gives_the_same_fates() {
        const FRAMES: u8 = if cfg!(miri) { 40 } else { 200 };
        let fates = |seed| {
            let (mut a, wire_a) = MemoryIo::new(300).unwrap();
            let (_, wire_b) = MemoryIo::new(300).unwrap();
            let mut link = Link::new(seed, wire_a, wire_b)
                .loss(0.1)
                .reorder(0.1, Duration::from_millis(1))
                .duplicate(0.1)
                .corrupt(0.1, 1);
            let seen = Rc::new(RefCell::new(Vec::new()));
            let record = Rc::clone(&seen);
            link.observe(move |sighting| record.borrow_mut().push(sighting.fate));
            (0..FRAMES).for_each(|byte| send(&mut a, byte));
            link.carry(Duration::ZERO);
            seen.take()
        };
        assert_eq!(fates(Seed(5)).len(), usize::from(FRAMES));
        assert_eq!(fates(Seed(5)), fates(Seed(5)));
        assert_ne!(fates(Seed(5)), fates(Seed(6)));
    }
}

//! One direction of a link.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use super::conditions::Conditions;
use super::ecn;
use super::rng::Rng;
use super::trace::Fate;

/// Bytes at the head of a frame that are never damaged.
const ETHERNET_HEADER: usize = 14;

/// What one direction has done to frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounters {
    /// Frames that were sent into it.
    pub sent: u64,
    /// Frames that came out of it, copies included.
    pub delivered: u64,
    /// Frames lost at random, alone, in bursts, or while the link was down.
    pub lost: u64,
    /// Frames dropped because the queue was full.
    pub queue_full: u64,
    /// Frames marked because of the queue's length.
    pub marked: u64,
    /// Frames dropped because the test wanted it.
    pub dropped: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames delivered twice.
    pub duplicated: u64,
    /// Frames damaged.
    pub corrupted: u64,
}

/// Decides whether a frame is to be dropped.
type DropRule = Box<dyn FnMut(&[u8]) -> bool>;

/// One direction: frames in flight, and what may happen to them.
pub struct Lane {
    /// What happens to frames that are sent from now on.
    pub conditions: Conditions,
    rng: Rng,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    /// When those frames leave that wait for the link to be free.
    departures: VecDeque<Duration>,
    drop_ordinals: BTreeSet<u64>,
    drop_rule: Option<DropRule>,
    counters: LaneCounters,
    serial: u64,
    /// When the burst of losses ends.
    burst_end: Duration,
}

/// Ordered by arrival, then by the order of sending.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    arrival: Duration,
    serial: u64,
    frame: Vec<u8>,
}

impl Lane {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            conditions: Conditions::default(),
            rng,
            in_flight: BinaryHeap::new(),
            departures: VecDeque::new(),
            drop_ordinals: BTreeSet::new(),
            drop_rule: None,
            counters: LaneCounters::default(),
            serial: 0,
            burst_end: Duration::ZERO,
        }
    }

    /// Drops the `n`-th frame that is sent from now on; the next one is number 1.
    pub fn drop_nth(&mut self, n: u64) {
        self.drop_ordinals.insert(self.counters.sent + n);
    }

    /// Drops all frames of which `rule` says so, in place of any earlier rule.
    pub fn drop_if(&mut self, rule: impl FnMut(&[u8]) -> bool + 'static) {
        self.drop_rule = Some(Box::new(rule));
    }

    /// Ends [`drop_if`](Self::drop_if).
    pub fn drop_no_more(&mut self) {
        self.drop_rule = None;
    }

    /// What it has done.
    pub fn counters(&self) -> LaneCounters {
        self.counters
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Duration> {
        self.in_flight.peek().map(|Reverse(first)| first.arrival)
    }

    /// A frame is sent now.
    pub(crate) fn send(&mut self, mut frame: Vec<u8>, now: Duration) -> Fate {
        self.counters.sent += 1;
        if self.is_to_be_dropped(&frame) {
            self.counters.dropped += 1;
            return Fate::Dropped;
        }
        let Some(departure) = self.departure(frame.len(), now) else {
            self.counters.queue_full += 1;
            return Fate::QueueFull;
        };
        if self.is_lost(now) {
            self.counters.lost += 1;
            return Fate::Lost;
        }
        if self.is_to_be_marked() && ecn::mark(&mut frame) {
            self.counters.marked += 1;
        }
        let corrupted = self.rng.chance(self.conditions.corrupt) && self.corrupt(&mut frame);
        let held_back = self.hold_back();
        let arrival = departure + self.conditions.one_way_delay + held_back;
        let duplicated = self.rng.chance(self.conditions.duplicate);
        if duplicated {
            self.counters.duplicated += 1;
            self.fly(frame.clone(), arrival);
        }
        self.fly(frame, arrival);
        Fate::Carried {
            arrival,
            held_back: held_back > Duration::ZERO,
            duplicated,
            corrupted,
        }
    }

    /// The next frame that has arrived.
    pub(crate) fn arrived(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.next_arrival()? > now {
            return None;
        }
        let Reverse(first) = self.in_flight.pop()?;
        self.counters.delivered += 1;
        Some(first.frame)
    }

    fn is_lost(&mut self, now: Duration) -> bool {
        // Without bursts nothing is drawn: what other seeds do stays as it is.
        if self.conditions.burst > 0.0 && self.rng.chance(self.conditions.burst) {
            self.burst_end = now + self.conditions.burst_time;
        }
        let in_burst = now < self.burst_end;
        self.rng.chance(self.conditions.loss) || in_burst || self.conditions.is_down(now)
    }

    fn is_to_be_dropped(&mut self, frame: &[u8]) -> bool {
        let by_number = self.drop_ordinals.remove(&self.counters.sent);
        let by_rule = self.drop_rule.as_mut().is_some_and(|rule| rule(frame));
        by_number || by_rule
    }

    /// When a frame of `bytes` will have left; `None` when it finds the queue full.
    fn departure(&mut self, bytes: usize, now: Duration) -> Option<Duration> {
        let time = self.conditions.transmission_time(bytes);
        if time.is_zero() {
            return Some(now);
        }
        while self
            .departures
            .front()
            .is_some_and(|departure| *departure <= now)
        {
            self.departures.pop_front();
        }
        if self.departures.len() >= self.conditions.queue {
            return None;
        }
        let free = self.departures.back().copied().unwrap_or(now);
        self.departures.push_back(free + time);
        Some(free + time)
    }

    /// True if the frame that was queued last has found the queue longer than it should be.
    fn is_to_be_marked(&self) -> bool {
        let found = self.departures.len().saturating_sub(1);
        self.conditions.rate.is_some() && self.conditions.mark.is_some_and(|from| found >= from)
    }

    fn hold_back(&mut self) -> Duration {
        if !self.rng.chance(self.conditions.reorder) {
            return Duration::ZERO;
        }
        self.counters.reordered += 1;
        let longest = u64::try_from(self.conditions.reorder_delay.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(1 + self.rng.below(longest.max(1)))
    }

    /// Flips bits beyond the Ethernet header; false if there are none.
    fn corrupt(&mut self, frame: &mut [u8]) -> bool {
        let Some(body) = frame
            .get_mut(ETHERNET_HEADER..)
            .filter(|body| !body.is_empty())
        else {
            return false;
        };
        self.counters.corrupted += 1;
        for _ in 0..self.conditions.corrupt_bits {
            let byte = self.rng.index(body.len());
            body[byte] ^= 1 << self.rng.below(8);
        }
        true
    }

    fn fly(&mut self, frame: Vec<u8>, arrival: Duration) {
        self.serial += 1;
        self.in_flight.push(Reverse(InFlight {
            arrival,
            serial: self.serial,
            frame,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Seed;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn lane(conditions: Conditions) -> Lane {
        let mut lane = Lane::new(Rng::new(Seed(3), 0));
        lane.conditions = conditions;
        lane
    }

    fn numbered(n: u8) -> Vec<u8> {
        vec![n; 100]
    }

    /// Which numbered frames come out, in order, with all time in the world.
    fn all_of(lane: &mut Lane) -> Vec<u8> {
        std::iter::from_fn(|| lane.arrived(Duration::MAX))
            .map(|frame| frame[0])
            .collect()
    }

    #[test]
    fn frames_arrive_after_the_delay_and_in_order() {
        let mut lane = lane(Conditions {
            one_way_delay: 5 * MS,
            ..Conditions::default()
        });
        for n in 0..3 {
            lane.send(numbered(n), MS);
        }
        assert_eq!(lane.next_arrival(), Some(6 * MS));
        assert_eq!(lane.arrived(5 * MS), None);
        assert_eq!(lane.arrived(6 * MS), Some(numbered(0)));
        assert_eq!(all_of(&mut lane), [1, 2]);
    }

    #[test]
    fn rate_spaces_frames_and_a_full_queue_drops_them() {
        let mut lane = lane(Conditions {
            rate: Some(800_000), // 100 bytes in 1 ms
            queue: 2,
            ..Conditions::default()
        });
        for n in 0..3 {
            lane.send(numbered(n), Duration::ZERO);
        }
        assert_eq!(lane.counters().queue_full, 1);
        assert_eq!(lane.arrived(MS), Some(numbered(0)));
        assert_eq!(lane.arrived(MS), None);
        lane.send(numbered(3), MS);
        assert_eq!(lane.arrived(2 * MS), Some(numbered(1)));
        assert_eq!(lane.arrived(3 * MS), Some(numbered(3)));
    }

    #[test]
    fn long_queue_marks_what_may_be_marked() {
        let mut lane = lane(Conditions {
            rate: Some(800_000),
            mark: Some(2),
            ..Conditions::default()
        });
        for codepoint in [0b10, 0b10, 0b10, 0b00, 0b01] {
            lane.send(ecn::testing::packet(codepoint), Duration::ZERO);
        }
        let arrived = std::iter::from_fn(|| lane.arrived(Duration::MAX));
        let codepoints: Vec<u8> = arrived.map(|frame| frame[15] & 3).collect();
        assert_eq!(codepoints, [0b10, 0b10, 0b11, 0b00, 0b11]);
        assert_eq!(lane.counters().marked, 2);
    }

    #[test]
    fn frame_that_the_test_names_is_dropped() {
        let mut lane = lane(Conditions::default());
        lane.send(numbered(0), MS);
        lane.drop_nth(2);
        for n in 1..4 {
            lane.send(numbered(n), MS);
        }
        lane.drop_if(|frame| frame[0] == 5);
        lane.send(numbered(4), MS);
        lane.send(numbered(5), MS);
        lane.drop_no_more();
        lane.send(numbered(5), MS);
        assert_eq!(all_of(&mut lane), [0, 1, 3, 4, 5]);
        assert_eq!(lane.counters().dropped, 2);
    }

    #[test]
    fn bursts_take_several_frames_in_a_row() {
        let mut lane = lane(Conditions {
            burst: 0.02,
            burst_time: 5 * MS,
            ..Conditions::default()
        });
        for n in 0..200 {
            lane.send(numbered(n), u32::from(n) * MS);
        }
        let came = all_of(&mut lane);
        let gaps = came.windows(2).map(|pair| pair[1] - pair[0] - 1);
        let gaps: Vec<u8> = gaps.filter(|gap| *gap > 0).collect();
        assert!(
            !gaps.is_empty() && gaps.iter().all(|gap| *gap >= 5),
            "{gaps:?}"
        );
    }

    #[test]
    fn held_back_frame_is_overtaken() {
        let mut lane = lane(Conditions {
            reorder: 0.3,
            ..Conditions::default()
        });
        for n in 0..100 {
            lane.send(numbered(n), u32::from(n) * MS);
        }
        let order = all_of(&mut lane);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_ne!(order, sorted);
        assert_eq!(sorted, (0..100).collect::<Vec<u8>>(), "none is lost");
    }

    #[test]
    fn damaged_frame_differs_in_one_bit_beyond_the_ethernet_header() {
        const FRAMES: u64 = if cfg!(miri) { 50 } else { 1000 };
        let mut lane = lane(Conditions {
            corrupt: 1.0,
            ..Conditions::default()
        });
        for _ in 0..FRAMES {
            lane.send(vec![0; 20], MS);
            let frame = lane.arrived(MS).unwrap();
            assert_eq!(frame[..14], [0; 14]);
            assert_eq!(frame.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        }
        assert_eq!(lane.counters().corrupted, FRAMES);
    }

    #[test]
    fn loss_and_duplication_are_counted() {
        let mut lane = lane(Conditions {
            loss: 0.5,
            duplicate: 0.5,
            ..Conditions::default()
        });
        for n in 0..200 {
            lane.send(numbered(n), MS);
        }
        let arrived = all_of(&mut lane).len() as u64;
        let counters = lane.counters();
        assert!(
            counters.lost > 50 && counters.duplicated > 25,
            "{counters:?}"
        );
        assert_eq!(arrived, 200 - counters.lost + counters.duplicated);
        assert_eq!(counters.delivered, arrived);
    }
}

//! Timing wheel: timers of any number of connections, at a cost that does not grow with their number.

use crate::time::Instant;

/// Nanoseconds of a tick: what two deadlines near by can differ in and still fire together.
const TICK: u64 = 16_000;
/// Slots of a level.
const SLOTS: usize = 256;
/// Words of a level's bitmap.
const WORDS: usize = SLOTS / 64;
/// A level's slots are so many bits coarser than those of the level below.
const LEVEL_BITS: usize = 3;
/// The slots of the last level are 2^39 ticks, or 102 days, long: it reaches 70 years ahead.
const LEVELS: usize = 14;
/// Nodes that begin the slots' rings.
const RINGS: usize = LEVELS * SLOTS;
/// The tick of the latest instant, 584 years: none is later.
const MAX_TICK: u64 = u64::MAX / TICK;

/// A timer, or the beginning of a slot's ring.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Neighbours in the ring; both itself if it is in none.
    next: usize,
    prev: usize,
    at: Instant,
    /// The ring that it is in.
    ring: Option<u16>,
}

impl Node {
    /// In no ring.
    fn alone(index: usize) -> Self {
        Self {
            next: index,
            prev: index,
            at: Instant::ORIGIN,
            ring: None,
        }
    }
}

/// A wheel of fourteen levels. A timer is put once into the finest level that reaches its deadline, and stays there. Far deadlines are kept
/// coarsely instead of being sorted again and again. So setting, cancelling and firing cost the same however many there are.
///
/// No timer fires early. It fires late by less than a tick of 16 µs, and by less than 1/31 of the time that it was set ahead.
/// Keys are small numbers, such as places in a slab: memory grows with the greatest. A key has one deadline.
#[derive(Debug)]
pub(super) struct Wheel {
    nodes: Vec<Node>,
    /// Slots with timers.
    used: [[u64; WORDS]; LEVELS],
    /// Levels with timers, a bit each.
    levels: u16,
    /// Ticks: no timer is in a slot before it.
    clock: u64,
    #[cfg(test)]
    len: usize,
    #[cfg(test)]
    touched: u64,
}

/// The tick at or before `at`.
fn floor(at: Instant) -> u64 {
    at.nanos_since_origin() / TICK
}

/// The tick at or after `at`.
fn ceil(at: Instant) -> u64 {
    at.nanos_since_origin().div_ceil(TICK).min(MAX_TICK)
}

fn instant(tick: u64) -> Instant {
    Instant::from_nanos(tick.saturating_mul(TICK))
}

fn units(tick: u64, level: usize) -> u64 {
    tick.div_ceil(1 << (LEVEL_BITS * level))
}

impl Wheel {
    pub(super) fn new(now: Instant) -> Self {
        let mut nodes = Vec::with_capacity(RINGS);
        // A loop: for an iterator Miri needs longer, in each test of a stack.
        while nodes.len() < RINGS {
            nodes.push(Node::alone(nodes.len()));
        }
        Self {
            nodes,
            used: [[0; WORDS]; LEVELS],
            levels: 0,
            clock: floor(now),
            #[cfg(test)]
            len: 0,
            #[cfg(test)]
            touched: 0,
        }
    }

    /// Timers that are set.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if no timer is set.
    pub(super) fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// Sets when `key` is to fire, instead of any earlier setting. Tell the wheel the time first, by [`advance`](Self::advance) or
    /// [`pop`](Self::pop): how coarsely a deadline is kept depends on its distance from the last time told.
    pub(super) fn set(&mut self, key: u32, at: Instant) {
        self.cancel(key);
        let node = key as usize + RINGS;
        for index in self.nodes.len()..=node {
            self.nodes.push(Node::alone(index));
        }
        self.nodes[node].at = at;
        self.put(node);
    }

    /// `key` is not to fire.
    pub(super) fn cancel(&mut self, key: u32) {
        let node = key as usize + RINGS;
        if self.nodes.get(node).is_some_and(|node| node.ring.is_some()) {
            self.take(node);
        }
    }

    /// When `key` is to fire.
    #[cfg(test)]
    pub(super) fn deadline(&self, key: u32) -> Option<Instant> {
        let node = self.nodes.get(key as usize + RINGS)?;
        node.ring.map(|_| node.at)
    }

    /// Takes a timer that is due at `now`: one of those that share the earliest slot, the first that was set.
    pub(super) fn pop(&mut self, now: Instant) -> Option<u32> {
        let present = floor(now);
        loop {
            let earliest = self.earliest();
            self.clock = self.clock.max(present.min(until(earliest)));
            let (tick, ring) = earliest.filter(|(tick, _)| *tick <= present)?;
            let node = self.nodes[ring].next;
            self.take(node);
            if ceil(self.nodes[node].at) <= tick {
                return u32::try_from(node - RINGS).ok();
            }
            self.put(node); // it lies beyond the last level, and is now nearer
        }
    }

    /// Tells the time. Timers that are due stay, to be taken by [`pop`](Self::pop).
    pub(super) fn advance(&mut self, now: Instant) {
        self.clock = self.clock.max(floor(now).min(until(self.earliest())));
    }

    /// When to call [`pop`](Self::pop) next: at or after the earliest deadline, by as much as that may be late.
    pub(super) fn next(&self) -> Option<Instant> {
        self.earliest().map(|(tick, _)| instant(tick))
    }

    /// The earliest slot that has timers: its tick and its ring.
    fn earliest(&self) -> Option<(u64, usize)> {
        let mut levels = self.levels;
        let next_level = || {
            let level = levels.trailing_zeros() as usize;
            levels &= levels.wrapping_sub(1);
            (level < LEVELS).then_some(level)
        };
        std::iter::from_fn(next_level)
            .filter_map(|level| {
                let first = self.clock >> (LEVEL_BITS * level);
                let ahead = ahead(&self.used[level], slot_of(first))?;
                let unit = first.saturating_add(ahead);
                let tick = unit << (LEVEL_BITS * level);
                Some((tick.max(self.clock), level * SLOTS + slot_of(unit)))
            })
            .min()
    }

    /// Puts a node into the slot at or after its deadline, or as far ahead as there is one.
    fn put(&mut self, node: usize) {
        let tick = ceil(self.nodes[node].at).max(self.clock);
        let reach = |level: usize| (SLOTS as u64 - 2) << (LEVEL_BITS * level);
        let ahead = tick - self.clock;
        let level = (0..LEVELS).find(|level| ahead <= reach(*level));
        let (level, tick) = match level {
            Some(level) => (level, tick),
            None => (LEVELS - 1, self.clock.saturating_add(reach(LEVELS - 1))),
        };
        let slot = slot_of(units(tick, level));
        let ring = level * SLOTS + slot;
        let last = self.nodes[ring].prev;
        self.nodes[last].next = node;
        self.nodes[ring].prev = node;
        self.nodes[node].prev = last;
        self.nodes[node].next = ring;
        self.nodes[node].ring = u16::try_from(ring).ok();
        self.used[level][slot / 64] |= 1 << (slot % 64);
        self.levels |= 1 << level;
        #[cfg(test)]
        self.count(1);
    }

    /// Takes a node out of its ring.
    fn take(&mut self, node: usize) {
        let Node {
            next, prev, ring, ..
        } = self.nodes[node];
        let Some(ring) = ring.map(usize::from) else {
            return;
        };
        self.nodes[prev].next = next;
        self.nodes[next].prev = prev;
        self.nodes[node].ring = None;
        if self.nodes[ring].next == ring {
            let (level, slot) = (ring / SLOTS, ring % SLOTS);
            self.used[level][slot / 64] &= !(1 << (slot % 64));
            if self.used[level] == [0; WORDS] {
                self.levels &= !(1 << level);
            }
        }
        #[cfg(test)]
        self.count(-1);
    }

    #[cfg(test)]
    fn count(&mut self, timers: isize) {
        self.len = self.len.saturating_add_signed(timers);
        self.touched += 1;
    }
}

/// How far the clock may go while this slot is the earliest.
fn until(earliest: Option<(u64, usize)>) -> u64 {
    earliest.map_or(MAX_TICK, |(tick, _)| tick)
}

fn slot_of(unit: u64) -> usize {
    usize::try_from(unit % SLOTS as u64).unwrap_or(0)
}

/// How many slots after `first`, going round, the next used slot lies.
fn ahead(used: &[u64; WORDS], first: usize) -> Option<u64> {
    let (word, bit) = (first / 64, first % 64);
    let found = |slot: usize| Some(((slot + SLOTS - first) % SLOTS) as u64);
    let rest = used[word] >> bit << bit;
    if rest != 0 {
        return found(word * 64 + rest.trailing_zeros() as usize);
    }
    for step in 1..=WORDS {
        let word = (word + step) % WORDS;
        if used[word] != 0 {
            return found(word * 64 + used[word].trailing_zeros() as usize);
        }
    }
    None
}

#[cfg(test)]
mod tests;

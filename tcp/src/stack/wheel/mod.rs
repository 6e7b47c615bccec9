//! Timing wheel: timers of any number of connections, at a cost independent of their number.

use crate::time::Instant;

/// Nanoseconds per tick. Deadlines less than a tick apart may fire together.
const TICK: u64 = 16_000;
/// Slots per level.
const SLOTS: usize = 256;
/// Words of a level's bitmap.
const WORDS: usize = SLOTS / 64;
/// Each level's slots are this many bits coarser than those of the level below.
const LEVEL_BITS: usize = 3;
/// The last level's slots are 2^39 ticks, or 102 days, long: it reaches 70 years ahead.
const LEVELS: usize = 14;
/// Nodes that are the heads of the slots' rings.
const RINGS: usize = LEVELS * SLOTS;
/// Tick of the latest instant, 584 years.
const MAX_TICK: u64 = u64::MAX / TICK;

/// A timer, or the head of a slot's ring.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Neighbours in the ring; the node itself if it is in none.
    next: usize,
    prev: usize,
    at: Instant,
    /// The ring that holds the node.
    ring: Option<u16>,
}

impl Node {
    /// A node in no ring.
    fn alone(index: usize) -> Self {
        Self {
            next: index,
            prev: index,
            at: Instant::ORIGIN,
            ring: None,
        }
    }
}

/// A wheel of fourteen levels. A timer is put once into the finest level that reaches its deadline,
/// and stays there. Far deadlines are kept coarsely, and are never sorted again. So setting,
/// cancelling and firing cost the same for any number of timers.
///
/// No timer fires early. It fires late by less than a tick of 16 µs, and by less than 1/31 of the
/// time that it was set ahead. Keys are small numbers, such as slots of a slab: memory grows with
/// the greatest. A key has one deadline.
#[derive(Debug)]
pub(super) struct Wheel {
    nodes: Vec<Node>,
    /// Bitmaps of slots with timers.
    used: [[u64; WORDS]; LEVELS],
    /// Bitmap of levels with timers.
    levels: u16,
    /// Current tick: no timer is in a slot before it.
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
        // A loop, as an iterator takes longer in Miri, in each test of a stack.
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

    /// Number of timers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if no timer is set.
    pub(super) fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// Sets when `key` fires, in place of any earlier setting. Call [`advance`](Self::advance) or
    /// [`pop`](Self::pop) first: how coarsely a deadline is kept depends on its distance from the
    /// wheel's time.
    pub(super) fn set(&mut self, key: u32, at: Instant) {
        self.cancel(key);
        let node = key as usize + RINGS;
        for index in self.nodes.len()..=node {
            self.nodes.push(Node::alone(index));
        }
        self.nodes[node].at = at;
        self.put(node);
    }

    /// Cancels the timer of `key`.
    pub(super) fn cancel(&mut self, key: u32) {
        let node = key as usize + RINGS;
        if self.nodes.get(node).is_some_and(|node| node.ring.is_some()) {
            self.take(node);
        }
    }

    /// When `key` fires.
    #[cfg(test)]
    pub(super) fn deadline(&self, key: u32) -> Option<Instant> {
        let node = self.nodes.get(key as usize + RINGS)?;
        node.ring.map(|_| node.at)
    }

    /// Removes a timer that is due at `now`: of those in the earliest slot, the first that was set.
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
            self.put(node); // it lies beyond the last level, and is nearer now
        }
    }

    /// Advances the time. Due timers stay, to be removed by [`pop`](Self::pop).
    pub(super) fn advance(&mut self, now: Instant) {
        self.clock = self.clock.max(floor(now).min(until(self.earliest())));
    }

    /// When to call [`pop`](Self::pop) next: at or after the earliest deadline, by at most its
    /// lateness.
    pub(super) fn next(&self) -> Option<Instant> {
        self.earliest().map(|(tick, _)| instant(tick))
    }

    /// Tick and ring of the earliest slot that has timers.
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

    /// Puts a node into the slot at or after its deadline, or into the furthest slot.
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

    /// Removes a node from its ring.
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
            let level = ring / SLOTS;
            let slot = ring % SLOTS;
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

/// Maximum tick of the clock while this slot is the earliest.
fn until(earliest: Option<(u64, usize)>) -> u64 {
    earliest.map_or(MAX_TICK, |(tick, _)| tick)
}

fn slot_of(unit: u64) -> usize {
    usize::try_from(unit % SLOTS as u64).unwrap_or(0)
}

/// Number of slots after `first`, cyclically, to the next used slot.
fn ahead(used: &[u64; WORDS], first: usize) -> Option<u64> {
    let word = first / 64;
    let bit = first % 64;
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

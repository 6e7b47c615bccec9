//! Send and receive credits: how many more work requests a work queue accepts (verbs draft
//! §8.1.3.1, §8.2.1).
//!
//! Posting takes a slot, and polling the completion frees it. A successful unsignaled work request
//! has no completion, and frees its slot at once. Poller and poster use different objects, perhaps
//! in different threads. So they share a table of the RNIC, where a completion names its queue.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use rtrb::{Consumer, Producer};
use zerocopy::FromZeros;

use super::resize::NewRing;
use super::ring::ring;
use crate::model::{OutOfMemory, PostError, QpId};

/// Bits of a word for the count. The bits above distinguish the users of the word.
const COUNT_BITS: u32 = u32::BITS;
const COUNT_MASK: u64 = u32::MAX as u64;

/// A queue in the table. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotKey {
    index: u32,
    generation: u32,
}

/// Number of freed slots of each queue, modulo 2^32 (decision record rnic/0017).
pub struct SlotTable {
    words: Vec<AtomicU64>,
    /// Index of the first shared receive queue.
    first_srq: u32,
}

fn halves(word: u64) -> (u32, u32) {
    let half = |bits: u64| u32::try_from(bits & COUNT_MASK).unwrap_or(u32::MAX);
    (half(word >> COUNT_BITS), half(word))
}

fn word(generation: u32, count: u32) -> u64 {
    u64::from(generation) << COUNT_BITS | u64::from(count)
}

/// Indices of a queue pair's send queue and receive queue. Queue pairs with the same slot use the
/// same ones, one after the other.
fn places(qp: QpId) -> [u32; 2] {
    // A slot has 16 bits.
    let first = u32::try_from(2 * qp.slot()).unwrap_or(u32::MAX - 1);
    [first, first + 1]
}

impl SlotTable {
    /// Table for this number of queue pairs and shared receive queues. An unused entry takes no
    /// memory, as it is never written.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory is left for the table.
    pub fn new(qps: usize, srqs: usize) -> io::Result<Arc<Self>> {
        let words = AtomicU64::new_vec_zeroed(2 * qps + srqs)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let first_srq = u32::try_from(2 * qps).unwrap_or(u32::MAX);
        Ok(Arc::new(Self { words, first_srq }))
    }

    /// Opens the credit counter of shared receive queue number `srq`.
    pub(crate) fn open_srq(&self, srq: u32) -> SlotKey {
        self.open(self.first_srq.saturating_add(srq))
    }

    /// Opens the credit counters of a new queue pair's send queue and receive queue.
    pub(crate) fn open_pair(&self, qp: QpId) -> [SlotKey; 2] {
        places(qp).map(|index| self.open(index))
    }

    /// Keys of an existing queue pair's send queue and receive queue.
    pub fn pair(&self, qp: QpId) -> [SlotKey; 2] {
        places(qp).map(|index| self.key(index))
    }

    fn at(&self, index: u32) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(index).ok()?)
    }

    /// Opens the counter of a new queue at zero. Completions of the queue that used the entry
    /// before free nothing from now on.
    fn open(&self, index: u32) -> SlotKey {
        let generation = self.at(index).map_or(0, |place| {
            let (last, _) = halves(place.load(Ordering::Relaxed));
            place.store(word(last.wrapping_add(1), 0), Ordering::Relaxed);
            last.wrapping_add(1)
        });
        SlotKey { index, generation }
    }

    fn key(&self, index: u32) -> SlotKey {
        let now = self
            .at(index)
            .map_or(0, |place| place.load(Ordering::Relaxed));
        let (generation, _) = halves(now);
        SlotKey { index, generation }
    }

    /// Frees a slot of a queue, unless the queue is destroyed. Any thread may call it at any time.
    #[inline]
    pub fn free(&self, key: SlotKey) {
        self.free_many(key, 1);
    }

    /// Frees `count` slots of a queue by one locked instruction.
    #[inline]
    pub fn free_many(&self, key: SlotKey, slots: u32) {
        let Some(place) = self.at(key.index) else {
            return;
        };
        // An error means that the queue is destroyed.
        let _ = place.fetch_update(Ordering::Release, Ordering::Relaxed, |now| {
            let (generation, count) = halves(now);
            (generation == key.generation).then(|| word(generation, count.wrapping_add(slots)))
        });
    }

    #[inline(never)]
    fn freed(&self, key: SlotKey) -> u32 {
        let now = self
            .at(key.index)
            .map_or(0, |place| place.load(Ordering::Acquire));
        halves(now).1
    }
}

/// Number of further queues whose slots are counted together with those of the first.
const OTHERS: usize = 3;

/// Slots to free, counted by queue, so that one locked instruction frees all slots of a queue.
pub struct FreedSlots {
    /// The queue of most slots. Its count is the total minus the others' counts.
    first: SlotKey,
    others: ArrayVec<(SlotKey, u32), OTHERS>,
}

impl FreedSlots {
    /// No slots yet. The first one will be of this queue.
    #[inline]
    pub fn beginning_with(first: SlotKey) -> Self {
        let others = ArrayVec::new();
        Self { first, others }
    }

    /// Counts a slot. False if it belongs to one queue too many.
    #[inline]
    pub fn note(&mut self, key: SlotKey) -> bool {
        key == self.first || self.note_other(key)
    }

    #[inline(never)]
    fn note_other(&mut self, key: SlotKey) -> bool {
        if let Some((_, slots)) = self.others.iter_mut().find(|(other, _)| *other == key) {
            *slots += 1;
            return true;
        }
        self.others.try_push((key, 1)).is_ok()
    }

    /// Frees the counted slots, `slots` in all.
    pub fn free(self, mut slots: u32, table: &SlotTable) {
        for (key, of_other) in self.others {
            table.free_many(key, of_other);
            slots -= of_other;
        }
        table.free_many(self.first, slots);
    }
}

/// The poster's end of a work queue.
pub struct WorkQueue<T> {
    ring: Producer<T>,
    table: Arc<SlotTable>,
    key: SlotKey,
    depth: u32,
    /// Number of slots taken since the beginning, modulo 2^32.
    taken: u32,
    /// Number of slots freed since the beginning, modulo 2^32, as last read.
    freed: u32,
}

impl<T> WorkQueue<T> {
    /// Ring for `depth` work requests: the poster's end and the engine's end.
    pub fn rings(depth: usize) -> Result<(Producer<T>, Consumer<T>), OutOfMemory> {
        ring(depth)
    }

    /// The queue that the engine has opened as `key`.
    pub fn new(ring: Producer<T>, table: &Arc<SlotTable>, key: SlotKey) -> Self {
        let depth = u32::try_from(ring.buffer().capacity()).unwrap_or(u32::MAX);
        Self {
            ring,
            table: Arc::clone(table),
            key,
            depth,
            taken: 0,
            freed: 0,
        }
    }

    /// Depth of the queue in work requests.
    pub fn depth(&self) -> usize {
        self.ring.buffer().capacity()
    }

    /// Number of slots in use, as last read.
    fn in_use(&self) -> u32 {
        self.taken.wrapping_sub(self.freed)
    }

    /// Number of slots in use.
    pub fn outstanding(&mut self) -> u32 {
        self.freed = self.table.freed(self.key);
        self.in_use()
    }

    /// A ring of another depth for a resize: the poster's end and the engine's end.
    pub fn other_ring(&mut self, depth: usize) -> Result<(Producer<T>, NewRing<T>), OutOfMemory> {
        let (posts, ring) = Self::rings(depth)?;
        let present = usize::try_from(self.outstanding()).unwrap_or(usize::MAX);
        Ok((posts, NewRing { ring, present }))
    }

    /// Replaces the ring by one of another depth, which has room for all outstanding requests.
    pub fn resize(&mut self, ring: Producer<T>) {
        self.depth = u32::try_from(ring.buffer().capacity()).unwrap_or(u32::MAX);
        self.ring = ring;
    }

    /// Number of free slots. Reads the counter of the other thread only if there seems to be none.
    #[inline]
    pub fn room(&mut self) -> usize {
        self.room_for(1)
    }

    /// Number of free slots. Reads the counter of the other thread only if there seem to be fewer
    /// than `wanted`.
    #[inline]
    pub fn room_for(&mut self, wanted: usize) -> usize {
        let free = self.depth.saturating_sub(self.in_use());
        let free = if free as usize >= wanted {
            free
        } else {
            self.depth.saturating_sub(self.outstanding())
        };
        // A slot is freed after the engine has taken the request, so the ring has room, too.
        usize::try_from(free).map_or(0, |free| free.min(self.ring.slots()))
    }

    /// Posts work requests by one store, up to the [`room`](Self::room). Returns their number.
    #[inline]
    pub fn push_run(&mut self, most: usize, requests: impl Iterator<Item = T>) -> usize {
        let places = self.ring.write_chunk_uninit(most);
        let posted = places.map_or(0, |places| places.fill_from_iter(requests));
        let taken = u32::try_from(posted).unwrap_or(u32::MAX); // at most the depth
        self.taken = self.taken.wrapping_add(taken);
        posted
    }

    /// Posts a work request if a slot is free. Reads the counter of the other thread only if none
    /// seems to be.
    pub fn push(&mut self, request: T) -> Result<(), PostError> {
        if !self.has_room() || self.ring.push(request).is_err() {
            return Err(self.full());
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(())
    }

    /// Fails if no slot is free.
    #[inline]
    pub fn check_room(&mut self) -> Result<(), PostError> {
        if self.has_room() {
            return Ok(());
        }
        Err(self.full())
    }

    /// Posts a work request after [`check_room`](Self::check_room) has allowed it. A request that
    /// the argument expression constructs is constructed in its slot.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "else the request is moved")]
    pub fn put(&mut self, request: T) {
        // A slot is freed after the engine has taken the request, so the ring has room and nothing
        // is leaked. Dropping would need the request outside of the ring.
        let pushed = self.ring.push(request);
        debug_assert!(
            pushed.is_ok(),
            "there is a free slot and no room in the ring"
        );
        self.taken = self.taken.wrapping_add(u32::from(pushed.is_ok()));
        mem::forget(pushed);
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        self.in_use() < self.depth || self.outstanding() < self.depth
    }

    #[cold]
    fn full(&self) -> PostError {
        PostError::TooManyWorkRequests(self.depth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Result<(), PostError> = Err(PostError::TooManyWorkRequests(2));

    fn queue(table: &Arc<SlotTable>, key: SlotKey) -> (WorkQueue<u8>, Consumer<u8>) {
        let (posted, taken) = WorkQueue::rings(2).unwrap();
        (WorkQueue::new(posted, table, key), taken)
    }

    #[test]
    fn slot_is_free_when_it_is_said_to_be_not_when_the_request_is_taken() {
        let table = SlotTable::new(1, 0).unwrap();
        let [sends, recvs] = table.open_pair(QpId::new(0, 0));
        let (mut queue, mut engine) = queue(&table, sends);
        for round in 0..3 {
            assert_eq!((queue.push(round), queue.push(round)), (Ok(()), Ok(())));
            assert_eq!(queue.push(round), FULL);
            assert_eq!((engine.pop(), engine.pop()), (Ok(round), Ok(round)));
            table.free(recvs);
            assert_eq!(queue.push(round), FULL, "taken, but not free");
            table.free(sends);
            assert_eq!((queue.outstanding(), queue.push(round)), (1, Ok(())));
            assert_eq!((queue.push(round), engine.pop()), (FULL, Ok(round)));
            table.free(sends);
            table.free(sends);
        }
    }

    #[test]
    fn count_goes_round_and_touches_nothing_else() {
        let table = SlotTable::new(1, 0).unwrap();
        let [key, _] = table.open_pair(QpId::new(0, 0));
        let (mut queue, mut engine) = queue(&table, key);
        table.words[0].store(word(key.generation, u32::MAX), Ordering::Relaxed);
        (queue.taken, queue.freed) = (u32::MAX, u32::MAX);
        for request in 0..3 {
            assert_eq!(queue.push(request), Ok(()));
            assert_eq!(engine.pop(), Ok(request));
            table.free(key);
        }
        assert_eq!(
            (queue.outstanding(), table.pair(QpId::new(0, 0))[0]),
            (0, key)
        );
    }

    #[test]
    fn what_is_left_of_a_queue_that_is_gone_frees_nothing_of_the_next() {
        let table = SlotTable::new(2, 0).unwrap();
        let [gone, _] = table.open_pair(QpId::new(1, 1));
        let [next, _] = table.open_pair(QpId::new(2, 1));
        assert_ne!(gone, next);
        let (mut queue, _engine) = queue(&table, next);
        assert_eq!((queue.push(1), queue.push(2)), (Ok(()), Ok(())));
        table.free(gone);
        assert_eq!(queue.push(3), FULL);
    }

    #[test]
    fn request_is_put_where_there_is_room() {
        let table = SlotTable::new(1, 0).unwrap();
        let [key, _] = table.open_pair(QpId::new(0, 0));
        let (mut queue, mut engine) = queue(&table, key);
        for round in 0..3 {
            for request in [round, round + 1] {
                assert_eq!(queue.check_room(), Ok(()));
                queue.put(request);
            }
            assert_eq!(queue.check_room(), FULL);
            assert_eq!((engine.pop(), engine.pop()), (Ok(round), Ok(round + 1)));
            assert_eq!(queue.check_room(), FULL, "taken, but not free");
            table.free_many(key, 2);
        }
    }

    #[test]
    fn run_takes_as_many_slots_as_there_are() {
        let table = SlotTable::new(1, 0).unwrap();
        let [key, _] = table.open_pair(QpId::new(0, 0));
        let (mut queue, mut engine) = queue(&table, key);
        let mut requests = 0..9;
        let room = queue.room();
        assert_eq!((room, queue.push_run(room, &mut requests)), (2, 2));
        assert_eq!((queue.room(), queue.push(7)), (0, FULL));
        assert_eq!((engine.pop(), engine.pop()), (Ok(0), Ok(1)));
        assert_eq!(queue.room(), 0, "taken, but not free");
        table.free(key);
        let room = queue.room();
        assert_eq!((room, queue.push_run(room, &mut requests)), (1, 1));
        assert_eq!((engine.pop(), requests.next()), (Ok(2), Some(3)));
        table.free_many(key, 2);
        assert_eq!((queue.push_run(2, 5..6), queue.room()), (1, 1));
        assert_eq!(engine.pop(), Ok(5));
        table.free(key);
        assert_eq!((queue.room(), queue.room_for(2)), (1, 2));
    }

    #[test]
    fn slots_of_a_few_queues_are_freed_together() {
        let table = SlotTable::new(3, 0).unwrap();
        let keys: Vec<_> = (0..3)
            .flat_map(|slot| table.open_pair(QpId::new(0, slot)))
            .collect();
        let mut freed = FreedSlots::beginning_with(keys[0]);
        for (i, noted) in [
            (0, true),
            (1, true),
            (0, true),
            (2, true),
            (1, true),
            (3, true),
        ] {
            assert_eq!(freed.note(keys[i]), noted, "{i}");
        }
        assert!(!freed.note(keys[4]), "one queue too many");
        assert!(freed.note(keys[3]));
        freed.free(7, &table);
        let counts = keys.iter().map(|key| table.freed(*key));
        assert_eq!(counts.collect::<Vec<_>>(), [2, 2, 1, 2, 0, 0]);
    }
}

//! Rings of a completion queue, one per engine, polled as one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use rtrb::Consumer;
use xwarp_rnic::queues::{CqPlace, CqShared, Cqe};

/// The rings of one completion queue. They are polled in turn, so that no engine's completions
/// starve those of another.
pub(crate) struct Rings {
    /// The ring to poll next.
    current: Ring,
    /// Rings of the other engines, in the order in which they are polled.
    others: VecDeque<Ring>,
    shared: Arc<CqShared>,
}

/// The ring that one engine fills.
struct Ring {
    entries: Consumer<Cqe>,
    engine: usize,
    /// Number of polled completions. Counted only with several engines.
    polled: u64,
}

impl Rings {
    /// The ring of the first engine, and those of the others.
    pub(crate) fn new(
        first: Consumer<Cqe>,
        others: impl Iterator<Item = Consumer<Cqe>>,
        shared: &Arc<CqShared>,
    ) -> Self {
        let ring = |(engine, entries)| Ring {
            entries,
            engine,
            polled: 0,
        };
        Self {
            current: ring((0, first)),
            others: (1..).zip(others).map(ring).collect(),
            shared: Arc::clone(shared),
        }
    }

    /// Lends the next completions, at most `most`. The caller takes some of the oldest.
    #[inline]
    pub(crate) fn next_run(&mut self, most: usize) -> (&mut Consumer<Cqe>, usize) {
        let there = if self.others.is_empty() {
            self.current.entries.slots()
        } else {
            self.seek()
        };
        (&mut self.current.entries, there.min(most))
    }

    /// Records that `taken` completions were taken, and moves on to the ring of another engine.
    #[inline]
    pub(crate) fn pass(&mut self, taken: usize) {
        if !self.others.is_empty() {
            self.current.polled += taken as u64;
            self.rotate();
        }
    }

    /// The ring of the only engine; `None` if there are others.
    #[inline]
    pub(crate) fn only(&mut self) -> Option<&mut Consumer<Cqe>> {
        self.others.is_empty().then_some(&mut self.current.entries)
    }

    /// Takes the next completion.
    fn pop(&mut self) -> Option<Cqe> {
        let (ring, there) = self.next_run(1);
        let entry = (there > 0).then(|| ring.pop().ok()).flatten();
        self.pass(usize::from(entry.is_some()));
        entry
    }

    /// Number of completions in the rings, except for the first engine's.
    pub(crate) fn len_of_others(&self) -> usize {
        let others = self.all().filter(|ring| ring.engine > 0);
        others.map(|ring| ring.entries.slots()).sum()
    }

    /// Whether the rings hold a completion that `wanted` accepts.
    pub(crate) fn has(&mut self, wanted: impl Fn(&Cqe) -> bool) -> bool {
        let mut all = self.others.iter_mut().chain([&mut self.current]);
        all.any(|ring| {
            let there = ring.entries.slots();
            let chunk = ring.entries.read_chunk(there);
            chunk.is_ok_and(|chunk| {
                let (first, second) = chunk.as_slices();
                first.iter().chain(second).any(&wanted)
            })
        })
    }

    /// Moves all completions to `backlog`.
    pub(crate) fn set_aside(&mut self, backlog: &mut VecDeque<Cqe>) {
        backlog.extend(std::iter::from_fn(|| self.pop()));
    }

    fn all(&self) -> impl Iterator<Item = &Ring> {
        self.others.iter().chain([&self.current])
    }

    /// Replaces the rings, in the order of the engines. Completions in the former rings are moved
    /// to `backlog`.
    ///
    /// A queue pair may move between engines while the engines replace their rings one by one. A
    /// completion in an engine's former ring may then have to follow one in the new ring of an
    /// earlier engine. So the contents of that new ring are moved, too. It never has to follow one
    /// in the new ring of a later engine.
    pub(crate) fn replace(
        &mut self,
        rings: impl Iterator<Item = Consumer<Cqe>>,
        backlog: &mut VecDeque<Cqe>,
    ) {
        for (engine, entries) in rings.enumerate() {
            self.set_aside(backlog);
            let mut all = self.others.iter_mut().chain([&mut self.current]);
            if let Some(ring) = all.find(|ring| ring.engine == engine) {
                ring.entries = entries;
            }
        }
    }

    /// Moves on to the next ring with completions that may be polled now. Returns how many of them
    /// may, or 0 if there is no such ring.
    #[inline(never)]
    fn seek(&mut self) -> usize {
        for _ in 0..=self.others.len() {
            let allowed = self.allowed();
            if allowed > 0 {
                return allowed;
            }
            self.rotate();
        }
        0
    }

    /// How many completions of the current ring may be polled before completions of other rings.
    fn allowed(&self) -> usize {
        // Counted first: see `CqOrders::allowed`.
        let seen = self.current.entries.slots();
        if seen == 0 {
            return 0;
        }
        let next = CqPlace {
            engine: self.current.engine,
            count: self.current.polled,
        };
        let polled = |engine| {
            let ring = self.all().find(|ring| ring.engine == engine);
            ring.map_or(u64::MAX, |ring| ring.polled)
        };
        self.shared.orders().allowed(next, seen, polled)
    }

    fn rotate(&mut self) {
        if let Some(next) = self.others.pop_front() {
            let former = std::mem::replace(&mut self.current, next);
            self.others.push_back(former);
        }
    }
}

impl fmt::Debug for Rings {
    /// Shows the number of completions in each engine's ring, and of those that were polled.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rings = self.all().map(|ring| {
            let (engine, there) = (ring.engine, ring.entries.slots());
            format!("{there} of engine {engine} behind {}", ring.polled)
        });
        f.debug_list().entries(rings).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtrb::{Producer, RingBuffer};
    use xwarp_rnic::model::{WorkCompletion, WrId};
    use xwarp_rnic::queues::SlotTable;

    const ENGINES: usize = 2;

    fn ends() -> (Vec<Producer<Cqe>>, Vec<Consumer<Cqe>>) {
        (0..ENGINES).map(|_| RingBuffer::new(8)).unzip()
    }

    /// Rings of two engines, and the engines' ends.
    fn rings(shared: &Arc<CqShared>) -> (Vec<Producer<Cqe>>, Rings) {
        let (producers, consumers) = ends();
        let mut consumers = consumers.into_iter();
        let first = consumers.next().unwrap();
        (producers, Rings::new(first, consumers, shared))
    }

    fn put(ring: &mut Producer<Cqe>, numbers: impl IntoIterator<Item = u64>) {
        let mut completion = WorkCompletion::empty();
        let slots = SlotTable::new(1, 0).unwrap();
        let [slots, _] = slots.pair(completion.qp);
        for number in numbers {
            completion.wr_id = WrId(number);
            assert!(ring.push(Cqe { completion, slots }).is_ok());
        }
    }

    fn numbers(all: impl IntoIterator<Item = Cqe>) -> Vec<u64> {
        let ids = all.into_iter().map(|it| it.completion.wr_id.0);
        ids.collect()
    }

    fn rest(rings: &mut Rings) -> Vec<u64> {
        numbers(std::iter::from_fn(|| rings.pop()))
    }

    /// Orders the completions before `first` of one engine ahead of those behind `then` of the
    /// other.
    fn order(shared: &CqShared, first: (usize, u64), then: (usize, u64)) {
        let place = |(engine, count)| CqPlace { engine, count };
        shared.orders().put(place(first), place(then));
    }

    #[test]
    fn engines_are_polled_in_turn_but_for_what_must_wait() {
        let shared = Arc::new(CqShared::new());
        let (mut engines, mut rings) = rings(&shared);
        put(&mut engines[0], [1, 2, 3]);
        put(&mut engines[1], [11, 12]);
        order(&shared, (0, 3), (1, 1));
        assert_eq!(rings.next_run(2).1, 2);
        rings.current.entries.pop().unwrap();
        rings.pass(1);
        assert_eq!(rings.next_run(2).1, 1, "12 waits for 3");
        assert_eq!(rest(&mut rings), [11, 2, 3, 12]);
    }

    #[test]
    fn completions_of_all_engines_are_looked_at_and_set_aside_in_order() {
        let (mut engines, mut rings) = rings(&Arc::new(CqShared::new()));
        put(&mut engines[0], [1, 2]);
        put(&mut engines[1], [11]);
        let is = |number| move |entry: &Cqe| entry.completion.wr_id == WrId(number);
        let mut backlog = VecDeque::new();
        assert_eq!([rings.has(is(3)), rings.has(is(11))], [false, true]);
        rings.set_aside(&mut backlog);
        assert_eq!(numbers(backlog), [1, 11, 2]);
        assert_eq!(rest(&mut rings), [0; 0]);
    }

    /// The queue pair moves from engine 0, which has the new ring already, to engine 1, which still
    /// has the former one.
    #[test]
    fn completions_of_a_queue_pair_that_moves_during_a_resize_come_in_order() {
        let shared = Arc::new(CqShared::new());
        let (mut former, mut rings) = rings(&shared);
        let (mut new, consumers) = ends();
        put(&mut former[0], [1, 2]);
        put(&mut new[0], [3]);
        order(&shared, (0, 3), (1, 0));
        put(&mut former[1], [4, 5]);
        put(&mut new[1], [6]);
        let mut backlog = VecDeque::new();
        rings.replace(consumers.into_iter(), &mut backlog);
        let mut all = numbers(backlog);
        all.extend(rest(&mut rings));
        assert_eq!(all, [1, 2, 3, 4, 5, 6]);
    }
}

//! Rings of a completion queue, one per engine, polled as one.

use std::collections::VecDeque;
use std::sync::Arc;

use rtrb::Consumer;
use xwarp_rnic::queues::{CqPlace, CqShared, Cqe};

/// See the module. They are polled in turn, so that no engine's completions wait for those of another forever.
pub(crate) struct Rings {
    /// The one that is next.
    current: Ring,
    /// Those of other engines, in turn.
    others: VecDeque<Ring>,
    shared: Arc<CqShared>,
}

/// What one engine fills.
struct Ring {
    entries: Consumer<Cqe>,
    engine: usize,
    /// Completions that were polled; counted where there are other engines.
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

    /// The completion that is next.
    pub(crate) fn peek(&mut self) -> Option<&Cqe> {
        if !self.others.is_empty() {
            self.seek();
        }
        self.current.entries.peek().ok()
    }

    /// Lends the completions that are next, at most so many, for some of the oldest to be taken.
    #[inline]
    pub(crate) fn next_run(&mut self, most: usize) -> (&mut Consumer<Cqe>, usize) {
        let allowed = if self.others.is_empty() {
            most
        } else {
            most.min(self.seek())
        };
        let there = self.current.entries.slots().min(allowed);
        (&mut self.current.entries, there)
    }

    /// So many were taken; the next are another engine's.
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

    /// Takes the completion that is next.
    fn pop(&mut self) -> Option<Cqe> {
        self.peek()?;
        let entry = self.current.entries.pop().ok();
        self.pass(usize::from(entry.is_some()));
        entry
    }

    /// Completions that are there, but for those of the first engine.
    pub(crate) fn len_of_others(&self) -> usize {
        let others = self.all().filter(|ring| ring.engine > 0);
        others.map(|ring| ring.entries.slots()).sum()
    }

    fn all(&self) -> impl Iterator<Item = &Ring> {
        self.others.iter().chain([&self.current])
    }

    /// Goes on with other rings, in the order of the engines. What the former ones have is appended to `backlog`.
    pub(crate) fn replace(
        &mut self,
        rings: impl Iterator<Item = Consumer<Cqe>>,
        backlog: &mut VecDeque<Cqe>,
    ) {
        backlog.extend(std::iter::from_fn(|| self.pop()));
        for (engine, entries) in rings.enumerate() {
            let mut all = self.others.iter_mut().chain([&mut self.current]);
            if let Some(ring) = all.find(|ring| ring.engine == engine) {
                ring.entries = entries;
            }
        }
    }

    /// Goes to the next ring that has a completion which may be polled now; how many of them may. 0: there is none.
    #[inline(never)]
    fn seek(&mut self) -> usize {
        for _ in 0..=self.others.len() {
            // Asked first: see `CqOrders::allowed`.
            if !self.current.entries.is_empty() {
                let allowed = self.allowed();
                if allowed > 0 {
                    return allowed;
                }
            }
            self.rotate();
        }
        0
    }

    /// How many completions of the current ring may be polled before something in other rings.
    fn allowed(&self) -> usize {
        let next = CqPlace {
            engine: self.current.engine,
            count: self.current.polled,
        };
        let polled = |engine| {
            let ring = self.all().find(|ring| ring.engine == engine);
            ring.map_or(u64::MAX, |ring| ring.polled)
        };
        let allowed = self.shared.orders().allowed(next, polled);
        usize::try_from(allowed).unwrap_or(usize::MAX)
    }

    fn rotate(&mut self) {
        if let Some(next) = self.others.pop_front() {
            let former = std::mem::replace(&mut self.current, next);
            self.others.push_back(former);
        }
    }
}

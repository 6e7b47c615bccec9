//! Orders of a completion queue that several engines fill: completions in one engine's ring that
//! must be polled before certain completions in another's.
//!
//! A queue pair may move from one engine to another. Its completions stay in order (verbs draft
//! §8.2.3): those on its former engine are polled before later ones.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::locked::Locked;

/// A place in a completion queue: an engine's ring, and the number of completions that were
/// appended to it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqPlace {
    /// Index of the engine.
    pub engine: usize,
    /// Number of completions before the place.
    pub count: u64,
}

/// Completions before `first` are polled before those after `then`.
#[derive(Debug)]
struct Order {
    first: CqPlace,
    then: CqPlace,
}

/// Orders of a completion queue.
#[derive(Default)]
pub struct CqOrders {
    any: AtomicBool,
    pending: Locked<Vec<Order>>,
}

impl fmt::Debug for CqOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pending.lock().iter()).finish()
    }
}

impl CqOrders {
    /// Completions before `first` must be polled before those after `then`, where none has been
    /// appended yet.
    pub fn put(&self, first: CqPlace, then: CqPlace) {
        let mut pending = self.pending.lock();
        pending.push(Order { first, then });
        // Set before completions after `then` are appended, so that a poller that finds them finds
        // the order, too.
        self.any.store(true, Ordering::Release);
    }

    /// How many of the `seen` completions at `next` may be polled now. Orders may be added at any
    /// time, so the caller counts first. `polled` returns the number of polled completions of an
    /// engine's ring.
    pub fn allowed(&self, next: CqPlace, seen: usize, polled: impl Fn(usize) -> u64) -> usize {
        if !self.any.load(Ordering::Acquire) {
            return seen;
        }
        let mut pending = self.pending.lock();
        pending.retain(|order| polled(order.first.engine) < order.first.count);
        if pending.is_empty() {
            self.any.store(false, Ordering::Relaxed);
        }
        let here = pending
            .iter()
            .filter(|order| order.then.engine == next.engine);
        let allowed = here.map(|order| order.then.count.saturating_sub(next.count));
        let allowed = allowed.min().unwrap_or(u64::MAX);
        usize::try_from(allowed).map_or(seen, |allowed| seen.min(allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(engine: usize, count: u64) -> CqPlace {
        CqPlace { engine, count }
    }

    #[test]
    fn what_follows_waits_for_what_was_left_behind_and_for_nothing_else() {
        let orders = CqOrders::default();
        assert_eq!(orders.allowed(place(1, 0), 9, |_| 0), 9);
        orders.put(place(0, 5), place(1, 3));
        let polled = |engine| [4, 1][engine];
        assert_eq!(orders.allowed(place(1, 1), 9, polled), 2);
        assert_eq!(orders.allowed(place(1, 1), 1, polled), 1);
        assert_eq!(orders.allowed(place(1, 3), 9, polled), 0);
        assert_eq!(orders.allowed(place(0, 4), 9, polled), 9);
        assert_eq!(orders.allowed(place(1, 3), 9, |_| 5), 9);
    }

    #[test]
    fn two_that_change_places_do_not_wait_for_each_other() {
        let orders = CqOrders::default();
        orders.put(place(0, 2), place(1, 1));
        orders.put(place(1, 1), place(0, 2));
        let mut polled = [0, 0];
        while polled[0] + polled[1] < 8 {
            let before = polled;
            for engine in [1, 0] {
                let next = place(engine, polled[engine]);
                if polled[engine] < 4 && orders.allowed(next, 1, |engine| polled[engine]) > 0 {
                    polled[engine] += 1;
                    assert!(polled[1] < 2 || polled[0] >= 2, "{polled:?}");
                    assert!(polled[0] < 3 || polled[1] >= 1, "{polled:?}");
                }
            }
            assert_ne!(polled, before, "nothing can be polled");
        }
    }
}

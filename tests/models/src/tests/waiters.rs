//! Waiters (`rdma/rnic/src/queues/waiters.rs`): those of an RNIC's end, and those of a queue pair's
//! state.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::explore_bounded;
use crate::waiters::Waiters;

/// A state that changes once, the waiters for that, and their signals: each an eventfd, which
/// counts until it is read.
struct Watched {
    changed: AtomicUsize,
    waiters: Waiters<usize>,
    signals: [AtomicUsize; 2],
}

impl Watched {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            changed: AtomicUsize::new(0),
            waiters: Waiters::default(),
            signals: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire) == 1
    }

    fn raise(&self, number: usize) {
        self.signals[number].fetch_add(1, Ordering::Release);
    }

    /// As an engine that ends does, or a queue pair that comes into another state.
    fn change(&self) {
        self.changed.store(1, Ordering::Release);
        self.waiters.notify_each(|number| self.raise(*number));
    }

    /// As a thread does that makes something which ends with the RNIC.
    fn watch(&self, number: usize) {
        if (self.waiters).register(number, |_| false, || self.has_changed()) {
            self.raise(number);
        }
    }

    fn is_raised(&self, number: usize) -> bool {
        self.signals[number].load(Ordering::Acquire) > 0
    }
}

#[test]
fn signal_that_is_registered_while_the_rnic_ends_is_raised() {
    loom::model(|| {
        let watched = Watched::new();
        let waiter = {
            let watched = Arc::clone(&watched);
            thread::spawn(move || watched.watch(0))
        };
        watched.change();
        waiter.join().unwrap();
        assert!(watched.is_raised(0), "it waits for ever");
    });
}

#[test]
fn both_of_two_that_register_meanwhile_are_raised() {
    explore_bounded(|| {
        let watched = Watched::new();
        let waiters = [0, 1].map(|number| {
            let watched = Arc::clone(&watched);
            thread::spawn(move || watched.watch(number))
        });
        watched.change();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(watched.is_raised(0) && watched.is_raised(1));
    });
}

/// As `StateChanges::take` does: it clears the signal, then looks.
#[test]
fn watcher_that_clears_its_signal_sees_the_state_or_is_signalled_again() {
    loom::model(|| {
        let watched = Watched::new();
        watched.waiters.register(0, |_| false, || ());
        let engine = {
            let watched = Arc::clone(&watched);
            thread::spawn(move || watched.change())
        };
        watched.signals[0].swap(0, Ordering::AcqRel);
        let seen = watched.has_changed();
        engine.join().unwrap();
        assert!(seen || watched.is_raised(0), "it sleeps on");
    });
}

//! Ready set (`rdma/rnic/src/queues/ready_set.rs`): a queue pair that is posted to is looked at,
//! also while it moves to another engine.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::explore_bounded;
use super::sleeping::Shared;
use crate::ready_set::ReadySet;
use crate::sleep_flag::WokenBy;

/// A queue pair that is posted to: the tail of its ring, the set, and what the engine has seen of
/// the tail.
struct Posted {
    tail: AtomicUsize,
    ready: ReadySet,
    seen: AtomicUsize,
}

impl Posted {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tail: AtomicUsize::new(0),
            ready: ReadySet::new(2),
            seen: AtomicUsize::new(0),
        })
    }

    fn post(&self, tail: usize) -> bool {
        self.tail.store(tail, Ordering::Release);
        self.ready.add(1)
    }

    /// A turn of the engine.
    fn turn(&self) {
        self.ready.drain(|number| {
            assert_eq!(number, 1);
            let seen = self.tail.load(Ordering::Acquire);
            self.seen.store(seen, Ordering::Relaxed);
        });
    }
}

#[test]
fn post_to_a_ready_queue_pair_is_seen_by_the_thread_that_takes_it_out() {
    loom::model(|| {
        let pair = Posted::new();
        let poster = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || (pair.post(1), pair.post(2)))
        };
        pair.turn();
        pair.turn();
        let (first, _) = poster.join().unwrap();
        assert!(first, "the first one adds it");
        pair.turn();
        assert_eq!(pair.seen.load(Ordering::Relaxed), 2);
        assert!(pair.ready.is_empty());
    });
}

#[test]
fn thread_that_finds_a_queue_pair_ready_need_not_wake_the_engine() {
    explore_bounded(|| {
        let (shared, ready) = (Shared::new(), Arc::new(ReadySet::new(1)));
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let (shared, ready) = (Arc::clone(&shared), Arc::clone(&ready));
                thread::spawn(move || {
                    if ready.add(0) && shared.flag.must_wake().is_some() {
                        shared.event.fetch_add(1, Ordering::Release);
                    }
                })
            })
            .collect();
        shared.flag.announce(WokenBy::DESCRIPTOR);
        let asleep = ready.is_empty();
        for poster in posters {
            poster.join().unwrap();
        }
        assert!(!asleep || shared.event.load(Ordering::Acquire) >= 1);
    });
}

/// A queue pair that is posted to while it moves from engine 0 to engine 1.
struct Moving {
    tail: AtomicUsize,
    engine: AtomicUsize,
    doors: [ReadySet; 2],
    /// It has left engine 0.
    left: AtomicUsize,
    /// What was seen of the tail.
    seen: AtomicUsize,
}

impl Moving {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tail: AtomicUsize::new(0),
            engine: AtomicUsize::new(0),
            doors: [ReadySet::new(1), ReadySet::new(1)],
            left: AtomicUsize::new(0),
            seen: AtomicUsize::new(0),
        })
    }

    fn post(&self) {
        self.tail.store(1, Ordering::Release);
        self.doors[self.engine.load(Ordering::Relaxed)].add(0);
    }

    fn look(&self) {
        let tail = self.tail.load(Ordering::Acquire);
        self.seen.store(tail, Ordering::Relaxed);
    }

    /// A turn of engine 0, which passes a post to a queue pair that has left to engine 1.
    fn turn_of_first(&self, has_it: bool) {
        self.doors[0].drain(|_| {
            if has_it {
                self.look();
            } else {
                self.doors[1].add(0);
            }
        });
    }

    /// Engine 0 releases it.
    fn leave(&self) {
        self.turn_of_first(true);
        self.left.store(1, Ordering::Release);
        self.turn_of_first(false);
    }

    /// It enters engine 1 if it has left engine 0. True if it has.
    fn enter(&self) -> bool {
        if self.left.load(Ordering::Acquire) == 0 {
            self.doors[1].drain(|_| {});
            return false;
        }
        self.engine.store(1, Ordering::Relaxed);
        self.look();
        self.doors[1].drain(|_| self.look());
        true
    }
}

#[test]
fn post_to_a_queue_pair_that_moves_is_seen_by_the_engine_that_it_is_on_then() {
    explore_bounded(|| {
        let moving = Moving::new();
        let run = |work: fn(&Moving) -> bool| {
            let moving = Arc::clone(&moving);
            thread::spawn(move || work(&moving))
        };
        let poster = run(|moving| {
            moving.post();
            true
        });
        let second = run(Moving::enter);
        moving.leave();
        poster.join().unwrap();
        if !second.join().unwrap() {
            moving.enter();
        }
        moving.turn_of_first(false);
        moving.doors[1].drain(|_| moving.look());
        assert_eq!(moving.seen.load(Ordering::Relaxed), 1);
    });
}

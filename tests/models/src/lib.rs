//! The lock-free protocols of xwarp, explored by a model checker: every interleaving that the memory model allows.
#![cfg(test)]

#[path = "../../../rdma/verbs/src/hand_over.rs"]
mod hand_over;
#[path = "../../../driver/src/sleep_flag.rs"]
mod sleep_flag;

#[path = "../../../rdma/rnic/src/queues/ready_set.rs"]
#[allow(unreachable_pub, reason = "it is public where it belongs")]
mod ready_set;

/// The model checker's atomics in place of the standard library's.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

use hand_over::HandOver;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use ready_set::ReadySet;
use sleep_flag::SleepFlag;

/// Work that is published, the flag, and the event that a sleeper sleeps on (an eventfd: a count that stays until it is read).
struct Shared {
    work: AtomicUsize,
    flag: SleepFlag,
    event: AtomicUsize,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            work: AtomicUsize::new(0),
            flag: SleepFlag::new(),
            event: AtomicUsize::new(0),
        })
    }

    fn publish(&self) {
        self.work.fetch_add(1, Ordering::Release);
        if self.flag.must_wake() {
            self.event.fetch_add(1, Ordering::Release);
        }
    }

    /// Announces, looks, and goes to sleep if there is nothing. True if it sleeps without having seen all of `expected`.
    fn falls_asleep(&self, expected: usize) -> bool {
        self.flag.announce();
        self.work.load(Ordering::Acquire) < expected
    }
}

#[test]
fn whoever_sleeps_with_work_left_is_woken() {
    loom::model(|| {
        let shared = Shared::new();
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish())
        };
        let asleep = shared.falls_asleep(1);
        waker.join().unwrap();
        assert!(
            !asleep || shared.event.load(Ordering::Acquire) == 1,
            "asleep, work published, and the event never set"
        );
    });
}

#[test]
fn of_two_wakers_at_least_one_wakes_the_sleeper() {
    loom::model(|| {
        let shared = Shared::new();
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.publish())
            })
            .collect();
        let asleep = shared.falls_asleep(2);
        for waker in wakers {
            waker.join().unwrap();
        }
        assert!(!asleep || shared.event.load(Ordering::Acquire) >= 1);
    });
}

#[test]
fn sleeper_that_is_awake_again_is_not_rung_for() {
    loom::model(|| {
        let shared = Shared::new();
        shared.flag.announce();
        shared.flag.awake();
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish())
        };
        waker.join().unwrap();
        assert_eq!(shared.event.load(Ordering::Acquire), 0);
    });
}

/// A queue pair that is posted to: the tail of its ring, the set, and what the engine has seen of the tail.
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
fn post_to_a_ready_queue_pair_is_seen_by_whoever_takes_it_out() {
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
fn whoever_finds_a_queue_pair_ready_need_not_wake_the_engine() {
    loom::model(|| {
        let (shared, ready) = (Shared::new(), Arc::new(ReadySet::new(1)));
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let (shared, ready) = (Arc::clone(&shared), Arc::clone(&ready));
                thread::spawn(move || {
                    if ready.add(0) && shared.flag.must_wake() {
                        shared.event.fetch_add(1, Ordering::Release);
                    }
                })
            })
            .collect();
        shared.flag.announce();
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

    /// A turn of engine 0, which hands on what it is told of a queue pair that has left.
    fn turn_of_first(&self, has_it: bool) {
        self.doors[0].drain(|_| {
            if has_it {
                self.look();
            } else {
                self.doors[1].add(0);
            }
        });
    }

    /// Engine 0 lets it go.
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
    loom::model(|| {
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

/// The engine's thread, as far as it rests: whether it does, and the token that wakes it.
struct Engine {
    hand_over: HandOver,
    token: AtomicUsize,
}

impl Engine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            hand_over: HandOver::new(),
            token: AtomicUsize::new(0),
        })
    }

    fn wake_if(&self, rests: bool) {
        if rests {
            self.token.store(1, Ordering::Release);
        }
    }

    /// True if it rests, was not woken, and would go on resting if its time were over.
    fn rests_on(&self, may_rest: bool) -> bool {
        may_rest && self.token.load(Ordering::Acquire) == 0
    }
}

#[test]
fn engine_thread_that_is_asked_for_does_not_rest_on() {
    loom::model(|| {
        let engine = Engine::new();
        let asker = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.wake_if(engine.hand_over.ask()))
        };
        let may_rest = engine.hand_over.may_rest();
        asker.join().unwrap();
        assert!(!engine.rests_on(may_rest), "asked for, and it rests");
        assert!(engine.hand_over.is_asked());
    });
}

#[test]
fn engine_thread_whose_rnic_was_closed_does_not_rest_on() {
    loom::model(|| {
        let engine = Engine::new();
        let closer = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.wake_if(engine.hand_over.end()))
        };
        let may_rest = engine.hand_over.may_rest();
        closer.join().unwrap();
        assert!(!engine.rests_on(may_rest), "closed, and its thread rests");
        assert!(engine.hand_over.has_ended());
    });
}

#[test]
fn engine_thread_rests_again_by_polls_that_came_after_it_was_asked_for() {
    loom::model(|| {
        let engine = Engine::new();
        assert!(!engine.hand_over.ask(), "it does not rest");
        assert!(!engine.hand_over.may_rest());
        engine.hand_over.begin_burst();
        let poller = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.hand_over.note_poll())
        };
        assert!(engine.hand_over.may_rest());
        poller.join().unwrap();
        assert_eq!(engine.hand_over.polls(), 1);
        engine.hand_over.end_rest();
        assert!(!engine.hand_over.ask(), "it turns the engine again");
    });
}

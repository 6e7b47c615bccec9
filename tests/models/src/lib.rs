//! The lock-free protocols of xwarp, explored by a model checker: every interleaving that the memory model allows.
#![cfg(test)]

#[path = "../../../driver/src/sleep_flag.rs"]
mod sleep_flag;

/// The model checker's atomics in place of the standard library's.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
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

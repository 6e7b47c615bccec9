//! Sleep flag (`driver/src/wake/sleep_flag.rs`): doorbells of engines, of completion queues and of
//! the mailbox of an engine's thread.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::explore_bounded;
use crate::sleep_flag::{SleepFlag, WokenBy};

/// Work that is published, the flag, and the event that a sleeper sleeps on (an eventfd: a count
/// that stays until it is read).
pub(super) struct Shared {
    pub(super) work: AtomicUsize,
    pub(super) flag: SleepFlag,
    pub(super) event: AtomicUsize,
}

impl Shared {
    /// Without work, and no thread sleeps.
    pub(super) fn silent() -> Self {
        Self {
            work: AtomicUsize::new(0),
            flag: SleepFlag::new(),
            event: AtomicUsize::new(0),
        }
    }

    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self::silent())
    }

    /// As a doorbell does.
    pub(super) fn ring(&self) {
        if self.flag.must_wake() == Some(WokenBy::DESCRIPTOR) {
            self.event.fetch_add(1, Ordering::Release);
        }
    }

    fn publish(&self) {
        self.work.fetch_add(1, Ordering::Release);
        self.ring();
    }

    /// Announces, looks, and goes to sleep if there is nothing. True if it sleeps without having
    /// seen all of `expected`.
    fn falls_asleep(&self, expected: usize) -> bool {
        self.flag.announce(WokenBy::DESCRIPTOR);
        self.work.load(Ordering::Acquire) < expected
    }
}

#[test]
fn thread_that_sleeps_with_work_left_is_woken() {
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
    explore_bounded(|| {
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
        shared.flag.announce(WokenBy::DESCRIPTOR);
        shared.flag.awake();
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish())
        };
        waker.join().unwrap();
        assert_eq!(shared.event.load(Ordering::Acquire), 0);
    });
}

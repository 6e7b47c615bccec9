//! Arming (`rdma/rnic/src/queues/arming.rs`): a completion that comes while its queue is armed
//! wakes the waiter, once.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::explore_bounded;
use super::sleeping::Shared;
use crate::arming::{Arm, ArmState, arm_and_look};
use crate::sleep_flag::WokenBy;

/// A completion queue: completions that were appended, the arm state, and the doorbell.
struct Queue {
    appended: AtomicUsize,
    armed: ArmState,
    bell: Shared,
    /// Engines that found the queue armed.
    announced: AtomicUsize,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            appended: AtomicUsize::new(0),
            armed: ArmState::new(),
            bell: Shared::silent(),
            announced: AtomicUsize::new(0),
        })
    }

    /// What an engine does with a completion.
    fn complete(&self, solicited: bool) {
        self.appended.fetch_add(1, Ordering::Release);
        if self.armed.disarm_for(solicited) {
            self.announced.fetch_add(1, Ordering::Relaxed);
            self.bell.ring();
        }
    }

    /// What the waiter finds.
    fn poll(&self, expected: usize) -> Option<usize> {
        let appended = self.appended.load(Ordering::Acquire);
        (appended == expected).then_some(appended)
    }

    /// What the waiter does before it sleeps. True if it sleeps without having seen all of
    /// `expected`.
    fn falls_asleep(&self, kind: Arm, expected: usize) -> bool {
        let arm = |queue: &&Self| {
            queue.armed.arm(kind);
            Ok::<_, ()>(())
        };
        let look = |queue: &mut &Self| Ok(queue.poll(expected));
        let mut queue = self;
        let found = look(&mut queue).transpose();
        let found = found.or_else(|| arm_and_look(&mut queue, arm, look).transpose());
        if found.is_some() {
            return false;
        }
        self.bell.flag.announce(WokenBy::DESCRIPTOR);
        self.armed.is_armed()
    }
}

fn engine(queue: &Arc<Queue>, solicited: bool) -> thread::JoinHandle<()> {
    let queue = Arc::clone(queue);
    thread::spawn(move || queue.complete(solicited))
}

#[test]
fn waiter_that_sleeps_is_woken_by_a_completion() {
    for (kind, solicited) in [(Arm::Next, false), (Arm::Solicited, true)] {
        loom::model(move || {
            let queue = Queue::new();
            let engine = engine(&queue, solicited);
            let asleep = queue.falls_asleep(kind, 1);
            engine.join().unwrap();
            let woken = queue.bell.event.load(Ordering::Acquire) == 1;
            assert!(!asleep || woken, "{kind:?}: it sleeps, and was not woken");
        });
    }
}

#[test]
fn waiter_for_solicited_completions_sleeps_on() {
    loom::model(|| {
        let queue = Queue::new();
        let engine = engine(&queue, false);
        let asleep = queue.falls_asleep(Arm::Solicited, 2);
        engine.join().unwrap();
        assert!(asleep && queue.armed.is_armed());
        assert_eq!(queue.announced.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn one_of_two_engines_wakes_the_waiter() {
    explore_bounded(|| {
        let queue = Queue::new();
        let engines = [engine(&queue, false), engine(&queue, false)];
        let asleep = queue.falls_asleep(Arm::Next, 2);
        for engine in engines {
            engine.join().unwrap();
        }
        let woken = queue.bell.event.load(Ordering::Acquire) == 1;
        assert!(!asleep || woken, "it sleeps, and was not woken");
        assert!(
            queue.announced.load(Ordering::Relaxed) <= 1,
            "one event for an arming"
        );
    });
}

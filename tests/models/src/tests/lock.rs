//! Lock (`rdma/dropin/src/lock_state.rs`): a thread that is not woken ends the model in a deadlock.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::explore_bounded;
use crate::lock_state::LockState;

/// A lock and what it guards. The model checker finds two threads that look at once.
struct Guarded {
    state: LockState,
    value: UnsafeCell<u32>,
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: LockState::new(),
            value: UnsafeCell::new(0),
        })
    }

    fn touch(&self) {
        self.value.with_mut(|_| ());
        self.state.leave();
    }

    fn take(&self) {
        if !self.state.try_take() {
            self.state.await_turn();
        }
        self.touch();
    }

    /// Takes it unless the value has ended.
    fn take_mortal(&self) {
        if self.state.try_take() || self.state.await_turn_unless_ended() {
            self.touch();
        }
    }

    /// Ends the value, unless another thread has.
    fn end(&self) {
        if self.state.try_take() || self.state.await_turn_unless_ended() {
            self.value.with_mut(|_| ());
            self.state.end();
        }
    }
}

fn run_with(others: usize, each: fn(&Guarded), last: fn(&Guarded)) {
    let lock = Guarded::new();
    let threads: Vec<_> = (0..others)
        .map(|_| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || each(&lock))
        })
        .collect();
    last(&lock);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn thread_that_waits_for_a_lock_is_woken() {
    loom::model(|| {
        run_with(1, Guarded::take, |lock| {
            lock.take();
            lock.take();
        });
    });
}

#[test]
fn thread_that_was_woken_wakes_the_next() {
    explore_bounded(|| run_with(2, Guarded::take, Guarded::take));
}

#[test]
fn thread_that_waits_for_a_value_that_ends_is_woken() {
    loom::model(|| run_with(1, Guarded::take_mortal, Guarded::end));
}

#[test]
fn all_who_wait_for_a_value_that_ends_are_woken() {
    explore_bounded(|| run_with(2, Guarded::take_mortal, Guarded::end));
}

#[test]
fn one_of_two_ends_a_value() {
    loom::model(|| run_with(1, Guarded::end, Guarded::end));
}

/// The thread that has it leaves it later, and both that wait must find that it has ended.
#[test]
fn all_who_wait_for_a_lock_that_ends_while_it_is_held_are_woken() {
    explore_bounded(|| {
        run_with(2, Guarded::take_mortal, |lock| {
            if lock.state.try_take() || lock.state.await_turn_unless_ended() {
                lock.state.end();
                lock.touch();
            }
            assert!(!lock.state.try_take());
        });
    });
}

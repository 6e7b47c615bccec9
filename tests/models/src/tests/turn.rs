//! Turn (`rdma/dropin/src/verbs/turn.rs`): threads that build a batch or poll a queue in turn. A
//! thread that is not woken ends the model in a deadlock.

use loom::sync::Arc;
use loom::thread;

use super::explore_bounded;
use crate::turn::Turn;

/// A turn of two calls.
fn take_turn(turn: &Turn<[u32; 2]>) {
    turn.begin(|[first, _]| *first += 1);
    let same = turn.end(|[first, second]| {
        *second += 1;
        first == second
    });
    assert_eq!(same, Some(true), "another thread was in between");
}

fn run_with(others: usize) {
    let turn = Arc::new(Turn::new([0; 2]));
    let threads: Vec<_> = (0..others)
        .map(|_| {
            let turn = Arc::clone(&turn);
            thread::spawn(move || take_turn(&turn))
        })
        .collect();
    take_turn(&turn);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(turn.waiting(), 0);
}

#[test]
fn thread_that_waits_for_its_turn_is_woken() {
    loom::model(|| run_with(1));
}

#[test]
fn both_of_two_that_wait_get_their_turn() {
    explore_bounded(|| run_with(2));
}

//! Turns of threads: one thread at a time has one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use xwarp_test_kit::{eventually, spawn_numbered, thread_sleeps};

use super::super::turn::Turn;

#[test]
fn one_thread_at_a_time_has_a_turn() {
    let turn = Turn::new(0);
    turn.begin(|work| *work = 1);
    thread::scope(|scope| {
        let (number, second) = spawn_numbered(scope, || {
            turn.begin(|work| *work += 1);
            turn.end(|work| *work)
        });
        eventually("the second sleeps", || thread_sleeps(number));
        assert_eq!(turn.waiting(), 1);
        assert_eq!(turn.with(|work| *work), Some(1));
        assert!(!second.is_finished());
        assert_eq!(turn.end(|work| *work), Some(1));
        assert_eq!(second.join().expect("no panic"), Some(2));
    });
    assert_eq!((turn.with(|_| ()), turn.end(|_| ())), (None, None));
}

#[test]
fn all_who_wait_get_their_turn() {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 2000;
    let turn = Turn::new([0; 2]);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    turn.begin(|[first, _]| *first += 1);
                    thread::yield_now();
                    turn.end(|[first, second]| {
                        *second += 1;
                        assert_eq!(first, second);
                    });
                }
            });
        }
    });
    assert_eq!(turn.begin(|work| *work), [THREADS * ROUNDS; 2]);
    assert_eq!(turn.waiting(), 0);
}

#[test]
fn panic_of_the_last_step_ends_the_turn() {
    let turn = Turn::new(());
    turn.begin(|()| ());
    let panicked = catch_unwind(AssertUnwindSafe(|| turn.end(|()| panic!("a defect"))));
    assert!(panicked.is_err());
    assert_eq!(turn.with(|()| ()), None);
    turn.begin(|()| ());
}

//! Hand-over (`rdma/verbs/src/runtime/hand_over.rs`): the thread of an assisted engine rests while
//! the application polls.

use loom::sync::Arc;
use loom::thread::{self, Thread};

use crate::hand_over::HandOver;

/// A thread that rests if it may, without limit: the thread that needs it must wake it, or the
/// model ends in a deadlock.
fn rests(hand_over: &HandOver) {
    if let Some(rest) = hand_over.may_rest() {
        rest.last(thread::park, || false);
    }
}

/// Does something while a thread rests, which must end by that.
fn ends_rest(wake: impl Fn(&HandOver, &Thread) + Send + Sync + 'static) {
    let wake = std::sync::Arc::new(wake);
    loom::model(move || {
        let hand_over = Arc::new(HandOver::new());
        let thread = {
            let hand_over = Arc::clone(&hand_over);
            thread::spawn(move || rests(&hand_over))
        };
        wake(&hand_over, thread.thread());
        thread.join().unwrap();
    });
}

#[test]
fn engine_thread_that_is_asked_for_does_not_rest_on() {
    ends_rest(|hand_over, thread| {
        if hand_over.ask() {
            thread.unpark();
        }
    });
}

#[test]
fn engine_thread_whose_rnic_was_closed_does_not_rest_on() {
    ends_rest(|hand_over, thread| {
        if hand_over.end() {
            thread.unpark();
        }
    });
}

/// Only polls that come after it was asked for have it rest again.
#[test]
fn engine_thread_rests_again_in_the_next_burst() {
    loom::model(|| {
        let hand_over = Arc::new(HandOver::new());
        assert!(!hand_over.ask(), "it does not rest");
        assert!(hand_over.may_rest().is_none());
        hand_over.begin_burst();
        let poller = {
            let hand_over = Arc::clone(&hand_over);
            thread::spawn(move || hand_over.note_poll())
        };
        let rest = hand_over.may_rest();
        poller.join().unwrap();
        assert_eq!(hand_over.polls(), 1);
        assert!(rest.is_some());
        assert!(hand_over.ask(), "it rests");
        drop(rest);
        assert!(!hand_over.ask(), "it turns the engine again");
    });
}

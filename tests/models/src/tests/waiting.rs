//! Events that wait (`rdma/dropin/src/verbs/waiting.rs`): threads that take events while another
//! takes some back. A thread that waits for a count in vain ends the model in a deadlock.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::explore_bounded;
use crate::waiting::Waiting;

/// A queue of events of the C interface, and its eventfd. A read lowers the count by one, and waits
/// for one unless it must not.
struct Queue {
    waiting: Mutex<Waiting<u32>>,
    count: Mutex<u32>,
    counted: Condvar,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(Waiting::new()),
            count: Mutex::new(0),
            counted: Condvar::new(),
        })
    }

    fn push(&self, event: u32) {
        let mut waiting = self.waiting.lock().unwrap();
        if waiting.push(event) {
            *self.count.lock().unwrap() += 1;
            self.counted.notify_one();
        }
    }

    fn read(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.counted.wait(count).unwrap();
        }
        *count -= 1;
    }

    fn take(&self) -> u32 {
        loop {
            self.read();
            if let Some(event) = self.waiting.lock().unwrap().take() {
                return event;
            }
        }
    }

    /// Reads a count of one without waiting.
    fn uncount(&self) -> bool {
        let mut count = self.count.lock().unwrap();
        let is_counted = *count > 0;
        *count -= u32::from(is_counted);
        is_counted
    }

    fn take_back(&self, which: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut waiting = self.waiting.lock().unwrap();
        waiting.take_back(|event| which(*event), || self.uncount())
    }

    /// While no thread is on its way, the descriptor counts the events that wait.
    fn check(&self, expected: usize) {
        let waiting = self.waiting.lock().unwrap().len();
        let count = *self.count.lock().unwrap() as usize;
        assert_eq!((waiting, count), (expected, expected));
    }
}

#[test]
fn events_are_taken_or_taken_back_once_and_no_thread_waits_for_one_that_is_there() {
    loom::model(|| {
        let queue = Queue::new();
        let taker = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.take())
        };
        queue.push(1);
        let back = queue.take_back(|event| event == 1);
        queue.push(2);
        let event = taker.join().unwrap();
        assert_eq!(event == 2, back == [1], "took {event}, {back:?} came back");
        queue.check(usize::from(back.is_empty()));
    });
}

#[test]
fn two_threads_take_what_another_does_not_take_back() {
    explore_bounded(|| {
        let queue = Queue::new();
        let takers = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.take())
        });
        queue.push(1);
        let back = queue.take_back(|event| event == 1);
        queue.push(2);
        if !back.is_empty() {
            queue.push(3);
        }
        let mut taken = takers.map(|taker| taker.join().unwrap());
        taken.sort_unstable();
        let expected = if back.is_empty() { [1, 2] } else { [2, 3] };
        assert_eq!(taken, expected);
        queue.check(0);
    });
}

//! Events that wait (`rdma/dropin/src/verbs/waiting.rs`): threads that take events while another
//! takes some back. A thread that waits for a count in vain ends the model in a deadlock.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::explore_bounded;
use crate::waiting::Waiting;

/// Room for all events of a test.
const ROOM: usize = 3;

/// A queue of events of the C interface, and its pipe. A read lowers the count by one, and waits
/// for one unless it must not.
struct Queue {
    waiting: Mutex<Waiting<u32>>,
    count: Mutex<u32>,
    counted: Condvar,
}

impl Queue {
    /// A queue whose pipe has room for `most` counts.
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(Waiting::new(most)),
            count: Mutex::new(0),
            counted: Condvar::new(),
        })
    }

    fn push(&self, event: u32) {
        let mut waiting = self.waiting.lock().unwrap();
        waiting.push(event);
        self.count_next(&mut waiting);
    }

    fn count_next(&self, waiting: &mut Waiting<u32>) {
        if waiting.must_count() {
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
            let mut waiting = self.waiting.lock().unwrap();
            let event = waiting.take();
            self.count_next(&mut waiting);
            if let Some(event) = event {
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
        let queue = Queue::new(ROOM);
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
        let queue = Queue::new(ROOM);
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

#[test]
fn threads_take_more_events_than_the_pipe_has_room_for() {
    explore_bounded(|| {
        let queue = Queue::new(1);
        let takers = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.take())
        });
        queue.push(1);
        queue.push(2);
        queue.push(3);
        let mut taken = takers.map(|taker| taker.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        queue.check(1);
    });
}

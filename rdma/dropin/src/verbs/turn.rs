//! Turns: what a thread puts together, or takes apart, by several calls, while other threads wait.
//!
//! The work stays where it is from turn to turn, so that the next one finds its memory. A call costs a [`Lock`], and waiting a condition variable.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::entry::lock;
use crate::lock::{Held, Lock};

/// The work of the thread whose turn it is.
pub(super) struct Turn<T> {
    place: Lock<Place<T>>,
    /// Held by a thread from when it counts itself until it sleeps.
    falling_asleep: Mutex<()>,
    over: Condvar,
}

struct Place<T> {
    work: T,
    is_taken: bool,
    /// Threads that sleep until the turn is over.
    waiting: usize,
}

impl<T> Turn<T> {
    pub(super) fn new(work: T) -> Self {
        let place = Place {
            work,
            is_taken: false,
            waiting: 0,
        };
        Self {
            place: Lock::new(place),
            falling_asleep: Mutex::new(()),
            over: Condvar::new(),
        }
    }

    /// Waits until the turn of another thread is over, and begins one. Its first step is `verb`.
    #[inline]
    pub(super) fn begin<R>(&self, verb: impl FnOnce(&mut T) -> R) -> R {
        let mut place = self.place.lock();
        if place.is_taken {
            drop(place);
            place = self.wait();
        }
        place.is_taken = true;
        verb(&mut place.work)
    }

    /// The place, when nobody has a turn.
    #[cold]
    fn wait(&self) -> Held<'_, Place<T>> {
        let mut falling_asleep = lock(&self.falling_asleep);
        loop {
            let mut place = self.place.lock();
            if !place.is_taken {
                return place;
            }
            place.waiting += 1;
            drop(place);
            let woken = self.over.wait(falling_asleep);
            falling_asleep = woken.unwrap_or_else(PoisonError::into_inner);
            self.place.lock().waiting -= 1;
        }
    }

    /// Lends the work; `None` if nobody has begun.
    #[inline]
    pub(super) fn with<R>(&self, verb: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut place = self.place.lock();
        place.is_taken.then(|| verb(&mut place.work))
    }

    /// Ends the turn. Its last step is `verb`; `None` if nobody has begun.
    #[inline]
    pub(super) fn end<R>(&self, verb: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut place = self.place.lock();
        // Also if the verb panics.
        if !std::mem::take(&mut place.is_taken) {
            return None;
        }
        let waiting = place.waiting;
        let done = verb(&mut place.work);
        drop(place);
        if waiting > 0 {
            self.wake_one();
        }
        Some(done)
    }

    /// Whoever has counted itself sleeps once the mutex is free.
    #[cold]
    fn wake_one(&self) {
        drop(lock(&self.falling_asleep));
        self.over.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_a_turn() {
        let turn = Turn::new(0);
        turn.begin(|work| *work = 1);
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                turn.begin(|work| *work += 1);
                turn.end(|work| *work)
            });
            while turn.place.lock().waiting == 0 {
                thread::yield_now();
            }
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
        assert_eq!(turn.place.lock().waiting, 0);
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
}

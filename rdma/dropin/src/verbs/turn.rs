//! Turns: work that a thread builds or reads by several calls, while other threads wait.
//!
//! The work stays in place from turn to turn, so that the next one reuses its memory. A call costs
//! a [`Lock`], and waiting a condition variable.
//!
//! The includer's crate provides `sync`, `entry` and `lock` (of this crate, or of the model
//! checker).

use crate::entry::lock;
use crate::lock::{Held, Lock};
use crate::sync::{Condvar, Mutex, PoisonError};

/// The work of the thread that has the turn.
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

    /// Waits until no thread has a turn, and returns the locked place.
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

    /// Lends the work; `None` if no turn has begun.
    #[inline]
    pub(super) fn with<R>(&self, verb: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut place = self.place.lock();
        place.is_taken.then(|| verb(&mut place.work))
    }

    /// Ends the turn. Its last step is `verb`; `None` if no turn has begun.
    #[inline]
    pub(super) fn end<R>(&self, verb: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut place = self.place.lock();
        // Even if the verb panics.
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

    /// Threads that wait for their turn.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.place.lock().waiting
    }

    /// A thread that has counted itself sleeps once the mutex is free.
    #[cold]
    fn wake_one(&self) {
        drop(lock(&self.falling_asleep));
        self.over.notify_one();
    }
}

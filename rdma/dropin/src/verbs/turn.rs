//! Turns: what a thread puts together, or takes apart, by several calls, while other threads wait.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::entry::lock;

/// The work of the thread whose turn it is.
pub(super) struct Turn<T> {
    work: Mutex<Option<T>>,
    over: Condvar,
}

impl<T> Default for Turn<T> {
    fn default() -> Self {
        Self {
            work: Mutex::new(None),
            over: Condvar::new(),
        }
    }
}

impl<T> Turn<T> {
    /// Waits until the turn of another thread is over, and begins one.
    pub(super) fn begin(&self, work: T) {
        let place = lock(&self.work);
        let waited = self.over.wait_while(place, |place| place.is_some());
        *waited.unwrap_or_else(PoisonError::into_inner) = Some(work);
    }

    /// Lends the work; `None` if nobody has begun.
    pub(super) fn with<R>(&self, verb: impl FnOnce(&mut T) -> R) -> Option<R> {
        lock(&self.work).as_mut().map(verb)
    }

    /// Ends the turn. Its last step is `verb`.
    pub(super) fn end<R>(&self, verb: impl FnOnce(T) -> R) -> Option<R> {
        let mut place = lock(&self.work);
        let done = place.take().map(verb);
        drop(place);
        self.over.notify_one();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_a_turn() {
        let turn = Turn::default();
        turn.begin(1);
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                turn.begin(2);
                turn.end(|work| work)
            });
            assert_eq!(turn.with(|work| *work), Some(1));
            assert!(!second.is_finished());
            assert_eq!(turn.end(|work| work), Some(1));
            assert_eq!(second.join().expect("no panic"), Some(2));
        });
        assert_eq!((turn.with(|_| ()), turn.end(|_| ())), (None, None));
    }
}

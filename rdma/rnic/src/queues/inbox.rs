//! Inbox: values from the engine for the application, in order, with a descriptor that is readable
//! while there are some.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xwarp_driver::Signal;

/// Values that the engine puts and the application takes.
pub struct Inbox<T> {
    letters: Mutex<Letters<T>>,
    signal: Arc<Signal>,
}

struct Letters<T> {
    waiting: VecDeque<T>,
    /// Whether values are no longer accepted.
    closed: bool,
}

impl<T> Inbox<T> {
    /// An empty inbox. It takes a file descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            letters: Mutex::new(Letters {
                waiting: VecDeque::new(),
                closed: false,
            }),
            signal: Arc::new(Signal::new()?),
        })
    }

    /// Appends a value. Returns it if the inbox is closed.
    pub(crate) fn put(&self, value: T) -> Result<(), T> {
        let mut letters = self.letters();
        if letters.closed {
            return Err(value);
        }
        letters.waiting.push_back(value);
        // Raised under the lock, so that it is raised exactly while there are values.
        if letters.waiting.len() == 1 {
            self.signal.raise();
        }
        Ok(())
    }

    /// Takes the oldest value. Taking the last one clears the signal.
    pub fn take(&self) -> Option<T> {
        let mut letters = self.letters();
        let value = letters.waiting.pop_front();
        if letters.waiting.is_empty() {
            self.signal.clear();
        }
        value
    }

    /// Number of values in the inbox.
    pub(crate) fn len(&self) -> usize {
        self.letters().waiting.len()
    }

    /// Closes the inbox and takes its values. Later values are returned to their senders.
    pub fn close(&self) -> VecDeque<T> {
        let mut letters = self.letters();
        letters.closed = true;
        std::mem::take(&mut letters.waiting)
    }

    /// Signal that is raised while there is a value to take.
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    fn letters(&self) -> MutexGuard<'_, Letters<T>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_for_a_closed_inbox_is_given_back() {
        let inbox = Inbox::new().unwrap();
        assert_eq!(
            (inbox.put(1), inbox.put(2), inbox.take()),
            (Ok(()), Ok(()), Some(1))
        );
        assert_eq!(inbox.close(), [2], "what is there leaves");
        assert_eq!((inbox.put(3), inbox.take(), inbox.len()), (Err(3), None, 0));
    }
}

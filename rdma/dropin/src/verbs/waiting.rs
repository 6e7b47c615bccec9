//! Waiting events and the count of their descriptor: the protocol of
//! [`EventQueue`](super::event_queue::EventQueue), without descriptor and lock. `tests/models`
//! explores it.
//!
//! A thread reads the descriptor without the queue's lock, as the read may sleep. That read takes
//! one event off the count. Then the thread takes an event with the lock. In between, another
//! thread may take the event back. It finds no count to take off then, and must not wait for one.

use std::collections::VecDeque;

/// Waiting events, and the count of their descriptor.
pub(crate) struct Waiting<T> {
    events: VecDeque<T>,
    /// The largest count that the descriptor can have. Further events are counted as others are
    /// taken.
    most: usize,
    /// The descriptor's count, and the counts that threads have read and not brought to
    /// [`take`](Self::take).
    counted: usize,
}

impl<T> Waiting<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            events: VecDeque::new(),
            most,
            counted: 0,
        }
    }

    /// Adds an event. [`must_count`](Self::must_count) follows.
    pub(crate) fn push(&mut self, event: T) {
        self.events.push_back(event);
    }

    /// Whether the descriptor must count one event more, before the lock is released. It need not
    /// if a thread has read the count of an event that was taken back: that thread takes another
    /// one.
    #[must_use]
    pub(crate) fn must_count(&mut self) -> bool {
        let must_count = self.counted < self.events.len().min(self.most);
        self.counted += usize::from(must_count);
        must_count
    }

    /// The oldest event, for a thread that has read a count of one. `None` if all events were taken
    /// back meanwhile. [`must_count`](Self::must_count) follows.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.counted = self.counted.saturating_sub(1);
        self.events.pop_front()
    }

    /// Takes back the events that `which` chooses, in their order. `uncount` reads a count of one
    /// unless the descriptor's is 0, and does not wait.
    pub(crate) fn take_back(
        &mut self,
        mut which: impl FnMut(&T) -> bool,
        mut uncount: impl FnMut() -> bool,
    ) -> Vec<T> {
        let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
        for event in self.events.drain(..) {
            if which(&event) {
                taken.push(event);
            } else {
                kept.push_back(event);
            }
        }
        self.events = kept;
        while self.counted > self.events.len() && uncount() {
            self.counted -= 1;
        }
        taken
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }
}

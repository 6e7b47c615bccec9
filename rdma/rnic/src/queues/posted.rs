//! Posted work requests that the engine has not taken: its end of a work queue.

use std::collections::VecDeque;

use rtrb::Consumer;
use rtrb::chunks::ReadChunk;

use crate::model::OutOfMemory;

/// See the module. A queue is resized by another ring, as the application posts to one end of it while the engine takes from the other.
pub(crate) struct PostedRequests<T> {
    ring: Consumer<T>,
    /// What was in former rings, older than what is in this one.
    backlog: VecDeque<T>,
}

impl<T> PostedRequests<T> {
    pub(crate) fn new(ring: Consumer<T>) -> Self {
        Self {
            ring,
            backlog: VecDeque::new(),
        }
    }

    /// Work requests that the queue may hold.
    pub(crate) fn depth(&self) -> usize {
        self.ring.buffer().capacity()
    }

    /// Those that are there.
    pub(crate) fn len(&self) -> usize {
        self.backlog.len() + self.ring.slots()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.ring.is_empty()
    }

    /// The oldest, which stays.
    pub(crate) fn peek(&self) -> Option<&T> {
        self.backlog.front().or_else(|| self.ring.peek().ok())
    }

    /// The oldest, at most so many, to be looked at where they are. `None` if some are in former rings.
    #[inline]
    pub(crate) fn oldest(&mut self, most: usize) -> Option<ReadChunk<'_, T>> {
        if !self.backlog.is_empty() {
            return None;
        }
        let there = self.ring.slots().min(most);
        self.ring.read_chunk(there).ok()
    }

    /// Puts one in front of all.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn put_back(&mut self, first: T) {
        self.backlog.push_front(first);
    }

    /// Takes the oldest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.backlog.is_empty() {
            return self.ring.pop().ok();
        }
        let oldest = self.backlog.pop_front();
        if self.backlog.is_empty() {
            // Its memory serves no more.
            self.backlog = VecDeque::new();
        }
        oldest
    }

    /// Makes room for what the present ring has, which [`resize`](Self::resize) needs.
    pub(crate) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        Ok(self.backlog.try_reserve(self.ring.slots())?)
    }

    /// Goes on with another ring, to which nothing is posted before this; what is in the former one comes first.
    pub(crate) fn resize(&mut self, ring: Consumer<T>) {
        let mut former = std::mem::replace(&mut self.ring, ring);
        (self.backlog).extend(std::iter::from_fn(|| former.pop().ok()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtrb::RingBuffer;

    #[test]
    fn rings_follow_each_other_in_order_and_leave_no_memory_behind() {
        let (mut post, ring) = RingBuffer::new(3);
        let mut posted = PostedRequests::new(ring);
        assert_eq!((posted.depth(), posted.len()), (3, 0));
        (0..3).for_each(|i| post.push(i).unwrap());
        for (depth, base) in [(5, 3), (4, 5)] {
            let (next, ring) = RingBuffer::new(depth);
            post = next;
            posted.resize(ring);
            assert_eq!((posted.depth(), posted.is_empty()), (depth, false));
            (base..base + 2).for_each(|i| post.push(i).unwrap());
        }
        for i in 0..7 {
            let oldest = posted.oldest(9).map(|chunk| chunk.len());
            assert_eq!(oldest, (i >= 5).then_some(7 - i), "former rings first");
            assert_eq!((posted.len(), posted.peek()), (7 - i, Some(&i)));
            assert_eq!(posted.pop(), Some(i));
        }
        assert_eq!(posted.peek(), None);
        assert_eq!(posted.pop(), None);
        assert!(posted.is_empty() && posted.backlog.capacity() == 0);
    }
}

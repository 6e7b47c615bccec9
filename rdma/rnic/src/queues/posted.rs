//! Posted work requests that the engine has not taken: the engine's end of a work queue.

use std::collections::VecDeque;

use rtrb::Consumer;
use rtrb::chunks::ReadChunk;

use crate::model::OutOfMemory;

/// The engine's end of a work queue. A resize replaces the ring, as the application may post to one
/// end while the engine takes from the other.
pub(crate) struct PostedRequests<T> {
    ring: Consumer<T>,
    /// Requests from former rings, older than those in the current ring.
    backlog: VecDeque<T>,
}

impl<T> PostedRequests<T> {
    pub(crate) fn new(ring: Consumer<T>) -> Self {
        Self {
            ring,
            backlog: VecDeque::new(),
        }
    }

    /// Depth of the queue in work requests.
    pub(crate) fn depth(&self) -> usize {
        self.ring.buffer().capacity()
    }

    /// Number of posted work requests.
    pub(crate) fn len(&self) -> usize {
        self.backlog.len() + self.ring.slots()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.ring.is_empty()
    }

    /// The oldest request, without taking it.
    pub(crate) fn peek(&self) -> Option<&T> {
        self.backlog.front().or_else(|| self.ring.peek().ok())
    }

    /// Up to `most` of the oldest requests, to be read in place. `None` if some are in former
    /// rings.
    #[inline]
    pub(crate) fn oldest(&mut self, most: usize) -> Option<ReadChunk<'_, T>> {
        if !self.backlog.is_empty() {
            return None;
        }
        let there = self.ring.slots().min(most);
        self.ring.read_chunk(there).ok()
    }

    /// Takes up to `most` of the oldest requests, as long as `take` does: see [`TakenRun`]. `None`
    /// if some are in former rings.
    #[inline]
    pub(crate) fn take_run<R, F>(&mut self, most: usize, take: F) -> Option<TakenRun<'_, T, F>>
    where
        F: FnMut(&T, bool) -> Option<Option<R>>,
    {
        let chunk = Some(self.oldest(most)?);
        Some(TakenRun {
            chunk,
            taken: 0,
            take,
        })
    }

    /// Returns a request to the front.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn put_back(&mut self, first: T) {
        self.backlog.push_front(first);
    }

    /// Takes the oldest request.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.backlog.is_empty() {
            return self.ring.pop().ok();
        }
        let oldest = self.backlog.pop_front();
        if self.backlog.is_empty() {
            // Frees the memory, which is not needed again.
            self.backlog = VecDeque::new();
        }
        oldest
    }

    /// Reserves memory for the contents of the current ring, which [`resize`](Self::resize) needs.
    pub(crate) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        Ok(self.backlog.try_reserve(self.ring.slots())?)
    }

    /// Replaces the ring by another one, which must be empty. The contents of the former ring come
    /// first.
    pub(crate) fn resize(&mut self, ring: Consumer<T>) {
        let mut former = std::mem::replace(&mut self.ring, ring);
        (self.backlog).extend(std::iter::from_fn(|| former.pop().ok()));
    }
}

/// Iterator over the results of the oldest work requests, which are read in place. It ends with the
/// first request that `take` does not take, `None`; a taken request may have no result,
/// `Some(None)`. The second argument of `take` is whether further ones follow.
///
/// All taken requests leave the ring by one store, before the iterator ends: after the last one
/// that may be taken, or after the first `None`. So a caller that publishes the results publishes
/// them when the slots are free.
pub(crate) struct TakenRun<'a, T, F> {
    /// `None` once the requests have left the ring.
    chunk: Option<ReadChunk<'a, T>>,
    taken: usize,
    take: F,
}

impl<T, F> TakenRun<'_, T, F> {
    /// Maximum number of work requests to take.
    #[inline]
    pub(crate) fn most(&self) -> usize {
        self.chunk.as_ref().map_or(0, ReadChunk::len)
    }

    /// Number of taken work requests.
    #[inline]
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Called once per run; not inlined, so that it takes no registers of the loop.
    #[inline(never)]
    fn leave(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            chunk.commit(self.taken);
        }
    }
}

impl<T, R, F: FnMut(&T, bool) -> Option<Option<R>>> Iterator for TakenRun<'_, T, F> {
    type Item = R;

    #[inline]
    fn next(&mut self) -> Option<R> {
        loop {
            let chunk = self.chunk.as_ref()?;
            let (first, second) = chunk.as_slices();
            let there = first.len() + second.len();
            let next = first.get(self.taken);
            let next = next.or_else(|| second.get(self.taken - first.len()));
            let taken = next.and_then(|next| (self.take)(next, self.taken + 1 < there));
            self.taken += usize::from(taken.is_some());
            if taken.is_none() || self.taken == there {
                self.leave();
            }
            if let Some(item) = taken? {
                return Some(item);
            }
        }
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

    #[test]
    fn run_leaves_the_ring_before_it_ends_and_may_wrap() {
        let (mut post, ring) = RingBuffer::new(4);
        let mut posted = PostedRequests::new(ring);
        (0..3).for_each(|i| post.push(i).unwrap());
        assert_eq!((posted.pop(), posted.pop()), (Some(0), Some(1)));
        (3..6).for_each(|i| post.push(i).unwrap()); // 4 and 5 wrap around in the ring
        let take = |&next: &i32, more| (next < 5).then_some((next != 3).then_some((next, more)));
        let mut run = posted.take_run(9, take).unwrap();
        assert_eq!((run.most(), run.next()), (4, Some((2, true))));
        assert_eq!(post.slots(), 0, "it has not ended");
        assert_eq!((run.next(), run.taken()), (Some((4, true)), 3));
        assert_eq!((run.next(), run.next(), run.taken()), (None, None, 3));
        assert_eq!(post.slots(), 3, "what was not taken stays");
        let take = |&next: &i32, more| Some(Some((next, more)));
        let mut run = posted.take_run(1, take).unwrap();
        assert_eq!(run.next(), Some((5, false)));
        assert_eq!(post.slots(), 4, "with the last that it may take");
        assert!(run.next().is_none() && posted.is_empty());
    }
}

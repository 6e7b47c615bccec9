//! Events that wait to be taken, and the descriptor that counts them. A program sleeps in `poll` on
//! it, or in the call that takes an event.
//!
//! The program may set the descriptor to non-blocking mode. So a thread that takes an event reads
//! the descriptor once, and that read blocks or not as the program wants. No other code waits on
//! it: [`Waiting`] keeps the counts consistent.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, Weak};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::read;

use super::waiting::Waiting;
use crate::entry::{Result, lock};
use crate::event_pipe::EventPipe;

/// Pipes of queues that ended while a thread slept on them.
static SLEPT_ON: Mutex<Vec<Weak<EventPipe>>> = Mutex::new(Vec::new());

/// The number of descriptors of those that a thread still sleeps on.
pub(crate) fn slept_on() -> usize {
    let slept_on = lock(&SLEPT_ON);
    let sleeping = slept_on.iter().filter(|it| it.strong_count() > 0);
    sleeping.count() * EventPipe::DESCRIPTORS
}

/// A queue of events of any kind.
pub(crate) struct EventQueue<T> {
    waiting: Mutex<Waiting<T>>,
    /// `None` once the queue has ended. A thread that sleeps on the descriptor holds it until it
    /// wakes.
    descriptor: Mutex<Option<Arc<EventPipe>>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self> {
        let descriptor = Arc::new(EventPipe::new()?);
        Ok(Self {
            waiting: Mutex::new(Waiting::new(EventPipe::MOST)),
            descriptor: Mutex::new(Some(descriptor)),
        })
    }

    /// The descriptor that programs poll; -1 once the queue has ended.
    pub(crate) fn descriptor(&self) -> RawFd {
        let descriptor = self.opened();
        descriptor.map_or(-1, |descriptor| descriptor.as_fd().as_raw_fd())
    }

    /// The descriptor that a thread sleeps on to take an event; EBADF once the queue has ended.
    pub(crate) fn opened(&self) -> Result<Arc<EventPipe>> {
        lock(&self.descriptor).clone().ok_or(Errno::EBADF)
    }

    /// Whether the program has set the descriptor to non-blocking mode.
    pub(crate) fn is_non_blocking(&self) -> bool {
        let flags = |descriptor: Arc<EventPipe>| fcntl(&descriptor, FcntlArg::F_GETFL).ok();
        let flags = self.opened().ok().and_then(flags);
        flags.is_some_and(|flags| flags & OFlag::O_NONBLOCK.bits() != 0)
    }

    /// Ends the queue of a destroyed object: the descriptor is closed, unless a thread sleeps on
    /// it.
    pub(crate) fn end(&self) {
        let Some(descriptor) = lock(&self.descriptor).take() else {
            return;
        };
        if Arc::strong_count(&descriptor) > 1 {
            let mut slept_on = lock(&SLEPT_ON);
            slept_on.retain(|it| it.strong_count() > 0);
            slept_on.push(Arc::downgrade(&descriptor));
        }
    }

    /// Adds an event and wakes a thread that waits for one. No thread waits if the queue has ended.
    pub(crate) fn push(&self, event: T) {
        self.push_if(event, |_event| true);
    }

    /// Adds an event if its object `lives`. An object that is destroyed takes back its events, and
    /// none is added after that.
    pub(crate) fn push_if(&self, event: T, lives: impl FnOnce(&T) -> bool) {
        let Ok(descriptor) = self.opened() else {
            return;
        };
        let mut waiting = lock(&self.waiting);
        if !lives(&event) {
            // Dropping the event may wait for the engine.
            drop(waiting);
            return;
        }
        waiting.push(event);
        count_next(&mut waiting, &descriptor);
    }

    /// Takes the oldest event, and records that by `taken` before the event can be taken back.
    /// Waits for an event, or returns EAGAIN if the program has set the descriptor to non-blocking
    /// mode.
    pub(crate) fn take<R>(&self, taken: impl Fn(T) -> R) -> Result<R> {
        let descriptor = self.opened()?;
        loop {
            read(descriptor.as_fd(), &mut [0])?;
            if let Some(event) = self.take_counted(&taken) {
                return Ok(event);
            }
        }
    }

    /// Takes the oldest event, as [`take`](Self::take) does. The caller has read the count of one.
    /// `None` if the event was taken back meanwhile.
    pub(crate) fn take_counted<R>(&self, taken: impl Fn(T) -> R) -> Option<R> {
        let descriptor = self.opened();
        let mut waiting = lock(&self.waiting);
        let event = waiting.take();
        if let Ok(descriptor) = descriptor {
            count_next(&mut waiting, &descriptor);
        }
        event.map(taken)
    }

    /// Takes back waiting events, such as those of a destroyed object.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        drop(self.take_back(|event| !keep(event)));
    }

    /// Takes back waiting events, in their order, to be added elsewhere.
    pub(crate) fn take_back(&self, which: impl FnMut(&T) -> bool) -> Vec<T> {
        let descriptor = self.opened().ok();
        let uncount = || descriptor.as_deref().is_some_and(EventPipe::uncount);
        lock(&self.waiting).take_back(which, uncount)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.waiting).len() == 0
    }
}

/// Has the descriptor count the next event, if it must. The lock of the events is held.
fn count_next<T>(waiting: &mut Waiting<T>, descriptor: &EventPipe) {
    if waiting.must_count()
        && let Err(errno) = descriptor.count()
    {
        log::error!("an event was not reported: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::{hint, thread};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use xwarp_test_kit::eventually;

    /// What ends a thread that takes.
    const LAST: u32 = u32::MAX;

    fn same(event: u32) -> u32 {
        event
    }

    fn non_blocking() -> EventQueue<u32> {
        let queue = EventQueue::new().expect("a descriptor");
        let descriptor = queue.opened().expect("it is open");
        fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a flag");
        queue
    }

    #[test]
    fn events_come_in_order_and_then_none() {
        let queue = non_blocking();
        queue.push(1);
        queue.push(2);
        assert_eq!([queue.take(same), queue.take(same)], [Ok(1), Ok(2)]);
        assert_eq!(queue.take(same), Err(Errno::EAGAIN));
    }

    #[test]
    fn more_events_than_the_pipe_has_room_for_come_in_order() {
        const EVENTS: u32 = 100_000;
        let queue = non_blocking();
        for event in 0..EVENTS {
            queue.push(event);
        }
        queue.retain(|event| event % 2 == 0);
        for event in (0..EVENTS).step_by(2) {
            assert_eq!(queue.take(same), Ok(event));
        }
        assert_eq!(queue.take(same), Err(Errno::EAGAIN));
    }

    #[test]
    fn event_that_was_taken_back_does_not_come() {
        let queue = non_blocking();
        queue.push(1);
        queue.push(2);
        queue.retain(|event| *event != 1);
        assert_eq!(queue.take(same), Ok(2));
        assert_eq!(queue.take(same), Err(Errno::EAGAIN));
    }

    #[test]
    fn event_of_a_dead_object_is_not_added() {
        let queue = non_blocking();
        queue.push_if(1, |_| false);
        queue.push_if(2, |event| *event == 2);
        assert_eq!(queue.take(same), Ok(2));
        assert_eq!(queue.take(same), Err(Errno::EAGAIN));
    }

    #[test]
    fn descriptor_is_readable_exactly_while_events_wait() {
        let queue = non_blocking();
        let descriptor = queue.opened().expect("it is open");
        let is_readable = || {
            let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::ZERO) == Ok(1)
        };
        queue.push(1);
        // A thread has read the count, and the event is taken back before it comes for it.
        read(&descriptor, &mut [0]).expect("a count");
        assert_eq!(queue.take_back(|_| true), [1]);
        // The thread takes this event, so no other thread is woken for it.
        queue.push(2);
        assert!(!is_readable());
        assert_eq!(queue.take_counted(same), Some(2));
        queue.push(3);
        assert!(is_readable());
        assert_eq!(queue.take(same), Ok(3));
        assert!(!is_readable());
    }

    /// Taking back used to wait for a count that a taker had read: within 20,000 of these rounds.
    #[test]
    fn taking_back_never_waits_for_a_thread_that_takes() {
        const ROUNDS: u32 = 100_000;
        let queue = Arc::new(EventQueue::new().expect("a descriptor"));
        let (done, is_done) = mpsc::channel();
        for _ in 0..2 {
            let queue = Arc::clone(&queue);
            thread::spawn(move || while queue.take(same) != Ok(LAST) {});
        }
        let takes_back = Arc::clone(&queue);
        thread::spawn(move || {
            for round in 0..ROUNDS {
                takes_back.push(round);
                (0..round % 64).for_each(|_| hint::spin_loop());
                takes_back.retain(|_| false);
            }
            takes_back.push(LAST);
            takes_back.push(LAST);
            done.send(()).expect("the test waits");
        });
        eventually("nothing waits", || is_done.try_recv().is_ok());
    }

    #[test]
    fn queue_that_has_ended_has_no_descriptor() {
        let queue = non_blocking();
        assert!(queue.is_non_blocking());
        queue.end();
        assert_eq!(queue.descriptor(), -1);
        queue.push(1);
        assert!(queue.is_empty());
        assert_eq!(queue.take(same), Err(Errno::EBADF));
    }
}

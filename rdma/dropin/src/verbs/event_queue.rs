//! Events that wait to be taken, and the descriptor that counts them. A program sleeps in `poll` on it, or in the call that takes one.
//!
//! The descriptor is the program's to set to non-blocking mode, so it is read exactly once for each event.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, Weak};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::read;

use crate::entry::{Result, lock};

/// Descriptors of queues that ended while a thread slept on them.
static SLEPT_ON: Mutex<Vec<Weak<EventFd>>> = Mutex::new(Vec::new());

/// How many of those a thread sleeps on still.
pub(crate) fn slept_on() -> usize {
    let slept_on = lock(&SLEPT_ON);
    let sleeping = slept_on.iter().filter(|it| it.strong_count() > 0);
    sleeping.count()
}

/// A queue of events of any kind.
pub(crate) struct EventQueue<T> {
    waiting: Mutex<VecDeque<T>>,
    /// Nothing once the queue has ended. A thread that sleeps on it has it until it wakes.
    descriptor: Mutex<Option<Arc<EventFd>>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_SEMAPHORE;
        let descriptor = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        Ok(Self {
            waiting: Mutex::new(VecDeque::new()),
            descriptor: Mutex::new(Some(descriptor)),
        })
    }

    /// What programs poll; -1 once the queue has ended.
    pub(crate) fn descriptor(&self) -> RawFd {
        let descriptor = self.opened();
        descriptor.map_or(-1, |descriptor| descriptor.as_fd().as_raw_fd())
    }

    /// What a thread sleeps on that takes an event; EBADF once the queue has ended.
    pub(crate) fn opened(&self) -> Result<Arc<EventFd>> {
        lock(&self.descriptor).clone().ok_or(Errno::EBADF)
    }

    /// Whether the program has set the descriptor to non-blocking mode.
    pub(crate) fn is_non_blocking(&self) -> bool {
        let flags = |descriptor: Arc<EventFd>| fcntl(&descriptor, FcntlArg::F_GETFL).ok();
        let flags = self.opened().ok().and_then(flags);
        flags.is_some_and(|flags| flags & OFlag::O_NONBLOCK.bits() != 0)
    }

    /// Ends the queue, whose object is destroyed: the descriptor is closed, unless a thread sleeps on it.
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

    /// Adds an event and wakes who waits for one. Nobody waits if the queue has ended.
    pub(crate) fn push(&self, event: T) {
        let Ok(descriptor) = self.opened() else {
            return;
        };
        lock(&self.waiting).push_back(event);
        // A count of 2^64 - 2 is never reached, so this does not block.
        if let Err(errno) = descriptor.write(1) {
            log::error!("an event was not told: {errno}");
        }
    }

    /// Takes the oldest event, and notes that by `taken` before anybody can take it back. Waits for one, unless the program has set the
    /// descriptor to non-blocking mode: then EAGAIN.
    pub(crate) fn take<R>(&self, taken: impl Fn(T) -> R) -> Result<R> {
        let descriptor = self.opened()?;
        loop {
            let mut count = [0; 8];
            read(descriptor.as_fd(), &mut count)?;
            if let Some(event) = self.take_counted(&taken) {
                return Ok(event);
            }
        }
    }

    /// Takes the oldest event, as [`take`](Self::take) does. The caller has read the count of one. `None` if the event was taken back since.
    pub(crate) fn take_counted<R>(&self, taken: impl Fn(T) -> R) -> Option<R> {
        let mut waiting = lock(&self.waiting);
        waiting.pop_front().map(taken)
    }

    /// Takes back events that wait, such as of an object that is no more.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        drop(self.take_back(|event| !keep(event)));
    }

    /// Takes back events that wait, in their order, to be told elsewhere.
    pub(crate) fn take_back(&self, mut which: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut waiting = lock(&self.waiting);
        let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
        for event in waiting.drain(..) {
            if which(&event) {
                taken.push(event);
                self.uncount();
            } else {
                kept.push_back(event);
            }
        }
        *waiting = kept;
        taken
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// Counts one event less. Whoever has just counted it down to take it finds no event, and goes on waiting.
    fn uncount(&self) {
        let Ok(descriptor) = self.opened() else {
            return;
        };
        let mut descriptors = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
        if poll(&mut descriptors, PollTimeout::ZERO) == Ok(1) {
            let taken = read(descriptor.as_fd(), &mut [0; 8]);
            log::trace!("an event was taken back: {taken:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn event_that_was_taken_back_does_not_come() {
        let queue = non_blocking();
        queue.push(1);
        queue.push(2);
        queue.retain(|event| *event != 1);
        assert_eq!(queue.take(same), Ok(2));
        assert_eq!(queue.take(same), Err(Errno::EAGAIN));
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

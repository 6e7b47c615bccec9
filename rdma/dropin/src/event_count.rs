//! The descriptors of a queue of events: an eventfd that counts events, which this library reads,
//! and an epoll instance around it, which programs poll.
//!
//! An eventfd is writable nearly always, so a program that polls it for more than input would never
//! sleep. The kernel's channels are never writable, and neither is an epoll instance.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Mutex;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::entry::{Result, lock};

/// The count of a queue's events.
pub(crate) struct EventCount {
    /// What programs poll. It is closed first: an eventfd that is closed leaves it.
    polled: Epoll,
    count: EventFd,
    /// Whether reads of the count return EAGAIN instead of waiting.
    is_non_blocking: Mutex<bool>,
}

impl EventCount {
    /// A count of 0.
    pub(crate) fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_SEMAPHORE;
        let count = EventFd::from_value_and_flags(0, flags)?;
        let polled = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        polled.add(&count, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self {
            polled,
            count,
            is_non_blocking: Mutex::new(false),
        })
    }

    /// The number of the descriptor that programs poll, and whose mode they set.
    pub(crate) fn polled(&self) -> RawFd {
        self.polled_fd().as_raw_fd()
    }

    /// That descriptor.
    pub(crate) fn polled_fd(&self) -> BorrowedFd<'_> {
        self.polled.0.as_fd()
    }

    /// Whether the program has set the descriptor to non-blocking mode.
    pub(crate) fn is_non_blocking(&self) -> bool {
        let flags = fcntl(&self.polled.0, FcntlArg::F_GETFL);
        flags.is_ok_and(|flags| flags & OFlag::O_NONBLOCK.bits() != 0)
    }

    /// Makes reads of the count wait or not, as the program has set the descriptor that it polls.
    pub(crate) fn adopt_mode(&self) -> Result<()> {
        let mode = self.is_non_blocking();
        let mut adopted = lock(&self.is_non_blocking);
        if *adopted != mode {
            let flags = if mode {
                OFlag::O_NONBLOCK
            } else {
                OFlag::empty()
            };
            fcntl(&self.count, FcntlArg::F_SETFL(flags))?;
            *adopted = mode;
        }
        Ok(())
    }

    /// Counts an event. A count of 2^64 - 2 is never reached, so this does not block.
    pub(crate) fn add(&self) -> Result<()> {
        self.count.write(1)?;
        Ok(())
    }

    /// Decrements the count, without waiting. Returns false if the count is 0.
    pub(crate) fn uncount(&self) -> bool {
        let mut count = [0_u8; 8];
        let place = libc::iovec {
            iov_base: count.as_mut_ptr().cast(),
            iov_len: count.len(),
        };
        let fd = self.count.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open, and the place has the length that it says.
        let read = unsafe { libc::preadv2(fd, &raw const place, 1, -1, libc::RWF_NOWAIT) };
        read == 8
    }
}

/// The descriptor that a thread reads to take an event.
impl AsFd for EventCount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.count.as_fd()
    }
}

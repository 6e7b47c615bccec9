//! Event pipe: the descriptor by which a program waits for events.
//!
//! Programs watch it for both directions, and one that is always writable would wake infinistore
//! 600,000 times a second. An eventfd is always writable, and so is a socket. The read end of a
//! pipe never is.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{pipe2, read, write};

use crate::entry::Result;

/// A pipe with a byte for each counted event. Every capacity of a pipe has room for
/// [`MOST`](Self::MOST).
pub(crate) struct EventPipe {
    /// The read end, which the program may set to non-blocking mode.
    program: OwnedFd,
    /// Both ends, in non-blocking mode. If the program closes its own end, a write raises no
    /// SIGPIPE, as this one still reads.
    own: OwnedFd,
}

impl EventPipe {
    /// Descriptors of a pipe.
    pub(crate) const DESCRIPTORS: usize = 2;
    /// Bytes that the pipe may hold.
    pub(crate) const MOST: usize = 1024;

    pub(crate) fn new() -> Result<Self> {
        let (program, _writer) = pipe2(OFlag::O_CLOEXEC)?;
        let both = format!("/proc/self/fd/{}", program.as_raw_fd());
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let own = open(both.as_str(), flags, Mode::empty())?;
        Ok(Self { program, own })
    }

    /// Counts an event.
    pub(crate) fn count(&self) -> Result<()> {
        write(&self.own, &[1])?;
        Ok(())
    }

    /// Takes a count back, without waiting. Returns false if there is none.
    pub(crate) fn uncount(&self) -> bool {
        read(&self.own, &mut [0]) == Ok(1)
    }
}

impl AsFd for EventPipe {
    /// The program's end. A read of one byte takes a count, and waits for one unless the program
    /// has set it to non-blocking mode.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    /// What `poll` says of the program's end.
    fn polled(pipe: &EventPipe) -> PollFlags {
        let mut polled = [PollFd::new(
            pipe.as_fd(),
            PollFlags::POLLIN | PollFlags::POLLOUT,
        )];
        poll(&mut polled, PollTimeout::ZERO).expect("a descriptor");
        polled[0].revents().expect("known flags")
    }

    #[test]
    fn program_can_read_while_there_are_counts_and_never_write() {
        let pipe = EventPipe::new().expect("descriptors");
        assert_eq!(polled(&pipe), PollFlags::empty());
        for _ in 0..EventPipe::MOST {
            pipe.count().expect("room");
        }
        assert_eq!(polled(&pipe), PollFlags::POLLIN);
        assert_eq!(read(&pipe, &mut [0]), Ok(1));
        for _ in 1..EventPipe::MOST {
            assert!(pipe.uncount());
        }
        assert!(!pipe.uncount(), "it does not wait");
        assert_eq!(polled(&pipe), PollFlags::empty());
    }

    #[test]
    fn program_that_closes_its_end_gets_no_signal() {
        let EventPipe { program, own } = EventPipe::new().expect("descriptors");
        drop(program);
        assert_eq!(write(&own, &[1]), Ok(1));
    }
}

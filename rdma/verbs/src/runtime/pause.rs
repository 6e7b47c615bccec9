//! Pause of a caller that waits: the descriptor that ends its sleep, and what it has done.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use xwarp_driver::Signal;

/// What a caller that waits has done between two looks at its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    /// It has not slept.
    Not,
    /// It has slept.
    Slept,
    /// It has slept, and one of the other descriptors is readable.
    ForOther,
}

impl Paused {
    pub(crate) fn after_sleep(is_other_readable: bool) -> Self {
        if is_other_readable {
            Self::ForOther
        } else {
            Self::Slept
        }
    }
}

/// What else ends the sleep of a caller that waits.
pub(crate) trait Bell {
    /// Before the sleep.
    fn arm(&self) -> io::Result<()>;

    /// After it.
    fn disarm(&self) -> io::Result<()>;

    /// The descriptor that it makes readable.
    fn fd(&self) -> BorrowedFd<'_>;
}

impl Bell for BorrowedFd<'_> {
    /// It is readable as long as there is something to do.
    fn arm(&self) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&self) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl Bell for Signal {
    /// Taking the announced value clears the signal.
    fn arm(&self) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&self) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

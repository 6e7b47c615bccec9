//! Pause of a waiting caller: the descriptor that ends its sleep, and the result.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use xwarp_driver::{Signal, Sleeper};

pub(crate) use super::sharing::Bed;

/// Action of a waiting caller between two evaluations of its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    /// It did not sleep.
    Not,
    /// It slept.
    Slept,
    /// It slept, and one of the other descriptors is readable.
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

/// A source other than the engine that ends the sleep of a waiting caller.
pub(crate) trait Bell {
    /// Called before the sleep, which is on the word only if there is a [`sleeper`](Self::sleeper).
    fn arm(&self, bed: Bed) -> io::Result<()>;

    /// Called after the sleep.
    fn disarm(&self, bed: Bed) -> io::Result<()>;

    /// The descriptor that becomes readable.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The sleeper on whose word threads can sleep.
    fn sleeper(&self) -> Option<&Sleeper> {
        None
    }
}

impl Bell for BorrowedFd<'_> {
    /// The descriptor is readable as long as there is work.
    fn arm(&self, _: Bed) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&self, _: Bed) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl Bell for Signal {
    /// Taking the announced value clears the signal.
    fn arm(&self, _: Bed) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&self, _: Bed) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

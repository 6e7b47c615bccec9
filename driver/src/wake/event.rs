//! Event: the descriptor that wakes a sleeper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, recv, send};

/// Bytes that one call takes off a socket.
const RINGS: usize = 64;

/// A descriptor that is readable from [`raise`](Self::raise) until [`drain`](Self::drain).
pub(super) enum Event {
    /// Of this process alone.
    Own(EventFd),
    /// Other processes raise it, too. The other end of the socket pair is theirs.
    Shared(UnixStream, UnixStream),
}

impl Event {
    pub(super) fn own() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self::Own(EventFd::from_flags(flags)?))
    }

    /// An event, and the descriptor by which another process [raises](raise) it.
    pub(super) fn shared() -> io::Result<(Self, OwnedFd)> {
        let (own, bell) = UnixStream::pair()?;
        let given = bell.try_clone()?.into();
        Ok((Self::Shared(own, bell), given))
    }

    pub(super) fn raise(&self) -> io::Result<()> {
        match self {
            Self::Own(event) => match event.write(1) {
                // A full counter, EAGAIN, is readable, too.
                Ok(_) | Err(Errno::EAGAIN) => Ok(()),
                Err(errno) => Err(errno.into()),
            },
            Self::Shared(_, bell) => raise(bell.as_fd()),
        }
    }

    pub(super) fn drain(&self) -> io::Result<()> {
        let drained = match self {
            Self::Own(event) => event.read().map(drop),
            Self::Shared(own, _) => drain(own.as_fd()),
        };
        match drained {
            Ok(()) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(event) => event.as_fd(),
            Self::Shared(own, _) => own.as_fd(),
        }
    }
}

/// Raises the event of another process, by the socket that the process has given. Never blocks,
/// whatever the process does with its descriptors: an eventfd could be made to block its writers.
///
/// # Errors
///
/// [`io::Error`]: the descriptor is no socket, or the process is gone.
pub(super) fn raise(socket: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    match send(socket.as_raw_fd(), &[1], flags) {
        // A full socket, EAGAIN, is readable, too.
        Ok(_) | Err(Errno::EAGAIN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn drain(socket: BorrowedFd<'_>) -> nix::Result<()> {
    let mut rings = [0; RINGS];
    while recv(socket.as_raw_fd(), &mut rings, MsgFlags::MSG_DONTWAIT)? == RINGS {}
    Ok(())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::wake::is_any_readable;

    #[test]
    fn event_is_readable_from_raise_until_drain() {
        let (shared, bell) = Event::shared().unwrap();
        for event in [Event::own().unwrap(), shared] {
            let is_readable = || is_any_readable(&[event.as_fd()]).unwrap();
            assert!(!is_readable());
            for _ in 0..200 {
                event.raise().unwrap();
            }
            assert!(is_readable());
            event.drain().unwrap();
            assert!(!is_readable());
            event.drain().unwrap();
        }
        assert!(raise(bell.as_fd()).is_err(), "its owner is gone");
    }

    #[test]
    fn another_process_raises_by_its_end_and_never_blocks() {
        let (event, bell) = Event::shared().unwrap();
        for _ in 0..100_000 {
            raise(bell.as_fd()).unwrap();
        }
        assert!(is_any_readable(&[event.as_fd()]).unwrap());
        event.drain().unwrap();
        assert!(!is_any_readable(&[event.as_fd()]).unwrap());
        assert!(raise(Event::own().unwrap().as_fd()).is_err(), "no socket");
    }
}

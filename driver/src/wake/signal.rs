//! Signal: an eventfd that announces a value to take, for poll, epoll and sleepers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// A descriptor that is readable from [`raise`](Self::raise) until [`clear`](Self::clear), whether
/// or not a thread waits for it.
///
/// It costs a system call each time, so it is for rare events. Frequent ones use a
/// [`Doorbell`](crate::Doorbell).
pub struct Signal(EventFd);

impl Signal {
    /// A signal that is not raised.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(EventFd::from_flags(flags)?))
    }

    /// Makes the descriptor readable. Call it after publishing the value.
    pub fn raise(&self) {
        // A full counter, EAGAIN, is readable, too.
        if let Err(errno) = self.0.write(1)
            && errno != Errno::EAGAIN
        {
            log::error!("a signal could not be raised: {errno}");
        }
    }

    /// Makes the descriptor unreadable. Call it before looking for values.
    pub fn clear(&self) {
        // EAGAIN: it was not raised.
        if let Err(errno) = self.0.read()
            && errno != Errno::EAGAIN
        {
            log::error!("a signal could not be cleared: {errno}");
        }
    }
}

impl AsFd for Signal {
    /// The descriptor. Do not read from it: [`clear`](Self::clear) does.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of these descriptors is readable, one of `others` is, a signal handler has run
/// or `timeout` has expired (`None`: no limit). Returns true if one of `others` is readable.
///
/// # Errors
///
/// [`io::Error`]: the kernel refuses the sleep.
pub fn sleep_on<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    others: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let all = fds.iter().chain(others);
    let mut watched: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match poll(&mut watched, poll_timeout(timeout)) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        // An event that poll has beyond those that nix knows is one, too.
        Ok(_) => Ok(watched[N..].iter().any(|fd| fd.any().unwrap_or(true))),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether one of these descriptors is readable. Never waits.
///
/// # Errors
///
/// [`io::Error`]: the kernel refuses.
pub fn is_any_readable(fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
    sleep_on([], fds, Some(Duration::ZERO))
}

/// Whole milliseconds, rounded up, so that a short wait is not a busy one.
fn poll_timeout(timeout: Option<Duration>) -> PollTimeout {
    let Some(timeout) = timeout else {
        return PollTimeout::NONE;
    };
    let millis = timeout.as_micros().div_ceil(1000);
    i32::try_from(millis)
        .ok()
        .and_then(|millis| PollTimeout::try_from(millis).ok())
        .unwrap_or(PollTimeout::MAX)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::time::Instant;

    fn is_readable(signal: &Signal) -> bool {
        let mut watched = [PollFd::new(signal.as_fd(), PollFlags::POLLIN)];
        poll(&mut watched, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn signal_is_readable_from_raise_until_clear() {
        let signal = Signal::new().unwrap();
        assert!(!is_readable(&signal));
        signal.raise();
        signal.raise();
        assert!(is_readable(&signal) && is_readable(&signal));
        signal.clear();
        assert!(!is_readable(&signal));
        signal.clear();
        assert!(!is_readable(&signal));
    }

    #[test]
    fn sleep_ends_with_either_signal_or_the_timeout() {
        const TIME: Duration = Duration::from_millis(20);
        let signals = [Signal::new().unwrap(), Signal::new().unwrap()];
        let fds = || [signals[0].as_fd(), signals[1].as_fd()];
        let begin = Instant::now();
        assert!(!sleep_on(fds(), &[], Some(TIME)).unwrap());
        assert!(begin.elapsed() >= TIME);
        for signal in &signals {
            signal.raise();
            assert!(!sleep_on(fds(), &[], None).unwrap());
            assert!(sleep_on([], &fds(), None).unwrap());
            assert!(is_any_readable(&fds()).unwrap());
            signal.clear();
            assert!(!is_any_readable(&fds()).unwrap());
        }
    }
}

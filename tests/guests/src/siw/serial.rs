//! Serial line into a guest.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// This machine's end of a serial line of a guest's.
///
/// A socket, not a pseudo-terminal: that one can forget to say that it has room again.
pub(crate) struct SerialLine {
    to: UnixStream,
    from: Receiver<String>,
}

/// The guest's end, which its process inherits by number.
pub(crate) struct GuestEnd(OwnedFd);

impl GuestEnd {
    /// Leaves it to every process that is started from now on, until the value goes.
    pub(crate) fn bequeath(&self) -> RawFd {
        fcntl(&self.0, FcntlArg::F_SETFD(FdFlag::empty())).expect("our own descriptor");
        self.0.as_raw_fd()
    }
}

impl SerialLine {
    /// Both ends.
    pub(crate) fn new() -> (Self, GuestEnd) {
        let (ours, guests) = UnixStream::pair().expect("two sockets");
        let from = hear_all(ours.try_clone().expect("a descriptor"));
        let line = Self { to: ours, from };
        (line, GuestEnd(guests.into()))
    }

    /// Says one line.
    pub(crate) fn say(&mut self, text: &str) {
        assert!(!text.contains('\n'), "one line: {text:?}");
        // To a guest that is gone nothing can be said; the answer will be missing.
        let _ = self.to.write_all(format!("{text}\n").as_bytes());
    }

    /// The next line. An error if the time is over or the guest is gone.
    pub(crate) fn hear(&mut self, within: Duration) -> Result<String, RecvTimeoutError> {
        self.from.recv_timeout(within)
    }
}

/// Reads lines as they come, until the other end is closed.
fn hear_all(from: UnixStream) -> Receiver<String> {
    let (heard, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from
            .read_until(b'\n', &mut line)
            .is_ok_and(|bytes| bytes > 0)
        {
            let text = String::from_utf8_lossy(&line);
            // The receiver may be gone.
            let _ = heard.send(text.trim_end_matches('\n').to_owned());
            line.clear();
        }
    });
    lines
}

//! A serial line into a guest.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

/// This machine's end of a pseudo-terminal whose other end is a serial line of the guest's.
pub(crate) struct Line {
    device: String,
    to: File,
    from: Receiver<String>,
    /// Keeps the line up until the guest has it open.
    guest_end: Option<File>,
}

impl Line {
    pub(crate) fn new() -> Self {
        // What a child inherited would be open for as long as it lives.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).expect("our own pseudo-terminal");
        unlockpt(&master).expect("our own pseudo-terminal");
        let device = ptsname_r(&master).expect("our own pseudo-terminal");
        let guest_end = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(&device);
        let to = File::from(OwnedFd::from(master));
        let from = hear_all(to.try_clone().expect("a descriptor"));
        Self {
            device,
            to,
            from,
            guest_end: Some(guest_end.expect("our own pseudo-terminal")),
        }
    }

    /// The file that the guest is to open.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// The guest has it open: from now on the line is down when the guest is.
    pub(crate) fn hand_over(&mut self) {
        self.guest_end = None;
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
fn hear_all(from: File) -> Receiver<String> {
    let (heard, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from
            .read_until(b'\n', &mut line)
            .is_ok_and(|octets| octets > 0)
        {
            let text = String::from_utf8_lossy(&line);
            // Whoever listened may have gone.
            let _ = heard.send(text.trim_end_matches('\n').to_owned());
            line.clear();
        }
    });
    lines
}

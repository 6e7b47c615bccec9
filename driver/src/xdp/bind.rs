//! Binding an AF_XDP socket to a queue.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use nix::libc;
use xwarp_bpf::Buffers;

use crate::xsk::{Queue, Socket};

/// The kernel frees a queue some milliseconds after its last user closed it (3 to 22 ms were seen).
const REBIND_TIMEOUT: Duration = Duration::from_secs(1);
const REBIND_PAUSE: Duration = Duration::from_millis(5);

/// Why a queue could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenQueueError {
    /// Somebody else has it.
    #[error(
        "queue {queue} of {interface} is in use by another AF_XDP socket; end the process that has it, or use another interface"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
    },
    /// No privilege.
    #[error("AF_XDP on {interface} needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// Anything else that the kernel said.
    #[error("the kernel would not open queue {queue} of {interface} for AF_XDP: {reason}")]
    Refused {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
        /// What it said.
        reason: String,
    },
}

/// The queue that is wanted, and how.
pub(crate) struct Target<'a> {
    pub(crate) interface: &'a str,
    /// The interface's index.
    pub(crate) index: u32,
    pub(crate) queue: u32,
    /// Over how many chunks a frame may be spread. Linux has more than one since 6.6.
    pub(crate) frames: Buffers,
}

impl Target<'_> {
    fn queue(&self) -> Queue {
        let several = match self.frames {
            Buffers::One => 0,
            Buffers::Many => libc::XDP_USE_SG,
        };
        Queue {
            interface: self.index,
            number: self.queue,
            flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | several,
        }
    }

    pub(super) fn refused(&self, error: &dyn Error) -> OpenQueueError {
        OpenQueueError::Refused {
            interface: self.interface.to_owned(),
            queue: self.queue,
            reason: crate::error_chain(error),
        }
    }

    fn error_of(&self, error: &io::Error) -> OpenQueueError {
        match error.raw_os_error() {
            Some(libc::EBUSY) => OpenQueueError::Busy {
                interface: self.interface.to_owned(),
                queue: self.queue,
            },
            Some(libc::EPERM | libc::EACCES) => OpenQueueError::NotPermitted {
                interface: self.interface.to_owned(),
            },
            _ => self.refused(error),
        }
    }
}

/// Binds, and waits for a queue that its former owner closed a moment ago.
pub(super) fn bind(target: &Target<'_>, socket: &Socket) -> Result<(), OpenQueueError> {
    let queue = target.queue();
    let deadline = Instant::now() + REBIND_TIMEOUT;
    loop {
        let Err(error) = socket.bind(&queue) else {
            return Ok(());
        };
        let busy = error.raw_os_error() == Some(libc::EBUSY);
        if !busy || Instant::now() >= deadline {
            return Err(target.error_of(&error));
        }
        std::thread::sleep(REBIND_PAUSE);
    }
}

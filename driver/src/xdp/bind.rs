//! Binding an AF_XDP socket to a queue.
//!
//! Zero copy is requested only with a native program. With a generic one igb reports zero copy,
//! receives by copying and refuses each transmission. If the driver answers `EOPNOTSUPP` or
//! `EINVAL` the queue is bound in copy mode, unless zero copy was required.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use nix::libc;
use xwarp_bpf::Buffers;

use super::xsk::{Bind, Queue, RingSet};

/// Longest wait for a queue whose last user has just closed it. The kernel frees the queue in a
/// work item that takes the RTNL lock. That takes 3 to 22 ms on an idle machine, and more than a
/// second if other processes set up and remove interfaces all the time.
const REBIND_TIMEOUT: Duration = Duration::from_secs(5);
const REBIND_PAUSE: Duration = Duration::from_millis(5);

/// Why a queue could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenQueueError {
    /// Another socket uses the queue.
    #[error(
        "queue {queue} of {interface} is in use by another AF_XDP socket; end the process that has it, or use another interface"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
    },
    /// The process lacks privileges.
    #[error("AF_XDP on {interface} needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// Zero copy is not possible, which was required.
    #[error(
        "{interface} has no zero copy ({reason}): ask for it in native mode and at an MTU of one chunk (3500), or do without"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
        /// Why zero copy is not possible.
        reason: String,
    },
    /// The kernel refused for another reason.
    #[error("the kernel would not open queue {queue} of {interface} for AF_XDP: {reason}")]
    Refused {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
        /// Error from the kernel.
        reason: String,
    },
}

/// Whether frames of `AF_XDP` are in the driver's own buffers, or are copied once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZeroCopy {
    /// If the driver supports it, in native mode.
    #[default]
    Try,
    /// Required: otherwise opening the interface fails.
    Demand,
    /// Frames are copied.
    Never,
}

/// The queue that is wanted, and how.
pub(crate) struct Target<'a> {
    pub(crate) interface: &'a str,
    /// The interface's index.
    pub(crate) index: u32,
    pub(crate) queue: u32,
    /// Whether frames are to be copied.
    pub(crate) zero_copy: ZeroCopy,
    /// Over how many chunks a frame may be spread. Linux has more than one since 6.6.
    pub(crate) frames: Buffers,
    /// Whether ICMP messages about the interface's paths come to this queue.
    pub(crate) receives_icmp: bool,
}

impl Target<'_> {
    fn queue(&self, copying: u16) -> Queue {
        let several = match self.frames {
            Buffers::One => 0,
            Buffers::Many => libc::XDP_USE_SG,
        };
        Queue {
            interface: self.index,
            number: self.queue,
            flags: copying | libc::XDP_USE_NEED_WAKEUP | several,
        }
    }

    pub(super) fn refused(&self, error: &dyn Error) -> OpenQueueError {
        OpenQueueError::Refused {
            interface: self.interface.to_owned(),
            queue: self.queue,
            reason: super::error_chain(error),
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

/// Binds the socket. Where zero copy is only tried, a driver that has none copies.
pub(super) fn bind<B: Bind>(
    target: &Target<'_>,
    unbound: B,
) -> Result<(B::Socket, RingSet), OpenQueueError> {
    if target.zero_copy == ZeroCopy::Never {
        return bind_copying(target, unbound);
    }
    let (unbound, error) = match bind_with(target, unbound, libc::XDP_ZEROCOPY) {
        Ok(bound) => return Ok(bound),
        Err(refused) => refused,
    };
    if !is_without_zero_copy(&error) {
        return Err(target.error_of(&error));
    }
    if target.zero_copy == ZeroCopy::Demand {
        return Err(OpenQueueError::NoZeroCopy {
            interface: target.interface.to_owned(),
            reason: error.to_string(),
        });
    }
    log::debug!("{}: no zero copy: {error}", target.interface);
    bind_copying(target, unbound)
}

fn bind_copying<B: Bind>(
    target: &Target<'_>,
    unbound: B,
) -> Result<(B::Socket, RingSet), OpenQueueError> {
    let bound = bind_with(target, unbound, libc::XDP_COPY);
    bound.map_err(|(_, error)| target.error_of(&error))
}

/// Errors of drivers without zero copy, for the device or for frames of several chunks.
fn is_without_zero_copy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

/// Binds, and waits for a queue that its former owner closed a moment ago.
fn bind_with<B: Bind>(
    target: &Target<'_>,
    mut unbound: B,
    copying: u16,
) -> Result<(B::Socket, RingSet), (B, io::Error)> {
    let queue = target.queue(copying);
    let deadline = Instant::now() + REBIND_TIMEOUT;
    loop {
        let (refused, error) = match unbound.bind(&queue) {
            Ok(bound) => return Ok(bound),
            Err(refused) => refused,
        };
        let busy = error.raw_os_error() == Some(libc::EBUSY);
        if !busy || Instant::now() >= deadline {
            return Err((refused, error));
        }
        unbound = refused;
        std::thread::sleep(REBIND_PAUSE);
    }
}

//! Binding an AF_XDP socket to a queue.
#![allow(unsafe_code)]

use std::error::Error;
use std::ffi::CString;
use std::time::{Duration, Instant};

use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig};
use xsk_rs::{CompQueue, FillQueue, RxQueue, Socket, TxQueue, Umem};
use xwarp_bpf::Buffers;

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

/// All rings of a socket; fill and completion ring only for the first socket of a queue.
pub(super) type Bound = (TxQueue, RxQueue, Option<(FillQueue, CompQueue)>);

/// The queue that is wanted, and how.
pub(crate) struct Target<'a> {
    pub(crate) interface: &'a str,
    pub(crate) queue: u32,
    /// Entries of each ring.
    pub(crate) ring: u32,
    /// Over how many chunks a frame may be spread. Linux has more than one since 6.6.
    pub(crate) frames: Buffers,
}

impl Target<'_> {
    fn config(&self) -> Result<SocketConfig, OpenQueueError> {
        let ring = QueueSize::new(self.ring).map_err(|error| self.refused(&error))?;
        let several = match self.frames {
            Buffers::One => BindFlags::empty(),
            Buffers::Many => BindFlags::XDP_USE_SG,
        };
        Ok(SocketConfig::builder()
            .rx_queue_size(ring)
            .tx_queue_size(ring)
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP | several)
            .build())
    }

    pub(super) fn busy(&self) -> OpenQueueError {
        OpenQueueError::Busy {
            interface: self.interface.to_owned(),
            queue: self.queue,
        }
    }

    pub(super) fn refused(&self, error: &dyn Error) -> OpenQueueError {
        OpenQueueError::Refused {
            interface: self.interface.to_owned(),
            queue: self.queue,
            reason: crate::error_chain(error),
        }
    }

    fn error_of(&self, error: &(dyn Error + 'static)) -> OpenQueueError {
        match crate::errno_of(error) {
            Some(nix::libc::EBUSY) => self.busy(),
            Some(nix::libc::EPERM | nix::libc::EACCES) => OpenQueueError::NotPermitted {
                interface: self.interface.to_owned(),
            },
            _ => self.refused(error),
        }
    }
}

/// Binds, and waits for a queue that its former owner closed a moment ago.
pub(super) fn bind(target: &Target<'_>, umem: &Umem) -> Result<Bound, OpenQueueError> {
    let name = CString::new(target.interface).map_err(|error| target.refused(&error))?;
    let (name, config) = (Interface::new(name), target.config()?);
    let deadline = Instant::now() + REBIND_TIMEOUT;
    loop {
        // SAFETY: the program load is inhibited, and this UMEM has no other socket on the pair.
        let error = match unsafe { Socket::new(config, umem, &name, target.queue) } {
            Ok(rings) => return Ok(rings),
            Err(error) => error,
        };
        let busy = crate::errno_of(&error) == Some(nix::libc::EBUSY);
        if !busy || Instant::now() >= deadline {
            return Err(target.error_of(&error));
        }
        std::thread::sleep(REBIND_PAUSE);
    }
}

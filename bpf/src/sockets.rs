//! `AF_XDP` sockets that the frames of steered flows go to, one per receive queue.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType};

use crate::layout::{Layout, MAX_QUEUES, MapError};

pub(crate) const LAYOUT: Layout = Layout {
    name: "xwarp_xsks",
    map_type: MapType::Xskmap,
    key_size: 4,
    value_size: 4,
    max_entries: Sockets::MAX_QUEUES,
};

/// The `AF_XDP` socket of each receive queue. The kernel empties a slot when its socket closes.
#[derive(Debug)]
pub struct Sockets {
    map: MapHandle,
}

impl Sockets {
    /// How many receive queues the program can serve.
    pub const MAX_QUEUES: u32 = MAX_QUEUES;

    pub(crate) fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// Hands the frames of our flows that arrive on `queue` to `socket`, in place of any other.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), MapError> {
        if queue >= Self::MAX_QUEUES {
            return Err(MapError::NoSuchQueue { queue });
        }
        let fd = socket.as_raw_fd().to_ne_bytes();
        let set = self.map.update(&queue.to_ne_bytes(), &fd, MapFlags::ANY);
        set.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => MapError::NotAfXdp { queue },
            _ => LAYOUT.refused(error),
        })
    }

    /// Lets the frames that arrive on `queue` pass to the kernel again.
    pub fn unset(&self, queue: u32) -> Result<(), MapError> {
        if queue >= Self::MAX_QUEUES {
            return Err(MapError::NoSuchQueue { queue });
        }
        let unset = self.map.delete(&queue.to_ne_bytes());
        unset.map_err(|error| LAYOUT.refused(error))
    }
}

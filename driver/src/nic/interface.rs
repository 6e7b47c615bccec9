//! Suitability of an interface for an RNIC, and the frames that it needs.

use xwarp_bpf::Buffers;

use super::error::NicError;
use super::queues::LINK_HEADER_MAX;
use crate::net::{Interface, LinkLayer};
use crate::xdp::FRAME_CAPACITY;

/// The largest MTU whose frames fit into a chunk, in bytes.
const MTU_OF_ONE_CHUNK: usize = FRAME_CAPACITY - LINK_HEADER_MAX;

impl Interface {
    /// Buffers that the driver may need for one frame of the interface.
    pub fn frames(&self) -> Buffers {
        if self.ip_mtu() <= MTU_OF_ONE_CHUNK {
            Buffers::One
        } else {
            Buffers::Many
        }
    }

    /// Refuses an interface that no RNIC can be opened on: its packets are no Ethernet frames.
    ///
    /// # Errors
    ///
    /// [`NicError::Loopback`], [`NicError::NoEthernet`]: it is the loopback interface, or a tunnel.
    pub fn check_frames(&self) -> Result<(), NicError> {
        match self.layer {
            LinkLayer::Ethernet => Ok(()),
            LinkLayer::Loopback => Err(NicError::Loopback(self.name.clone())),
            LinkLayer::Other => Err(NicError::NoEthernet(self.name.clone())),
        }
    }
}

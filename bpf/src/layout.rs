//! Layout of a map as steer.bpf.c declares it, and the errors of its access.

use std::net::SocketAddr;

use libbpf_rs::MapType;

/// Flows that the program can distinguish.
pub(crate) const MAX_FLOWS: u32 = 65536;
/// Receive queues that the program can steer.
pub(crate) const MAX_QUEUES: u32 = 64;

/// Why a map could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// There is no room for one more flow.
    #[error("{flow} cannot be steered: all {} flows are in use", MAX_FLOWS)]
    Full {
        /// The flow that found no room.
        flow: SocketAddr,
    },
    /// The program has no slot for so high a queue.
    #[error(
        "queue {queue} cannot be steered: the program knows {} queues",
        MAX_QUEUES
    )]
    NoSuchQueue {
        /// The queue asked for.
        queue: u32,
    },
    /// The descriptor is no `AF_XDP` socket.
    #[error("only an AF_XDP socket can receive the frames of queue {queue}")]
    NotAfXdp {
        /// The queue asked for.
        queue: u32,
    },
    /// The kernel refused for another reason.
    #[error("the kernel refused access to the map {map}: {error:#}")]
    Kernel {
        /// The map's name.
        map: &'static str,
        /// What the kernel said.
        error: libbpf_rs::Error,
    },
}

/// A map as steer.bpf.c declares it.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) map_type: MapType,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
}

impl Layout {
    /// The kernel refused to read or change this map.
    pub(crate) fn refused(&self, error: libbpf_rs::Error) -> MapError {
        MapError::Kernel {
            map: self.name,
            error,
        }
    }
}

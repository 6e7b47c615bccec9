//! Errors of the operations of a stack.

use std::net::SocketAddr;

/// Why a [`Stack`](crate::Stack) does not listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// A listener has this address and port.
    #[error("{0} has a listener already")]
    AddressInUse(SocketAddr),
    /// The address is not that of one host, or the port is 0.
    #[error("{0} is not the address of one host with a port")]
    BadAddress(SocketAddr),
}

/// Why a [`Stack`](crate::Stack) does not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// A connection has these addresses and ports, perhaps in TIME-WAIT.
    #[error("there is a connection from {local} to {remote} already")]
    FlowExists {
        /// Our address and port.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// Frames to the own host need memory that is not there.
    #[error(
        "no memory is left for frames to the own host; raise the limit of the process's memory"
    )]
    NoMemory,
    /// The table is full.
    #[error("all {0} connections are in use")]
    TooManyConnections(usize),
    /// The address is not that of one host, or the port is 0.
    #[error("{0} is not the address of one host with a port")]
    BadAddress(SocketAddr),
    /// One address is IPv4, the other IPv6.
    #[error("{local} and {remote} are of different IP versions")]
    MixedFamilies {
        /// Our address and port.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
}

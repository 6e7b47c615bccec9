//! Errors of the operations of a stack.

use std::net::SocketAddr;

/// Error of [`Stack::listen`](crate::Stack::listen).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// There is a listener on this address and port.
    #[error("{0} has a listener already")]
    AddressInUse(SocketAddr),
    /// The address is not a unicast address, or the port is 0.
    #[error("{0} is not the address of one host with a port")]
    BadAddress(SocketAddr),
}

/// Error of [`Stack::connect`](crate::Stack::connect).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// There is a connection with these addresses and ports, perhaps in TIME-WAIT.
    #[error("there is a connection from {local} to {remote} already")]
    FlowExists {
        /// Local address and port.
        local: SocketAddr,
        /// Address and port of the peer.
        remote: SocketAddr,
    },
    /// There is no memory for frames to the local host.
    #[error(
        "no memory is left for frames to the own host; raise the limit of the process's memory"
    )]
    NoMemory,
    /// The connection table is full.
    #[error("all {0} connections are in use")]
    TooManyConnections(usize),
    /// The address is not a unicast address, or the port is 0.
    #[error("{0} is not the address of one host with a port")]
    BadAddress(SocketAddr),
    /// The address is a loopback address, and frames along the path would leave the host (RFC 1122
    /// §3.2.1.3).
    #[error("{0} is a loopback address, but the path leads out of the host")]
    Loopback(SocketAddr),
    /// One address is IPv4, the other IPv6.
    #[error("{local} and {remote} are of different IP versions")]
    MixedFamilies {
        /// Local address and port.
        local: SocketAddr,
        /// Address and port of the peer.
        remote: SocketAddr,
    },
}

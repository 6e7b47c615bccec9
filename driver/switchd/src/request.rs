//! Requests of a client to the switch, and the replies.

use std::net::{IpAddr, SocketAddr};

use crate::state::SwitchState;
use crate::station::MacAddress;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which addresses are there?
    Addresses,
    /// From which address do packets to this one leave?
    Source(IpAddr),
    /// Which next hop leads to this port?
    Hop(SocketAddr),
    /// The client wants a TCP port of an address. Port 0 stands for any free one.
    OpenPort(SocketAddr),
    /// The client has closed a port.
    ClosePort(SocketAddr),
    /// Which clients are there, and what became of all frames?
    Clients,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// All addresses.
    Addresses(Vec<IpAddr>),
    /// The source address.
    Source(IpAddr),
    /// The next hop.
    Hop(MacAddress),
    /// The port is the client's.
    Port(SocketAddr),
    /// The port is no longer the client's.
    Closed,
    /// The switch and its clients.
    Clients(SwitchState),
}

/// Why the switch refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The address is none of the switch's.
    #[error("{0} is not an address of this switch")]
    NotHere(IpAddr),
    /// A client has the port.
    #[error(
        "TCP port {} of {} is in use by another program; choose another port or end it",
        .0.port(),
        .0.ip()
    )]
    InUse(SocketAddr),
    /// No port is free.
    #[error("no ephemeral TCP port of {0} is free")]
    NoneFree(IpAddr),
    /// The port is below 1024.
    #[error("TCP port {0} needs root; choose a port from 1024 up")]
    NotPermitted(u16),
    /// The port is not this client's.
    #[error("TCP port {} of {} was not open", .0.port(), .0.ip())]
    NotOpen(SocketAddr),
    /// The user has as many as a user may have.
    #[error("a user may have {0} ports, and this one has")]
    TooManyPorts(usize),
    /// The user has as many clients as a user may have.
    #[error("a user may have {0} clients, and this one has")]
    TooManyClients(usize),
    /// The switch has as many clients as it can have.
    #[error("the switch has {0} clients, and can have no more")]
    Full(usize),
    /// There is no such client.
    #[error("the client is detached")]
    Detached,
    /// Client and switch speak no common version of the protocol.
    #[error(
        "the program speaks versions {lowest} to {highest} of the switch's protocol, and the switch \
         speaks version {speaks}; upgrade the {}",
        if .highest < .speaks { "program" } else { "switch" }
    )]
    Version {
        /// The lowest version that the client speaks.
        lowest: u16,
        /// The highest version that the client speaks.
        highest: u16,
        /// The version that the switch speaks.
        speaks: u16,
    },
    /// The client has made as many requests in a second as a client may.
    #[error("a client may make {0} requests a second, and this one made more; try again later")]
    TooFast(u32),
}

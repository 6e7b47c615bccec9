//! Errors of connections and streams.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xwarp_iwarp::mpa::{EnhancedData, PrivateDataTooLong, StartupError};

use super::RnicUnavailable;
use crate::model::host::HostError;
use crate::model::qp_state::QpState;

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The host has no route to the peer, or the route leads over another interface.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The queue pair has a connection already, or has failed.
    #[error("the queue pair is in state {0:?}; only an Idle one can be connected")]
    InvalidState(QpState),
    /// Private data has a limit (RFC 5044 §7.1.1): 512 bytes, 4 of which revision 2 needs (RFC 6581
    /// §6).
    #[error("private data of {len} bytes is too long: at most {limit} fit into this MPA Request")]
    PrivateDataTooLong {
        /// Given length in bytes.
        len: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// No program listens there: the peer's TCP has answered with a reset.
    #[error("connection refused: no program listens at {0}")]
    Refused(SocketAddr),
    /// The peer did not answer in time.
    #[error("{peer} did not complete the connection within {seconds:.1} s ({stage})", seconds = timeout.as_secs_f64())]
    TimedOut {
        /// The peer that did not answer.
        peer: SocketAddr,
        /// The timeout that has expired.
        timeout: Duration,
        /// The step that was waited for.
        stage: &'static str,
    },
    /// The peer ended the connection during start-up.
    #[error(
        "{0} closed the connection during MPA start-up: it does not speak iWARP there, or refused it"
    )]
    PeerClosed(SocketAddr),
    /// The peer's answer is not a valid MPA Reply.
    #[error("{peer} does not speak iWARP")]
    NotIwarp {
        /// The peer that answered.
        peer: SocketAddr,
        /// Error in the peer's answer.
        source: StartupError,
    },
    /// The peer's application rejected the connection.
    #[error("{peer} rejected the connection")]
    Rejected {
        /// The peer that rejected it.
        peer: SocketAddr,
        /// Private data of the rejection.
        private_data: Vec<u8>,
        /// The peer's depths, if it uses revision 2: its ORD may be the one that it would have
        /// needed (RFC 6581 §9.1).
        enhanced: Option<EnhancedData>,
    },
    /// The peer accepted on terms that cannot be met, and received a Terminate (RFC 6581 §8).
    #[error("{peer} accepted the connection, but its terms cannot be met")]
    Unacceptable {
        /// The peer that accepted.
        peer: SocketAddr,
        /// The term that cannot be met.
        source: StartupError,
    },
    /// The host has lost the local address of the connection.
    #[error("{0}, the address of this host that the connection was made from, was removed")]
    AddressLost(IpAddr),
    /// The RNIC has failed.
    #[error("the RNIC has failed: {0}")]
    Failed(String),
    /// A resource is exhausted, such as TCP connections or file descriptors.
    #[error("no further connection is possible: {0}")]
    Resources(String),
}

/// Why a stream could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The connection has ended, or belongs to a queue pair.
    #[error("the stream has ended, or belongs to a queue pair")]
    Gone,
    /// The peer has closed its side, and all that it sent was read.
    #[error("the peer has closed the stream")]
    PeerClosed,
    /// The timeout has expired.
    #[error("the stream was not ready in time")]
    TimedOut,
    /// A resource of the host is exhausted, or the kernel refuses the sleep.
    #[error("no wait is possible: {0}")]
    System(std::io::ErrorKind),
}

/// Why a port could not be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The host refuses the address or the port.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The address is none of the interface's.
    #[error("{address} is not an address of {interface}; it has {}", list(has))]
    NotOurs {
        /// The requested address.
        address: IpAddr,
        /// The interface.
        interface: String,
        /// Its addresses.
        has: Vec<IpAddr>,
    },
    /// The RNIC has failed.
    #[error("the RNIC has failed: {0}")]
    Failed(String),
    /// This RNIC listens there already.
    #[error("this RNIC listens on {0} already")]
    Taken(SocketAddr),
    /// A resource of the host is exhausted.
    #[error("the listener could not be set up")]
    System(#[from] std::io::Error),
}

/// Why a connection request could not be accepted or rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The peer has ended the connection in the meantime.
    #[error("the peer has ended the connection meanwhile")]
    PeerGone,
    /// The queue pair has a connection already, or has failed.
    #[error("the queue pair is in state {0:?}; only an Idle one can accept")]
    InvalidState(QpState),
    /// The queue pair belongs to another RNIC.
    #[error("the queue pair belongs to another RNIC than the listener")]
    OtherRnic,
    /// Private data has a limit (RFC 5044 §7.1.1): 512 bytes, 4 of which revision 2 needs (RFC 6581
    /// §6).
    #[error("private data of {len} bytes is too long: at most {limit} fit into this MPA Reply")]
    PrivateDataTooLong {
        /// Given length in bytes.
        len: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
}

impl From<PrivateDataTooLong> for AcceptError {
    fn from(PrivateDataTooLong { len, limit }: PrivateDataTooLong) -> Self {
        Self::PrivateDataTooLong { len, limit }
    }
}

fn list(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

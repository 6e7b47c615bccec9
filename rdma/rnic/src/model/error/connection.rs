//! Errors of connections and streams.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xwarp_iwarp::mpa::{EnhancedData, PrivateDataTooLong, StartupError};

use super::RnicUnavailable;
use crate::model::host::HostError;
use crate::model::qp_state::QpState;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The host does not know the way, or the way leads elsewhere.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The queue pair has a connection already, or has failed.
    #[error("the queue pair is in state {0:?}; only an Idle one can be connected")]
    InvalidState(QpState),
    /// Private data has a limit (RFC 5044 §7.1.1): 512 bytes, 4 of which revision 2 needs (RFC 6581
    /// §6).
    #[error("private data of {len} bytes is too long: at most {limit} fit into this MPA Request")]
    PrivateDataTooLong {
        /// Bytes that were given.
        len: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// No program listens there: the peer's TCP has answered by a reset.
    #[error("connection refused: no program listens at {0}")]
    Refused(SocketAddr),
    /// The peer did not answer in time.
    #[error("{peer} did not complete the connection within {seconds:.1} s ({stage})", seconds = timeout.as_secs_f64())]
    TimedOut {
        /// The peer that did not answer.
        peer: SocketAddr,
        /// The time that is over.
        timeout: Duration,
        /// What was waited for.
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
        /// What is wrong with its answer.
        source: StartupError,
    },
    /// The peer's application said no.
    #[error("{peer} rejected the connection")]
    Rejected {
        /// Whom.
        peer: SocketAddr,
        /// What it said along with it.
        private_data: Vec<u8>,
        /// Its depths, if it speaks revision 2: its ORD may be the one that it would have needed
        /// (RFC 6581 §9.1).
        enhanced: Option<EnhancedData>,
    },
    /// The peer accepted on terms that cannot be met, and got a Terminate (RFC 6581 §8).
    #[error("{peer} accepted the connection, but its terms cannot be met")]
    Unacceptable {
        /// Whom.
        peer: SocketAddr,
        /// Which term.
        source: StartupError,
    },
    /// The host has lost the address that the connection was to come from.
    #[error("{0}, the address of this host that the connection was made from, was removed")]
    AddressLost(IpAddr),
    /// The RNIC has failed.
    #[error("the RNIC has failed: {0}")]
    Failed(String),
    /// Connections are used up.
    #[error("no further connection is possible: {0}")]
    Resources(String),
}

/// Why a stream could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The connection has ended, or a queue pair has it.
    #[error("the stream has ended, or belongs to a queue pair")]
    Gone,
    /// The peer has closed its side, and all that it sent has been read.
    #[error("the peer has closed the stream")]
    PeerClosed,
    /// It took longer than it may.
    #[error("the stream was not ready in time")]
    TimedOut,
    /// A resource of the host.
    #[error("no wait is possible: {0}")]
    System(std::io::ErrorKind),
}

/// Why a port could not be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The address or the port.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An address of another interface.
    #[error("{address} is not an address of {interface}; it has {}", list(has))]
    NotOurs {
        /// What was asked for.
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
    /// A resource of the host.
    #[error("the listener could not be set up")]
    System(#[from] std::io::Error),
}

/// Why a connection request could not be accepted or rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// No RNIC, or a call from its handler.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The peer has gone meanwhile.
    #[error("the peer has ended the connection meanwhile")]
    PeerGone,
    /// The queue pair has a connection already, or has failed.
    #[error("the queue pair is in state {0:?}; only an Idle one can accept")]
    InvalidState(QpState),
    /// The queue pair is one of another RNIC.
    #[error("the queue pair belongs to another RNIC than the listener")]
    OtherRnic,
    /// Private data has a limit (RFC 5044 §7.1.1): 512 bytes, 4 of which revision 2 needs (RFC 6581
    /// §6).
    #[error("private data of {len} bytes is too long: at most {limit} fit into this MPA Reply")]
    PrivateDataTooLong {
        /// Bytes that were given.
        len: usize,
        /// Bytes that fit.
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

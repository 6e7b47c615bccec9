//! Connections, as the connection manager has them of a backend: ports, requests of peers, attempts
//! to connect, and their ends.

use std::net::SocketAddr;
use std::sync::Arc;

use nix::errno::Errno;

use super::peer::PeerRequest;

/// How many Reads may be outstanding: the peer's, which are answered at once (IRD), and ours (ORD).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadDepths {
    pub(crate) ird: u16,
    pub(crate) ord: u16,
}

/// A peer that wants to connect.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// What answers it.
    pub(crate) peer: Arc<PeerRequest>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) private_data: Vec<u8>,
    /// As this side would have them: the peer's ORD is our IRD. `None` if the peer does not say.
    pub(crate) depths: Option<ReadDepths>,
}

/// Why a connection was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The peer, or its host, has refused.
    Rejected { errno: Errno, private_data: Vec<u8> },
    /// No answer has come.
    Unreachable(Errno),
    /// It has failed at this side, or the peer does not speak iWARP.
    Failed(Errno),
}

/// Event of a port or of a queue pair's connection.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionEvent {
    /// A peer wants to connect to the port.
    Request(Request),
    /// The connection is made.
    Connected {
        /// Address and port of this end.
        local: SocketAddr,
        private_data: Vec<u8>,
        depths: ReadDepths,
    },
    /// It was not made.
    NotConnected(Failure),
    /// It has ended, and work is flushed.
    Disconnected,
}

/// Called for each event, without a lock. It may call verbs.
pub(crate) type EventCallback = Arc<dyn Fn(ConnectionEvent) + Send + Sync>;

/// What an attempt to connect is made with.
#[derive(Clone, Debug)]
pub(crate) struct ConnectRequest {
    /// Address and port of this end, as far as the program names them. An unspecified address and
    /// port 0 stand for any.
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) depths: ReadDepths,
    pub(crate) private_data: Vec<u8>,
}

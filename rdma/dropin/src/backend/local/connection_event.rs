//! Events and parameters of connections, between a backend and the connection manager: ports,
//! connection requests, attempts to connect, and ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::peer::PeerRequest;

/// How many Reads may be outstanding: the peer's, which this side answers at once (IRD), and this
/// side's (ORD).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadDepths {
    pub(crate) ird: u16,
    pub(crate) ord: u16,
}

/// What this side wants of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) depths: ReadDepths,
    /// The peer's messages that find no receive buffer wait for one, instead of ending the
    /// connection.
    pub(crate) await_receives: bool,
}

/// A connection request of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Answers the request.
    pub(crate) peer: Arc<PeerRequest>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) private_data: Vec<u8>,
    /// The peer's depths from this side's point of view: its ORD is this side's IRD. `None` if the
    /// peer does not state any.
    pub(crate) depths: Option<ReadDepths>,
}

/// Why a connection was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The peer or its host has refused it.
    Rejected { errno: Errno, private_data: Vec<u8> },
    /// The attempt has timed out.
    Unreachable(Errno),
    /// The attempt has failed at this side, or the peer does not speak iWARP.
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
    /// The connection was not made.
    NotConnected(Failure),
    /// The connection has ended, and work is flushed.
    Disconnected,
}

/// Called for each event, without a lock. It may call verbs.
pub(crate) type EventCallback = Arc<dyn Fn(ConnectionEvent) + Send + Sync>;

/// Parameters of an attempt to connect.
#[derive(Clone, Debug)]
pub(crate) struct ConnectRequest {
    /// Local address and port, as far as the program names them. An unspecified address and port 0
    /// stand for any.
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) terms: Terms,
    pub(crate) private_data: Vec<u8>,
    /// For how long the attempt is repeated where no peer listens.
    pub(crate) patience: Duration,
}

//! Events that a stack reports to its user.

use std::net::SocketAddr;

use crate::handle_map::Handle;

/// A connection of one stack. An id whose connection is gone is harmless: it has no bytes, no room and no address, and never
/// names another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub(crate) Handle);

/// A listener of one stack; stale ones are harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) Handle);

/// Something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer's connection to a listener is established.
    Incoming {
        /// Whom it was for.
        listener: ListenerId,
        /// The connection.
        conn: ConnId,
        /// The peer.
        remote: SocketAddr,
    },
    /// A peer's SYN has come to a listener, and awaits the metrics of the route to the peer: see
    /// [`Stack::set_metrics`](crate::Stack::set_metrics). Comes only where
    /// [they are awaited](crate::Stack::await_metrics).
    RouteWanted(ConnId),
    /// A connection of ours is established.
    Connected(ConnId),
    /// An answer to our SYN has come to another stack of the interface, and was refused, as
    /// [`Stack::refuse_stray_answer`](crate::Stack::refuse_stray_answer) wants it. The connection waits to be
    /// [begun anew](crate::Stack::open_anew).
    Stray(ConnId),
    /// There are bytes that were not there before.
    Readable(ConnId),
    /// What [`ConnMut::writable`](crate::ConnMut::writable) refused has become possible.
    Writable(ConnId),
    /// The peer has not answered several times in a row. Its next hop may be another one by now: see
    /// [`Stack::set_next_hop`](crate::Stack::set_next_hop).
    Doubtful(ConnId),
    /// The peer has sent its FIN; everything before it can still be read.
    PeerClosed(ConnId),
    /// The connection has ended. This is its last event; bytes not read until it is polled are gone with the id.
    Closed {
        /// The connection.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
}

impl Event {
    /// Whose event it is.
    pub const fn conn(&self) -> ConnId {
        match *self {
            Self::Incoming { conn, .. }
            | Self::Closed { conn, .. }
            | Self::RouteWanted(conn)
            | Self::Connected(conn)
            | Self::Stray(conn)
            | Self::Readable(conn)
            | Self::Writable(conn)
            | Self::Doubtful(conn)
            | Self::PeerClosed(conn) => conn,
        }
    }
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Both sides have sent a FIN and had it acknowledged.
    Graceful,
    /// The peer answered our SYN with a RST.
    Refused,
    /// The peer sent a RST.
    Reset,
    /// The peer did not answer within the time that [`StackConfig`](crate::StackConfig) gives it.
    TimedOut,
    /// The host has lost the connection's local address ([`Stack::withdraw`](crate::Stack::withdraw)).
    AddressLost,
    /// We ended it, by [`Stack::abort`](crate::Stack::abort) or by closing it before it was established.
    Aborted,
}

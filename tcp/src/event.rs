//! Events that a stack reports to its user.

use std::net::SocketAddr;

use crate::handle_map::Handle;

/// Identifier of a connection of one stack. The identifier of a connection that is gone is
/// harmless: it never names another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub(crate) Handle);

/// Identifier of a listener of one stack. A stale one is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) Handle);

/// Event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer has established a connection to a listener.
    Incoming {
        /// The listener.
        listener: ListenerId,
        /// The connection.
        conn: ConnId,
        /// Address and port of the peer.
        remote: SocketAddr,
    },
    /// A SYN has arrived at a listener, and its answer waits for the metrics of the route to the
    /// peer: see [`Stack::set_metrics`](crate::Stack::set_metrics). Occurs only after
    /// [`Stack::await_metrics`](crate::Stack::await_metrics).
    RouteWanted(ConnId),
    /// A connection that this side opened is established.
    Connected(ConnId),
    /// The answer to our SYN arrived at another stack of the interface, and was refused by
    /// [`Stack::refuse_stray_answer`](crate::Stack::refuse_stray_answer). The connection waits to
    /// be [opened again](crate::Stack::open_anew).
    Stray(ConnId),
    /// New bytes can be read.
    Readable(ConnId),
    /// Room is available that [`ConnMut::writable`](crate::ConnMut::writable) refused before.
    Writable(ConnId),
    /// The peer has not answered several times in a row. Its next hop may have changed: see
    /// [`Stack::set_next_hop`](crate::Stack::set_next_hop).
    Doubtful(ConnId),
    /// The peer has sent its FIN. All bytes before it can still be read.
    PeerClosed(ConnId),
    /// The connection has ended. This is its last event. Bytes that are unread when it is polled
    /// are lost.
    Closed {
        /// The connection.
        conn: ConnId,
        /// The reason.
        reason: CloseReason,
        /// Whether the peer has not acknowledged all bytes.
        lost: bool,
    },
}

impl Event {
    /// The connection of the event.
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
    /// Both sides have sent a FIN that the other side has acknowledged.
    Graceful,
    /// The peer answered our SYN with a RST.
    Refused,
    /// The peer sent a RST.
    Reset,
    /// The peer did not answer within the time that [`StackConfig`](crate::StackConfig) sets.
    TimedOut,
    /// The host has lost the connection's local address
    /// ([`Stack::withdraw`](crate::Stack::withdraw)).
    AddressLost,
    /// This side ended the connection, by [`Stack::abort`](crate::Stack::abort) or by closing it
    /// before it was established.
    Aborted,
}

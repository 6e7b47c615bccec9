//! Questions to the host: whoever turns the engine asks them, and gives the answers to the engine.

use std::net::SocketAddr;

use xwarp_tcp::ConnId;

use crate::model::ListenKey;

/// A port that a listener wants.
#[derive(Clone, Copy, Debug)]
pub struct WantedPort {
    pub(super) key: ListenKey,
    pub(super) local: SocketAddr,
}

impl WantedPort {
    /// Address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// What the engine wants to know of its host. Whoever turns the engine asks.
#[derive(Clone, Copy, Debug)]
pub enum HostQuestion {
    /// A port.
    Port(WantedPort),
    /// A next hop.
    Path(DoubtfulPath),
}

/// The way of a connection whose next hop may be another one by now.
#[derive(Clone, Copy, Debug)]
pub struct DoubtfulPath {
    pub(super) conn: ConnId,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) silent: bool,
}

impl DoubtfulPath {
    /// From where it leads.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// To where it leads.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Whether the peer's silence puts it in doubt. Otherwise routes or neighbours have changed.
    pub fn is_silent(&self) -> bool {
        self.silent
    }
}

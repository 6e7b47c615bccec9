//! Addresses, next hops and ports that an RNIC has from its host.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::net::{InterfaceError, InterfaceMonitor, NeighbourError, PortError, RouteError};
use xwarp_driver::{StateBoard, SteeringError};
use xwarp_tcp::RouteMetrics;

/// The host, as far as an RNIC asks it. The kernel is the host of a real one; a test has one of
/// fixed answers.
pub trait Host: Send + Sync {
    /// The interface's name, for messages.
    fn name(&self) -> &str;

    /// The host's addresses on the interface, as they are now.
    ///
    /// # Errors
    ///
    /// [`HostError::Interface`]: the interface is gone, or the kernel could not be asked.
    fn addresses(&self) -> Result<Vec<IpAddr>, HostError>;

    /// The local address that packets to `remote` have as their source. To an address of the
    /// interface's own it is that address.
    ///
    /// # Errors
    ///
    /// - [`HostError::Route`], [`HostError::OtherInterface`]: no way leads there, or one over
    ///   another interface.
    /// - [`HostError::Interface`]: the interface is gone, or the kernel could not be asked.
    /// - [`HostError::Unknown`]: a host of fixed answers has none.
    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError>;

    /// Which Ethernet address leads from `local` to `remote`, and the metrics of the route there.
    /// Does not wait for the network: what is not known is searched for up to `timeout`. Where
    /// several next hops lead there, the ports may decide.
    ///
    /// # Errors
    ///
    /// - [`HostError::Route`], [`HostError::OtherInterface`]: no way leads there, or one over
    ///   another interface.
    /// - [`HostError::Neighbour`]: the next hop cannot be asked for, or was in vain already.
    /// - [`HostError::Unknown`]: a host of fixed answers has none.
    fn next_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Way, HostError>;

    /// Which way leads from `local` to `remote` now, for a connection that there is already. Where
    /// the host does not know the next hop, it asks the neighbour meanwhile, and
    /// [notifies](Self::monitor) when it knows. `silent`: the peer does not answer, so that the
    /// host is to ask the neighbour whose address it believes to know, too. By default, paths stay
    /// as they were.
    ///
    /// # Errors
    ///
    /// As [`next_hop`](Self::next_hop).
    fn present_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        silent: bool,
    ) -> Result<PresentWay, HostError> {
        let _ = (local, remote, silent);
        Ok(PresentWay::default())
    }

    /// The metrics of the route from `local` to `remote`, of which the first SYN has come. By
    /// default, routes have none.
    ///
    /// # Errors
    ///
    /// [`HostError::Route`], [`HostError::OtherInterface`]: no way leads there, or one over another
    /// interface.
    fn metrics(&self, local: SocketAddr, remote: SocketAddr) -> Result<RouteMetrics, HostError> {
        let _ = (local, remote);
        Ok(RouteMetrics::default())
    }

    /// Reserves a TCP port (0: any free one) and steers its traffic to the RNIC.
    ///
    /// # Errors
    ///
    /// - [`HostError::Port`]: the port is in use or privileged, or the address is not this host's.
    /// - [`HostError::Steering`]: the XDP program takes no more ports.
    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError>;

    /// Reserves a free port to connect from. As far as the host knows, frames from `remote` to that
    /// port arrive at this engine.
    ///
    /// # Errors
    ///
    /// As [`open_port`](Self::open_port).
    fn open_port_towards(
        &self,
        address: IpAddr,
        remote: SocketAddr,
        engine: usize,
    ) -> Result<LocalPort, HostError>;

    /// Reports the interface's present state, then its changes. `None`, the default: it never
    /// changes.
    fn monitor(&self) -> Option<InterfaceMonitor> {
        None
    }

    /// Where engines show their state to other processes. `None`, the default: nowhere.
    fn board(&self) -> Option<Arc<StateBoard>> {
        None
    }
}

/// The way from the host to a peer.
pub struct Way {
    /// Host or router that frames are sent to.
    pub next_hop: NextHop,
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

impl From<NextHop> for Way {
    /// A way whose route has no metrics.
    fn from(next_hop: NextHop) -> Self {
        Self {
            next_hop,
            metrics: RouteMetrics::default(),
        }
    }
}

/// The way of a connection that exists already.
#[derive(Clone, Copy, Debug, Default)]
pub struct PresentWay {
    /// Ethernet address of the next hop. `None` if the host does not know it at the moment.
    pub next_hop: Option<[u8; 6]>,
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

/// What a host knows of a next hop's Ethernet address.
pub enum NextHop {
    /// The host knows the address.
    Known([u8; 6]),
    /// The peer has an address of the interface's own: the RNIC connects to itself.
    ThisHost,
    /// The host has begun to search.
    Searching(Box<dyn NextHopSearch>),
}

/// A search for a next hop. Its descriptor, which no other search has, is readable when
/// [`poll`](Self::poll) may have something new to say. Dropping it gives the search up, and closes
/// the descriptor.
pub trait NextHopSearch: AsFd + Send + Sync {
    /// The Ethernet address, once it is known. Never waits.
    ///
    /// # Errors
    ///
    /// [`HostError::Neighbour`]: the next hop has not answered in time, or can no longer be asked.
    fn poll(&mut self) -> Result<Option<[u8; 6]>, HostError>;
}

/// A TCP port that belongs to the RNIC until it is dropped.
pub struct LocalPort {
    local: SocketAddr,
    _hold: Box<dyn Send + Sync>,
}

impl LocalPort {
    /// A port that `hold` keeps.
    pub fn new(local: SocketAddr, hold: Box<dyn Send + Sync>) -> Self {
        Self { local, _hold: hold }
    }

    /// The address and port that are held.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Why the host could not help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No route leads there.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The way leads over another interface.
    #[error(
        "{remote} is not reached over {interface}; open the RNIC on the interface that leads there"
    )]
    OtherInterface {
        /// The peer's address.
        remote: IpAddr,
        /// The RNIC's interface.
        interface: String,
    },
    /// The interface could not be looked up.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The next hop does not answer.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
    /// The port could not be had.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The XDP program could not be configured to steer the port.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// A `FixedHost` without an answer for this address.
    #[error("nothing is known of {0}")]
    Unknown(IpAddr),
    /// The RNIC was closed.
    #[error("the RNIC was closed")]
    Closed,
}

//! Addresses, next hops and ports that an RNIC gets from its host.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::net::{InterfaceError, InterfaceMonitor, NeighbourError, PortError, RouteError};
use xwarp_driver::switch::SwitchError;
use xwarp_driver::{StateBoard, SteeringError};
use xwarp_tcp::RouteMetrics;

/// The host of an RNIC. The kernel is the host of a real RNIC; a test has a host with fixed
/// answers.
pub trait Host: Send + Sync {
    /// The interface's name, for messages.
    fn name(&self) -> &str;

    /// The host's addresses on the interface, as they are now.
    ///
    /// # Errors
    ///
    /// [`HostError::Interface`]: the interface is gone, or the kernel could not be asked.
    fn addresses(&self) -> Result<Vec<IpAddr>, HostError>;

    /// The local source address of packets to `remote`. For an address of the interface itself it
    /// is that address.
    ///
    /// # Errors
    ///
    /// - [`HostError::Route`], [`HostError::OtherInterface`]: there is no route to the peer, or it
    ///   leads over another interface.
    /// - [`HostError::Interface`]: the interface is gone, or the kernel could not be asked.
    /// - [`HostError::Unknown`]: a host with fixed answers has none.
    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError>;

    /// The next hop's Ethernet address on the path from `local` to `remote`, and the metrics of the
    /// route. Does not wait for the network: an unknown address is searched for up to `timeout`. If
    /// there are several next hops, the ports may select one.
    ///
    /// # Errors
    ///
    /// - [`HostError::Route`], [`HostError::OtherInterface`]: there is no route to the peer, or it
    ///   leads over another interface.
    /// - [`HostError::Neighbour`]: the next hop cannot be asked for, or did not answer before.
    /// - [`HostError::Unknown`]: a host with fixed answers has none.
    fn next_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Way, HostError>;

    /// The current path from `local` to `remote`, for an existing connection. If the host does not
    /// know the next hop, it solicits the neighbour in the meantime, and [notifies](Self::monitor)
    /// the RNIC once it knows. `silent`: the peer does not answer, so the host also solicits a
    /// neighbour whose address it has. By default, paths do not change.
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

    /// The metrics of the route from `local` to `remote`, for a connection whose SYN has arrived.
    /// By default, routes have none.
    ///
    /// # Errors
    ///
    /// [`HostError::Route`], [`HostError::OtherInterface`]: there is no route to the peer, or it
    /// leads over another interface.
    fn metrics(&self, local: SocketAddr, remote: SocketAddr) -> Result<RouteMetrics, HostError> {
        let _ = (local, remote);
        Ok(RouteMetrics::default())
    }

    /// Reserves a TCP port (0: any free one) and steers its traffic to the RNIC.
    ///
    /// # Errors
    ///
    /// - [`HostError::Port`]: the port is in use or privileged, or the address is not this host's.
    /// - [`HostError::Steering`]: the XDP program cannot steer any further port.
    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError>;

    /// Reserves a free port to connect from, so that frames from `remote` to that port arrive at
    /// this engine, as far as the host can predict.
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

    /// Reports the interface's current state, then its changes. `None`, the default: the interface
    /// never changes.
    fn monitor(&self) -> Option<InterfaceMonitor> {
        None
    }

    /// Board where engines publish their state to other processes. `None`, the default: there is
    /// none.
    fn board(&self) -> Option<Arc<StateBoard>> {
        None
    }
}

/// The path from the host to a peer.
pub struct Way {
    /// Host or router that frames are sent to.
    pub next_hop: NextHop,
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

impl From<NextHop> for Way {
    /// A path whose route has no metrics.
    fn from(next_hop: NextHop) -> Self {
        Self {
            next_hop,
            metrics: RouteMetrics::default(),
        }
    }
}

/// The path of an existing connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct PresentWay {
    /// Ethernet address of the next hop. `None` if the host does not know it at the moment.
    pub next_hop: Option<[u8; 6]>,
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

/// A next hop's Ethernet address, as far as the host knows it.
pub enum NextHop {
    /// The host knows the address.
    Known([u8; 6]),
    /// The peer has an address of the interface's own: the RNIC connects to itself.
    ThisHost,
    /// The host has started a search.
    Searching(Box<dyn NextHopSearch>),
}

/// A search for a next hop. Its own descriptor is readable when [`poll`](Self::poll) may have a new
/// result. Dropping it cancels the search, and closes the descriptor.
pub trait NextHopSearch: AsFd + Send + Sync {
    /// The Ethernet address, once it is known. Never waits.
    ///
    /// # Errors
    ///
    /// [`HostError::Neighbour`]: the next hop did not answer in time, or can no longer be asked.
    fn poll(&mut self) -> Result<Option<[u8; 6]>, HostError>;
}

/// A TCP port that belongs to the RNIC until it is dropped.
pub struct LocalPort {
    local: SocketAddr,
    _hold: Box<dyn Send + Sync>,
}

impl LocalPort {
    /// A port that is released by dropping `hold`.
    pub fn new(local: SocketAddr, hold: Box<dyn Send + Sync>) -> Self {
        Self { local, _hold: hold }
    }

    /// Address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Why the host could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// There is no route to the peer.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The route leads over another interface.
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
    /// The port could not be reserved.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The XDP program could not be configured to steer the port.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The software switch refuses, or does not answer.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A `FixedHost` has no answer for this address.
    #[error("nothing is known of {0}")]
    Unknown(IpAddr),
    /// The RNIC was closed.
    #[error("the RNIC was closed")]
    Closed,
}

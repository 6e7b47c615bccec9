//! What an RNIC asks of its host: addresses, routes, neighbours and ports.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xwarp_driver::SteeringError;
use xwarp_driver::net::{LinkError, LinkMonitor, NeighbourError, PortError, RouteError};

/// The host, as far as an RNIC asks it. The kernel is the host of a real one; a test has one of fixed answers.
pub trait Host: Send + Sync {
    /// The interface's name, for messages.
    fn name(&self) -> &str;

    /// The host's addresses on the interface, as they are now.
    fn addresses(&self) -> Result<Vec<IpAddr>, HostError>;

    /// Which local address and which Ethernet address lead to `remote`. May wait up to `patience`, as long as `wanted` holds.
    fn path_to(
        &self,
        remote: SocketAddr,
        patience: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(IpAddr, [u8; 6]), HostError>;

    /// Takes a TCP port (0: any free one) away from everybody else and directs its traffic to the RNIC.
    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError>;

    /// Tells what becomes of the interface, the state that it is in first. `None`, the default: nothing ever does.
    fn monitor(&self) -> Option<LinkMonitor> {
        None
    }
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

    /// Address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Why the host could not help.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No way there.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The way leads over another interface.
    #[error(
        "{remote} is not reached over {interface}; open the RNIC on the interface that leads there"
    )]
    OtherInterface {
        /// Whom.
        remote: IpAddr,
        /// The RNIC's interface.
        interface: String,
    },
    /// The interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Nobody answers.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
    /// The port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The XDP program.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// A `FixedHost` that was not told.
    #[error("nothing is known of {0}")]
    Unknown(IpAddr),
}

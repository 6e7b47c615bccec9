//! Host of an RNIC whose frames go by a software switch: the switch answers for the kernel.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::net::{InterfaceMonitor, PortError};
use xwarp_driver::switch::{Refusal, Reply, Request, SwitchClient, SwitchError};
use xwarp_rnic::model::{Host, HostError, LocalPort, NextHop, PresentWay, Way};

/// A device of the switch.
pub(crate) struct SwitchHost {
    name: String,
    client: Arc<SwitchClient>,
}

impl SwitchHost {
    pub(crate) fn new(name: String, client: SwitchClient) -> Self {
        Self {
            name,
            client: Arc::new(client),
        }
    }

    /// The next hop to a port of the switch's addresses.
    fn hop(&self, remote: SocketAddr) -> Result<[u8; 6], HostError> {
        match self.client.ask(Request::Hop(remote))? {
            Reply::Hop(mac) => Ok(mac),
            _ => Err(SwitchError::unasked().into()),
        }
    }
}

impl Host for SwitchHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, HostError> {
        match self.client.ask(Request::Addresses)? {
            Reply::Addresses(addresses) => Ok(addresses),
            _ => Err(SwitchError::unasked().into()),
        }
    }

    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError> {
        match self.client.ask(Request::Source(remote.ip()))? {
            Reply::Source(address) => Ok(address),
            _ => Err(SwitchError::unasked().into()),
        }
    }

    fn next_hop(
        &self,
        _local: SocketAddr,
        remote: SocketAddr,
        _timeout: Duration,
    ) -> Result<Way, HostError> {
        if self.client.has_port(remote) {
            return Ok(NextHop::ThisHost.into());
        }
        self.hop(remote).map(|mac| NextHop::Known(mac).into())
    }

    fn present_hop(
        &self,
        _local: SocketAddr,
        remote: SocketAddr,
        _silent: bool,
    ) -> Result<PresentWay, HostError> {
        Ok(PresentWay {
            next_hop: Some(self.hop(remote)?),
            ..PresentWay::default()
        })
    }

    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        let wanted = SocketAddr::new(address, port);
        let local = match self.client.ask(Request::OpenPort(wanted)) {
            Ok(Reply::Port(local)) => local,
            Ok(_) => return Err(SwitchError::unasked().into()),
            Err(error) => return Err(port_error(error)),
        };
        let hold = OpenPort {
            local,
            client: Arc::clone(&self.client),
        };
        Ok(LocalPort::new(local, Box::new(hold)))
    }

    /// There is one engine.
    fn open_port_towards(
        &self,
        address: IpAddr,
        _remote: SocketAddr,
        _engine: usize,
    ) -> Result<LocalPort, HostError> {
        self.open_port(address, 0)
    }

    fn monitor(&self) -> Option<InterfaceMonitor> {
        Some(self.client.monitor())
    }
}

/// The error of the kernel that stands for a refusal of the switch.
fn port_error(error: SwitchError) -> HostError {
    let SwitchError::Refused(refusal) = &error else {
        return error.into();
    };
    match *refusal {
        Refusal::InUse(at) => PortError::InUse {
            addr: at.ip(),
            port: at.port(),
        }
        .into(),
        Refusal::NotHere(addr) => PortError::AddressNotLocal { addr }.into(),
        Refusal::NotPermitted(port) => PortError::NotPermitted { port }.into(),
        _ => error.into(),
    }
}

/// A port of the RNIC, which dropping it gives back.
struct OpenPort {
    local: SocketAddr,
    client: Arc<SwitchClient>,
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.client.close_port(self.local);
    }
}

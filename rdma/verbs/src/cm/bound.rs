//! Bound port: a port that the RNIC owns and does not listen on yet.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::listener::Listener;
use super::listening::{Incoming, PortListener};
use super::streaming::StreamListener;
use crate::host::ports::Claim;
use crate::runtime::control::Control;
use xwarp_rnic::engine::{Clients, Engine};
use xwarp_rnic::model::{ListenError, LocalPort};
use xwarp_rnic::queues::Inbox;

/// A port of one address, or of all addresses of a family. No other program and no other handle can
/// bind it or listen on it. Dropping it returns the port to the host, unless connections still use
/// it.
pub struct BoundPort {
    wanted: IpAddr,
    ports: Vec<LocalPort>,
    claims: Vec<Claim>,
    backlog: usize,
    control: Arc<Control>,
}

impl BoundPort {
    /// Binds the port on all addresses that `local` stands for.
    pub(crate) fn bind(
        control: &Arc<Control>,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<Self, ListenError> {
        control.check_no_handler()?;
        control.check_open()?;
        let mut bound = Self {
            wanted: local.ip(),
            ports: Vec::new(),
            claims: Vec::new(),
            backlog,
            control: Arc::clone(control),
        };
        let mut number = local.port();
        for address in addresses_for(control, local.ip())? {
            let (port, claim) = control.claim_port(address, number)?;
            // Port 0 requests a free port. All addresses use the port that the first one received.
            number = port.local().port();
            bound.ports.push(port);
            bound.claims.push(claim);
        }
        Ok(bound)
    }

    /// Bound addresses: the interface's addresses among those requested, all with one port, which
    /// is not 0.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(LocalPort::local).collect()
    }

    /// Listens for connections, as [`Rnic::listen`](crate::Rnic::listen) does. An error releases
    /// the port.
    ///
    /// # Errors
    ///
    /// - [`ListenError::Taken`]: the host returned a port that this RNIC already listens on.
    /// - [`ListenError::System`]: no file descriptor is left.
    /// - [`ListenError::Failed`]: the RNIC has failed.
    /// - [`ListenError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn listen(self) -> Result<Listener, ListenError> {
        let requests = self.control.inbox()?;
        let clients = Clients::Requests(Arc::clone(&requests));
        self.listen_for(&clients, requests)
    }

    pub(crate) fn listen_for_streams(self) -> Result<StreamListener, ListenError> {
        let streams = self.control.inbox()?;
        let clients = Clients::Streams(Arc::clone(&streams));
        self.listen_for(&clients, streams)
    }

    fn listen_for<T: Incoming>(
        self,
        clients: &Clients,
        inbox: Arc<Inbox<T::Id>>,
    ) -> Result<PortListener<T>, ListenError> {
        let addresses = self.addresses();
        let Self {
            wanted,
            ports,
            claims,
            backlog,
            control,
        } = self;
        let mut listener = PortListener::new(addresses, claims, inbox, &control);
        // Each engine holds the ports that it listens on.
        let others = (1..control.shared_tables().engines()).map(|_| control.share_ports(&ports));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        for (engine, ports) in [ports].into_iter().chain(others).enumerate() {
            let clients = clients.clone();
            let listen = move |engine: &mut Engine| engine.listen(wanted, ports, clients, backlog);
            listener.add(control.call_on(engine, listen)??);
        }
        Ok(listener)
    }
}

/// The interface's addresses that `wanted` stands for.
fn addresses_for(control: &Control, wanted: IpAddr) -> Result<Vec<IpAddr>, ListenError> {
    let has = control.host().addresses()?;
    let family = |has: &IpAddr| wanted.is_unspecified() && has.is_ipv4() == wanted.is_ipv4();
    let chosen: Vec<IpAddr> = (has.iter().copied())
        .filter(|has| *has == wanted || family(has))
        .collect();
    if chosen.is_empty() {
        return Err(ListenError::NotOurs {
            address: wanted,
            interface: control.host().name().to_owned(),
            has,
        });
    }
    Ok(chosen)
}

//! Ports of an RNIC: each is opened once at the host, shared by connections, and claimed by at most
//! one listener at a time.
//!
//! A connection keeps the local port that it was accepted on, as the kernel must not give the port
//! to another program. Programs listen on such a port again, for the next peer. So the RNIC counts
//! the shares of a port: listeners, connections and bound ports. The last share returns the port to
//! the host. The right to listen is a claim: a second claim is refused while another holder has it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xwarp_driver::StateBoard;
use xwarp_driver::net::{InterfaceMonitor, PortError};
use xwarp_rnic::model::{Host, HostError, LocalPort, PresentWay, Way};
use xwarp_tcp::RouteMetrics;

/// Address and port.
type Place = (IpAddr, u16);

fn place_of(at: SocketAddr) -> Place {
    (at.ip(), at.port())
}

/// A host whose ports are shared: a port that the RNIC has open is not opened a second time.
pub(crate) struct Ports {
    name: String,
    /// `None` once the RNIC was closed. Handles may outlive the RNIC, and would keep the XDP
    /// program attached.
    host: Mutex<Option<Arc<dyn Host>>>,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    /// Ports that are open at the host, with the number of their shares.
    held: HashMap<Place, (LocalPort, usize)>,
    /// Ports that are bound or listened on.
    claimed: HashSet<Place>,
}

/// The right to listen on a port. The claim is exclusive until it is dropped.
pub(crate) struct Claim {
    place: Place,
    table: Arc<Mutex<Table>>,
}

/// A share of a port. Dropping the last share returns the port to the host.
struct Share {
    place: Place,
    table: Arc<Mutex<Table>>,
}

impl Ports {
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        Self {
            name: host.name().to_owned(),
            host: Mutex::new(Some(host)),
            table: Arc::default(),
        }
    }

    fn host(&self) -> Result<Arc<dyn Host>, HostError> {
        lock(&self.host).clone().ok_or(HostError::Closed)
    }

    /// Returns all ports to the host when the RNIC is closed, even those that are still shared.
    pub(crate) fn close(&self) {
        let held = std::mem::take(&mut lock(&self.table).held);
        drop(held);
        let host = lock(&self.host).take();
        drop(host);
    }

    /// Claims a port. Connections that were accepted by a former listener may share it. A port that
    /// is bound or listened on is refused.
    pub(crate) fn claim(
        &self,
        address: IpAddr,
        port: u16,
    ) -> Result<(LocalPort, Claim), HostError> {
        let mut table = lock(&self.table);
        if table.claimed.contains(&(address, port)) {
            let addr = address;
            return Err(PortError::InUse { addr, port }.into());
        }
        let opened = self.share(&mut table, address, port)?;
        let place = (address, opened.local().port());
        table.claimed.insert(place);
        let table = Arc::clone(&self.table);
        Ok((opened, Claim { place, table }))
    }

    fn share(&self, table: &mut Table, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        let local = if let Some((held, shares)) = table.held.get_mut(&(address, port)) {
            *shares += 1;
            held.local()
        } else {
            let opened = self.host()?.open_port(address, port)?;
            return Ok(self.first_share(table, opened));
        };
        Ok(self.share_of(local))
    }

    /// The first share of a port that the host has just opened.
    fn first_share(&self, table: &mut Table, opened: LocalPort) -> LocalPort {
        let local = opened.local();
        table.held.insert(place_of(local), (opened, 1));
        self.share_of(local)
    }

    fn share_of(&self, local: SocketAddr) -> LocalPort {
        let place = place_of(local);
        let table = Arc::clone(&self.table);
        LocalPort::new(local, Box::new(Share { place, table }))
    }
}

impl Host for Ports {
    fn name(&self) -> &str {
        &self.name
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, HostError> {
        self.host()?.addresses()
    }

    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError> {
        self.host()?.source_to(remote)
    }

    fn next_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Way, HostError> {
        self.host()?.next_hop(local, remote, timeout)
    }

    fn present_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        silent: bool,
    ) -> Result<PresentWay, HostError> {
        self.host()?.present_hop(local, remote, silent)
    }

    fn metrics(&self, local: SocketAddr, remote: SocketAddr) -> Result<RouteMetrics, HostError> {
        self.host()?.metrics(local, remote)
    }

    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        self.share(&mut lock(&self.table), address, port)
    }

    fn open_port_towards(
        &self,
        address: IpAddr,
        remote: SocketAddr,
        engine: usize,
    ) -> Result<LocalPort, HostError> {
        let mut table = lock(&self.table);
        let host = self.host()?;
        let open = || host.open_port_towards(address, remote, engine);
        let first = open()?;
        let is_remote = place_of(first.local()) == place_of(remote);
        // From there to there a connection would reach itself, although no program listens.
        let opened = if is_remote { open()? } else { first };
        Ok(self.first_share(&mut table, opened))
    }

    fn monitor(&self) -> Option<InterfaceMonitor> {
        self.host().ok()?.monitor()
    }

    fn board(&self) -> Option<Arc<StateBoard>> {
        self.host().ok()?.board()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.table).claimed.remove(&self.place);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if let Some((_, shares)) = table.held.get_mut(&self.place) {
            *shares -= 1;
            if *shares == 0 {
                // The lock is held until the host has the port back, so that no thread requests the
                // port from the host before.
                table.held.remove(&self.place);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FixedHost;

    const AT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn host_has_a_port_back_with_its_last_share() {
        let host = Arc::new(FixedHost::new(AT, []));
        let ports = Ports::new(Arc::clone(&host) as Arc<dyn Host>);
        let (first, claim) = ports.claim(AT, 7471).unwrap();
        let second = ports.open_port(AT, 7471).unwrap();
        assert!(ports.claim(AT, 7471).is_err());
        drop((claim, first));
        assert!(host.open_port(AT, 7471).is_err(), "one share is left");
        let (third, claim) = ports.claim(AT, 7471).unwrap();
        drop((second, third));
        drop(host.open_port(AT, 7471).unwrap());
        assert!(
            ports.claim(AT, 7471).is_err(),
            "claimed, with a port or not"
        );
        drop(claim);
        assert!(ports.claim(AT, 7471).is_ok());
    }

    #[test]
    fn closing_gives_the_host_back_whoever_has_a_share() {
        let host = Arc::new(FixedHost::new(AT, []));
        let ports = Ports::new(Arc::clone(&host) as Arc<dyn Host>);
        let (share, claim) = ports.claim(AT, 7471).unwrap();
        ports.close();
        assert_eq!(Arc::strong_count(&host), 1);
        drop(host.open_port(AT, 7471).unwrap());
        assert!(matches!(ports.addresses(), Err(HostError::Closed)));
        assert!(matches!(ports.claim(AT, 1), Err(HostError::Closed)));
        drop((share, claim));
    }

    #[test]
    fn connection_does_not_begin_where_it_leads_to() {
        let host = Arc::new(FixedHost::new(AT, []));
        let ports = Ports::new(Arc::clone(&host) as Arc<dyn Host>);
        let first = ports.open_port(AT, 0).unwrap().local();
        let next = SocketAddr::new(AT, first.port() + 1);
        let towards = |remote| ports.open_port_towards(AT, remote, 0).unwrap().local();
        assert_eq!((towards(first), towards(next)), (next, first));
    }

    #[test]
    fn port_that_the_host_chooses_is_shared_by_its_number() {
        let host = Arc::new(FixedHost::new(AT, []));
        let ports = Ports::new(Arc::clone(&host) as Arc<dyn Host>);
        let (chosen, _claim) = ports.claim(AT, 0).unwrap();
        let number = chosen.local().port();
        assert!(number != 0 && ports.claim(AT, number).is_err());
        assert_eq!(ports.open_port(AT, number).unwrap().local().port(), number);
        assert_ne!(ports.open_port(AT, 0).unwrap().local().port(), number);
    }
}

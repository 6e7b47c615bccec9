//! Host of an RNIC: its addresses, routes, neighbours and ports, and how the NIC spreads
//! connections over its queues.

pub(crate) mod ports;
pub(crate) mod rss_steering;
pub(crate) mod switch;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xwarp_driver::net::{
    self, InterfaceMonitor, InterfaceWatching, NeighbourSearch, PortError, PortReservation,
    Resolution, Route, RouteError,
};
use xwarp_driver::{NicInfo, StateBoard, Steering};
use xwarp_rnic::model::Host;
use xwarp_rnic::model::HostError;
use xwarp_rnic::model::LocalPort;
use xwarp_rnic::model::{NextHop, NextHopSearch, PresentWay, Way};
use xwarp_tcp::RouteMetrics;

use rss_steering::{RssSteering, engine_of};

/// Ports that are tried per queue: the chance that none of them leads to the wanted queue is 1 in
/// 2980.
const TRIES: usize = 8;

/// The kernel of this machine, in the network namespace of the calling thread.
pub(crate) struct KernelHost {
    info: NicInfo,
    steering: Arc<Mutex<Steering>>,
    watching: InterfaceWatching,
    board: Arc<StateBoard>,
    rss: RssSteering,
}

impl KernelHost {
    pub(crate) fn new(
        info: NicInfo,
        steering: Steering,
        watching: InterfaceWatching,
        rss: RssSteering,
    ) -> Self {
        Self {
            info,
            rss,
            board: steering.board(),
            steering: Arc::new(Mutex::new(steering)),
            watching,
        }
    }

    /// Redirects TCP frames for a reserved port to the RNIC.
    fn steer(&self, reservation: PortReservation) -> Result<LocalPort, HostError> {
        let local = reservation.local();
        lock(&self.steering).add(local)?;
        let hold = SteeredPort {
            local,
            steering: Arc::clone(&self.steering),
            _reservation: reservation,
        };
        Ok(LocalPort::new(local, Box::new(hold)))
    }

    /// The kernel's route for a flow, if it leads over the interface.
    fn route(&self, local: Option<SocketAddr>, remote: SocketAddr) -> Result<Route, HostError> {
        let route = net::route_from_interface(local, remote, self.info.index)?;
        if route.interface_index != self.info.index {
            return Err(HostError::OtherInterface {
                remote: remote.ip(),
                interface: self.info.name.clone(),
            });
        }
        Ok(route)
    }
}

impl Host for KernelHost {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, HostError> {
        Ok(net::addresses_of(self.info.index)?)
    }

    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError> {
        match self.route(None, remote) {
            Err(HostError::Route(RouteError::ThisHost { .. }))
                if self.addresses()?.contains(&remote.ip()) =>
            {
                Ok(remote.ip())
            }
            found => Ok(found?.source),
        }
    }

    fn next_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Way, HostError> {
        if local.ip() == remote.ip() {
            return Ok(NextHop::ThisHost.into());
        }
        let route = self.route(Some(local), remote)?;
        let hop = route.next_hop;
        let resolution = net::resolve_neighbour(self.info.index, local.ip(), hop, timeout)?;
        let next_hop = match resolution {
            Resolution::Known(mac) => NextHop::Known(mac.0),
            Resolution::Searching(search) => NextHop::Searching(Box::new(KernelSearch(search))),
        };
        let metrics = metrics_of(&route);
        Ok(Way { next_hop, metrics })
    }

    fn present_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        silent: bool,
    ) -> Result<PresentWay, HostError> {
        let route = self.route(Some(local), remote)?;
        let hop = route.next_hop;
        let mac = net::present_neighbour(self.info.index, local.ip(), hop, silent)?;
        Ok(PresentWay {
            next_hop: mac.map(|mac| mac.0),
            metrics: metrics_of(&route),
        })
    }

    fn metrics(&self, local: SocketAddr, remote: SocketAddr) -> Result<RouteMetrics, HostError> {
        Ok(metrics_of(&self.route(Some(local), remote)?))
    }

    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        self.steer(PortReservation::reserve(address, port, self.info.index)?)
    }

    /// Reserves ports until the NIC's hash leads from the remote endpoint to this engine. The
    /// rejected ports are kept until then, so that the host returns none twice.
    fn open_port_towards(
        &self,
        address: IpAddr,
        remote: SocketAddr,
        engine: usize,
    ) -> Result<LocalPort, HostError> {
        let reserve = || PortReservation::reserve(address, 0, self.info.index);
        let mut reserved = reserve()?;
        let Some(rss) = self.rss.hash(&self.info) else {
            return self.steer(reserved);
        };
        let mut others = Vec::new();
        while others.len() < TRIES * self.info.queues.all as usize
            && engine_of(&rss, &self.info, remote, reserved.local()) != Some(engine)
        {
            // With no other port left, this one is used, and its frames are handed over between
            // engines.
            let Ok(next) = reserve() else { break };
            others.push(std::mem::replace(&mut reserved, next));
        }
        self.steer(reserved)
    }

    fn monitor(&self) -> Option<InterfaceMonitor> {
        Some(self.watching.monitor())
    }

    fn board(&self) -> Option<Arc<StateBoard>> {
        Some(Arc::clone(&self.board))
    }
}

/// Metrics of the kernel's route, for the segments of a connection.
fn metrics_of(route: &Route) -> RouteMetrics {
    let bytes = |metric: u32| usize::try_from(metric).unwrap_or(usize::MAX);
    RouteMetrics {
        mtu: route.mtu.map(bytes),
        advmss: route.advmss.map(bytes),
    }
}

/// The kernel's search for a next hop.
struct KernelSearch(NeighbourSearch);

impl NextHopSearch for KernelSearch {
    fn poll(&mut self) -> Result<Option<[u8; 6]>, HostError> {
        Ok(self.0.poll()?.map(|mac| mac.0))
    }
}

impl AsFd for KernelSearch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A port of the RNIC. Dropping it stops the redirection of frames, then releases the port: the
/// fields drop in this order.
struct SteeredPort {
    local: SocketAddr,
    steering: Arc<Mutex<Steering>>,
    _reservation: PortReservation,
}

impl Drop for SteeredPort {
    fn drop(&mut self) {
        lock(&self.steering).remove(self.local);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ethernet addresses of neighbours. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct Neighbours(Arc<Mutex<HashMap<IpAddr, [u8; 6]>>>);

impl Neighbours {
    /// The Ethernet address of a neighbour, if the table has one.
    pub fn get(&self, address: IpAddr) -> Option<[u8; 6]> {
        lock(&self.0).get(&address).copied()
    }

    /// Sets the Ethernet address of a neighbour.
    pub fn set(&self, address: IpAddr, mac: [u8; 6]) {
        lock(&self.0).insert(address, mac);
    }
}

/// A host without a kernel: one address, a table of neighbours, ports of its own.
pub struct FixedHost {
    address: IpAddr,
    neighbours: Neighbours,
    ports: Arc<Mutex<BTreeSet<SocketAddr>>>,
    monitor: Option<InterfaceMonitor>,
}

/// First port for a request that names none (RFC 6335 §6).
const FIRST_DYNAMIC_PORT: u16 = 49152;

impl FixedHost {
    /// A host at `address` that knows these neighbours.
    pub fn new(address: IpAddr, neighbours: impl IntoIterator<Item = (IpAddr, [u8; 6])>) -> Self {
        let neighbours = neighbours.into_iter().collect();
        Self {
            address,
            neighbours: Neighbours(Arc::new(Mutex::new(neighbours))),
            ports: Arc::default(),
            monitor: None,
        }
    }

    /// The table of neighbours. The caller may change Ethernet addresses in it.
    pub fn neighbours(&self) -> Neighbours {
        self.neighbours.clone()
    }

    /// Reports interface changes from `monitor`.
    #[must_use]
    pub fn watched(mut self, monitor: InterfaceMonitor) -> Self {
        self.monitor = Some(monitor);
        self
    }
}

impl Host for FixedHost {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, HostError> {
        Ok(vec![self.address])
    }

    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError> {
        let known = remote.ip() == self.address || self.neighbours.get(remote.ip()).is_some();
        known
            .then_some(self.address)
            .ok_or(HostError::Unknown(remote.ip()))
    }

    fn next_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        _: Duration,
    ) -> Result<Way, HostError> {
        if local.ip() == remote.ip() {
            return Ok(NextHop::ThisHost.into());
        }
        let known = self.neighbours.get(remote.ip());
        let mac = known.ok_or(HostError::Unknown(remote.ip()))?;
        Ok(NextHop::Known(mac).into())
    }

    fn present_hop(
        &self,
        _: SocketAddr,
        remote: SocketAddr,
        _: bool,
    ) -> Result<PresentWay, HostError> {
        Ok(PresentWay {
            next_hop: self.neighbours.get(remote.ip()),
            metrics: RouteMetrics::default(),
        })
    }

    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        let mut ports = lock(&self.ports);
        let chosen = match port {
            0 => first_free(&ports, address),
            _ => Some(port).filter(|port| !ports.contains(&SocketAddr::new(address, *port))),
        };
        let port = chosen.ok_or(PortError::InUse {
            addr: address,
            port,
        })?;
        let local = SocketAddr::new(address, port);
        ports.insert(local);
        let hold = FixedPort {
            local,
            ports: Arc::clone(&self.ports),
        };
        Ok(LocalPort::new(local, Box::new(hold)))
    }

    /// Any port: without a NIC there is no hash that selects an engine.
    fn open_port_towards(
        &self,
        address: IpAddr,
        _: SocketAddr,
        _: usize,
    ) -> Result<LocalPort, HostError> {
        self.open_port(address, 0)
    }

    fn monitor(&self) -> Option<InterfaceMonitor> {
        self.monitor.clone()
    }
}

/// The first dynamic port that is free at an address: the first gap among those in use.
fn first_free(ports: &BTreeSet<SocketAddr>, address: IpAddr) -> Option<u16> {
    let dynamic = FIRST_DYNAMIC_PORT..=u16::MAX;
    let [first, last] = [FIRST_DYNAMIC_PORT, u16::MAX].map(|port| SocketAddr::new(address, port));
    let mut used = ports.range(first..=last).map(SocketAddr::port);
    dynamic.into_iter().find(|port| used.next() != Some(*port))
}

struct FixedPort {
    local: SocketAddr,
    ports: Arc<Mutex<BTreeSet<SocketAddr>>>,
}

impl Drop for FixedPort {
    fn drop(&mut self) {
        lock(&self.ports).remove(&self.local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_port_that_is_free_is_given_at_each_address() {
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let host = FixedHost::new(one, []);
        let open = |address| host.open_port(address, 0).unwrap();
        let port = |number| SocketAddr::new(one, FIRST_DYNAMIC_PORT + number);
        let [first, second, third] = [open(one), open(one), open(one)];
        assert_eq!(
            [&first, &second, &third].map(LocalPort::local),
            [0, 1, 2].map(port)
        );
        drop(second);
        let again = open(one);
        assert_eq!(again.local(), port(1));
        assert_eq!(open(one).local(), port(3));
        assert_eq!(open(other).local().port(), FIRST_DYNAMIC_PORT);
        assert!(host.open_port(one, first.local().port()).is_err());
        drop((third, again));
    }
}

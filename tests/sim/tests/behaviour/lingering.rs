//! Ports of connections that have ended: kept for TCP's sake, but never many.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use xwarp::QpConfig;
use xwarp::config::Progress;
use xwarp::error::{ConnectError, HostError};
use xwarp::sim::{FixedHost, Host, LocalPort, Way};
use xwarp_driver::net::PortError;
use xwarp_sim_tests::{Side, Sim, needs_link};
use xwarp_test_kit::MemoryRnic;
use xwarp_test_kit::netsim::Seed;

/// The first port that the simulated host gives away, and how many ports of ended connections an
/// RNIC keeps.
const FIRST: usize = 49_152;
const KEPT: usize = 256;

/// Each port is a descriptor of the process, of which it often has 1024.
#[test]
fn client_that_comes_and_goes_holds_few_ports() {
    needs_link!("a switch gives a free port again as late as it can");
    let mut sim = Sim::new(Seed(61)).one_way_delay(Duration::from_micros(50));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut highest = 0;
    for _ in 0..3 * KEPT {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        let limit = Duration::from_secs(5);
        let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
        let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
        highest = highest.max(usize::from(request.remote().port()));
        request.accept(&mut b.qp, b"").unwrap();
        let answer = sim.wait_for("the Reply", || connecting.try_finish());
        answer.unwrap();
        a.qp.begin_disconnect().unwrap();
        sim.run_for(Duration::from_millis(1));
        assert_eq!(
            a.events(),
            [xwarp::event::AsyncEventKind::Closed],
            "gracefully, however soon the port goes"
        );
    }
    // Each connect takes a spare port besides.
    assert!(highest < FIRST + KEPT + 4, "port {highest}");
}

const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// A host with a limit of descriptors: one for each port.
struct Scarce {
    host: FixedHost,
    left: Arc<AtomicUsize>,
}

/// Gives its descriptor back.
struct Descriptor {
    _port: LocalPort,
    left: Arc<AtomicUsize>,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }
}

impl Host for Scarce {
    fn name(&self) -> &str {
        self.host.name()
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, HostError> {
        self.host.addresses()
    }

    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError> {
        self.host.source_to(remote)
    }

    fn next_hop(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Way, HostError> {
        self.host.next_hop(local, remote, timeout)
    }

    fn open_port_towards(
        &self,
        address: IpAddr,
        _: SocketAddr,
        _: usize,
    ) -> Result<LocalPort, HostError> {
        self.open_port(address, 0)
    }

    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        let take = |left: usize| left.checked_sub(1);
        let taken = (self.left).fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map_err(|_none| PortError::NoDescriptors)?;
        let port = self.host.open_port(address, port)?;
        let local = port.local();
        let left = Arc::clone(&self.left);
        Ok(LocalPort::new(
            local,
            Box::new(Descriptor { _port: port, left }),
        ))
    }
}

/// Two are enough for one connection at a time, with its spare port.
#[test]
fn client_without_descriptors_takes_those_of_connections_that_have_ended() {
    let host = Scarce {
        host: FixedHost::new(Side::A.address(), [(NOBODYS, Side::B.mac())]),
        left: Arc::new(AtomicUsize::new(2)),
    };
    let rnic = MemoryRnic::at(Side::A).host(host);
    let (rnic, _wire) = rnic.progress(Progress::Inline).open();
    let (pd, cq) = (rnic.allocate_pd().unwrap(), rnic.create_cq(16).unwrap());
    for attempt in 0..4 {
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        let limit = Duration::from_millis(20);
        let outcome = qp.connect(SocketAddr::new(NOBODYS, 7471), b"", limit);
        let timed_out = matches!(outcome, Err(ConnectError::TimedOut { .. }));
        assert!(timed_out, "attempt {attempt}: {outcome:?}");
    }
}

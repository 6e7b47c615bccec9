//! A host with an RNIC.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use xwarp::attr::QpId;
use xwarp::cm::MpaConfig;
use xwarp::config::Progress;
use xwarp::event::{AsyncEvent, AsyncEventKind};
use xwarp::memory::SharedBytes;
use xwarp::sim::{self, FixedHost, Neighbours};
use xwarp::{Access, MemoryRegion, ProtectionDomain, QueuePair, RemoteAddress, Rnic, RnicConfig};
use xwarp_driver::Wire;
use xwarp_driver::net::{
    InterfaceEnd, InterfaceNews, InterfaceReporter, InterfaceState, MacAddr, Network,
};
use xwarp_tcp::{Instant, StackConfig};
use xwarp_test_kit::netsim::{Rng, Seed};
use xwarp_test_kit::{Answers, Drops, MemoryRnic, Queues, Side, drops_of};

use crate::MIB;
use crate::switch::{self, SimSwitch, SwitchedHost};

/// Bytes of an IP packet at most, if nothing else is said.
pub(crate) const MTU: usize = 1500;
/// Frames of an interface.
const FRAMES: usize = if cfg!(miri) { 128 } else { 512 };
/// Bytes of a host's region area; they cost nothing until they are used.
const REGION_AREA: usize = if cfg!(miri) { 4 } else { 256 } * MIB;
/// Bytes before and after a [`Target`] that must stay as they are.
const GUARD: usize = 128;
/// The value of each guard byte.
const GUARD_BYTE: u8 = 0xee;

/// An address that a host has not at first, and where it is found all the same.
pub fn later_address(side: Side) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100 + side.number()))
}

/// An address in the network that both hosts are in.
pub fn network(address: IpAddr) -> Network {
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    Network { address, prefix }
}

/// TCP's parameters at a host.
pub(crate) fn stack_config(side: Side, Seed(seed): Seed, mtu: usize) -> StackConfig {
    StackConfig {
        mac: side.mac(),
        mtu,
        seed: Some(Rng::new(Seed(seed), 100 + side as u64).draw()),
        ..StackConfig::default()
    }
}

/// A host with an RNIC; a clone is a second handle.
#[derive(Clone)]
pub struct Host(Rc<Inner>);

struct Inner {
    address: IpAddr,
    pd: ProtectionDomain,
    /// All memory that was ever registered through this host.
    memory: RefCell<Vec<SharedBytes>>,
    events: RefCell<Vec<AsyncEvent>>,
    /// Current state of the interface. `reporter` passes its changes on to the RNIC.
    interface: RefCell<InterfaceState>,
    reporter: InterfaceReporter,
    neighbours: Neighbours,
    rnic: Rnic,
    /// What joins the queues of its interface, if there are several. It carries the RNIC's last
    /// words.
    queues: RefCell<Option<Queues>>,
}

/// What the simulation's hosts are like.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The address at either side.
    pub(crate) address_of: fn(Side) -> IpAddr,
    pub(crate) mpa: MpaConfig,
    pub(crate) mtu: usize,
    /// Asynchronous events that may wait.
    pub(crate) max_events: usize,
    /// Connections that a listener keeps.
    pub(crate) backlog: usize,
    /// Queues of the interface, each with an engine.
    pub(crate) engines: usize,
    /// The queue of connections that begin here.
    pub(crate) answers: Answers,
    /// The frames after which the NIC chooses other queues, if it does.
    pub(crate) resteers_after: Option<usize>,
    /// Addresses of the software switch that joins both hosts, if one does: one for each family.
    /// Both have the same address, one engine each, and the switch's MTU.
    pub(crate) switched: Option<[IpAddr; 2]>,
}

/// A number that the environment says, so that the same tests run with several engines.
fn wanted(name: &str) -> Option<usize> {
    let wanted = std::env::var(name).ok();
    wanted.map(|wanted| wanted.parse().expect("a number"))
}

/// True if a switch is to join the hosts wherever the test does not say otherwise.
pub fn wants_switch() -> bool {
    std::env::var_os("XWARP_SIM_SWITCH").is_some()
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            address_of: Side::address,
            mpa: MpaConfig::default(),
            mtu: MTU,
            max_events: RnicConfig::default().max_events,
            backlog: RnicConfig::default().backlog,
            engines: wanted("XWARP_SIM_ENGINES").unwrap_or(1),
            answers: Answers::Own,
            resteers_after: wanted("XWARP_SIM_RESTEER"),
            switched: wants_switch().then_some(switch::LOOPBACK),
        }
    }
}

impl Kind {
    /// On a link that carries IP packets of up to `mtu` bytes.
    pub(crate) fn on_a_link(mtu: usize) -> Self {
        Self {
            mtu,
            switched: None,
            ..Self::default()
        }
    }
}

impl Host {
    /// A host at one end of a link, or of a switch.
    pub(crate) fn new(
        side: Side,
        seed: Seed,
        kind: Kind,
        switch: Option<&SimSwitch>,
    ) -> (Self, Wire) {
        let Kind {
            address_of,
            mpa,
            max_events,
            backlog,
            answers,
            resteers_after,
            ..
        } = kind;
        let (mtu, engines) = match switch {
            Some(_) => (switch::MTU, 1),
            None => (kind.mtu, kind.engines),
        };
        let peer = side.other();
        let address = address_of(side);
        let address = switch.map_or(address, |switch| switch.address_like(address));
        let (reporter, monitor) = InterfaceReporter::new(None);
        let interface = InterfaceState {
            up: true,
            mac: MacAddr(side.mac()),
            mtu,
            networks: vec![network(address)],
            channels: None,
            rings: None,
            paths: 0,
        };
        let known = [address_of(peer), later_address(peer)].map(|at| (at, peer.mac()));
        let mut neighbours = Neighbours::default();
        let host: Arc<dyn sim::Host> = if let Some(switch) = switch {
            Arc::new(SwitchedHost::new(side, switch.clone(), monitor))
        } else {
            reporter.report(InterfaceNews::State(interface.clone()));
            let host = FixedHost::new(address, known).watched(monitor);
            neighbours = host.neighbours();
            Arc::new(host)
        };
        let config = RnicConfig::default()
            .progress(Progress::Manual)
            .mpa(mpa)
            .max_events(max_events)
            .backlog(backlog);
        let rnic = MemoryRnic::at(side)
            .shared_host(host)
            .frames(FRAMES)
            .region_area(REGION_AREA)
            .config(config)
            .stack(|tcp| *tcp = stack_config(side, seed, mtu));
        let (rnic, queues, wire) = if let Some(switch) = switch {
            let (rnic, wire) = rnic.local_hop(switch::local_hop()).open();
            switch.attach(side, wire.clone());
            (rnic, None, wire)
        } else if engines == 1 {
            let (rnic, wire) = rnic.open();
            (rnic, None, wire)
        } else {
            let (rnic, mut queues, wire) = rnic.open_on(engines);
            queues.answers_come_to(answers);
            if let Some(frames) = resteers_after {
                queues.resteer_after(frames);
            }
            (rnic, Some(queues), wire)
        };
        let inner = Inner {
            address,
            pd: rnic.allocate_pd().unwrap(),
            memory: RefCell::default(),
            events: RefCell::default(),
            interface: RefCell::new(interface),
            reporter,
            neighbours,
            rnic,
            queues: RefCell::new(queues),
        };
        (Self(Rc::new(inner)), wire)
    }

    /// One turn of each of its engines; how much was done.
    pub(crate) fn step(&self, now: Instant) -> usize {
        self.carry() + self.rnic().step_at(now) + self.carry()
    }

    /// Carries frames between the queues of its interface and the link, if there are several; how
    /// many.
    pub(crate) fn carry(&self) -> usize {
        let mut queues = self.0.queues.borrow_mut();
        queues.as_mut().map_or(0, Queues::carry)
    }

    /// Its interface changes.
    pub fn change_interface(&self, change: impl FnOnce(&mut InterfaceState)) {
        let mut interface = self.0.interface.borrow_mut();
        change(&mut interface);
        self.0
            .reporter
            .report(InterfaceNews::State(interface.clone()));
    }

    /// What it knows of its neighbours.
    pub fn neighbours(&self) -> &Neighbours {
        &self.0.neighbours
    }

    /// Its interface is taken away.
    pub fn end_interface(&self, end: InterfaceEnd) {
        self.0.reporter.report(InterfaceNews::Ended(end));
    }

    /// Its RNIC.
    pub fn rnic(&self) -> &Rnic {
        &self.0.rnic
    }

    /// The protection domain that all is in unless said otherwise.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// Address and port.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.0.address, port)
    }

    /// A zeroed region.
    pub fn region(&self, len: usize, access: Access) -> MemoryRegion {
        self.region_in(self.pd(), len, access)
    }

    /// The same in any protection domain.
    pub fn region_in(&self, pd: &ProtectionDomain, len: usize, access: Access) -> MemoryRegion {
        let region = pd.allocate(len, access).unwrap();
        self.0.memory.borrow_mut().push(region.bytes().clone());
        region
    }

    /// The same for a queue pair alone.
    pub fn region_for(&self, qp: &QueuePair, len: usize, access: Access) -> MemoryRegion {
        let region = qp.allocate(len, access).unwrap();
        self.0.memory.borrow_mut().push(region.bytes().clone());
        region
    }

    /// Memory for the peer to write into and to read from, with guards around it that are inside
    /// the same region.
    pub fn target(&self, len: usize) -> Target {
        self.guarded(len, Access::all())
    }

    /// The same with any rights.
    pub(crate) fn guarded(&self, len: usize, access: Access) -> Target {
        Target::new(self, len, access)
    }

    /// A copy of all memory that was ever registered here.
    pub fn memory(&self) -> Vec<Vec<u8>> {
        self.0
            .memory
            .borrow()
            .iter()
            .map(SharedBytes::to_vec)
            .collect()
    }

    /// What happened to a queue pair since this was asked last.
    pub fn events(&self, qp: QpId) -> Vec<AsyncEventKind> {
        let its = self.take_events(Some(qp));
        its.into_iter().map(|event| event.kind).collect()
    }

    fn take_events(&self, qp: Option<QpId>) -> Vec<AsyncEvent> {
        let mut events = self.0.events.borrow_mut();
        events.extend(std::iter::from_fn(|| {
            self.rnic().events().try_next().ok().flatten()
        }));
        let (its, others) = events.drain(..).partition(|event| event.qp() == qp);
        *events = others;
        its
    }

    /// What happened to no queue pair, but to other objects, since this was asked last.
    pub fn other_events(&self) -> Vec<AsyncEvent> {
        self.take_events(None)
    }

    /// What it has dropped or refused.
    pub fn drops(&self) -> Drops {
        drops_of(&self.rnic().counters().unwrap())
    }
}

/// Memory for a peer or for its messages, between guards.
pub struct Target {
    region: MemoryRegion,
    len: usize,
}

impl Target {
    fn new(host: &Host, len: usize, access: Access) -> Self {
        let region = host.region(GUARD + len + GUARD, access);
        region.bytes().fill(0..GUARD, GUARD_BYTE).unwrap();
        region
            .bytes()
            .fill(GUARD + len..region.len(), GUARD_BYTE)
            .unwrap();
        Self { region, len }
    }

    /// The place of a byte, for the peer to name.
    pub fn remote(&self, offset: usize) -> RemoteAddress {
        self.region.remote((GUARD + offset) as u64)
    }

    /// The same for a scatter/gather list here.
    pub fn local(&self, offset: usize, len: usize) -> xwarp::Sge {
        self.region
            .local((GUARD + offset) as u64, u32::try_from(len).unwrap())
    }

    /// Writes here, as the application does.
    pub fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        self.region.bytes().write(GUARD, bytes).unwrap();
    }

    /// What it holds.
    ///
    /// # Panics
    /// If a guard was written.
    pub fn to_vec(&self) -> Vec<u8> {
        let all = self.region.bytes().to_vec();
        let (before, rest) = all.split_at(GUARD);
        let (bytes, after) = rest.split_at(self.len);
        let intact = |guard: &[u8]| guard.iter().all(|byte| *byte == GUARD_BYTE);
        assert!(intact(before), "bytes before the target were written");
        assert!(intact(after), "bytes after the target were written");
        bytes.to_vec()
    }
}

//! A software switch between two machines of one host, in virtual time.
//!
//! What a machine sends is taken by the [`Switch`] at once. What the switch delivers goes by the
//! simulated link, which may delay or lose it. The switch itself is perfect.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use xwarp::error::HostError;
use xwarp::sim::{Host, InterfaceMonitor, LocalHop, LocalPort, NextHop, PresentWay, Way};
use xwarp_driver::Wire;
use xwarp_driver::net::PortError;
use xwarp_driver::switch::SwitchError;
use xwarp_switchd::{
    ClientId, ClientMemory, Config, Counters, Delivery, Head, Hostile, Identity, Refusal, Reply,
    Request, SWITCH, Switch,
};
use xwarp_test_kit::netsim::{Link, Seed, Source};
use xwarp_test_kit::{Side, drops_of};

/// Bytes of the largest IP packet.
pub(crate) const MTU: usize = 65_535;
/// Frames that a client's memory holds, of which the switch sees the headers after its death.
const FRAMES: usize = 512;
/// Generation of the first switch.
const FIRST: u64 = 1;
/// Age of the first switch when a test begins.
const AGE: Duration = Duration::from_secs(10);
/// User of both processes.
const USER: u32 = 1000;

/// Loopback addresses, one of each family.
pub(crate) const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// The next hop of each machine.
pub(crate) fn local_hop() -> LocalHop {
    LocalHop {
        mac: SWITCH,
        mtu: None,
        is_trusted: false,
    }
}

/// The switch and what its clients keep; a clone is a second handle.
#[derive(Clone)]
pub(crate) struct SimSwitch(Arc<Mutex<State>>);

struct State {
    /// None while it is away.
    switch: Option<Switch<Memory>>,
    addresses: [IpAddr; 2],
    generation: u64,
    /// Time since the first switch began, and when the present one did.
    now: Duration,
    began: Duration,
    /// The processes at either side, once they are attached.
    stations: [Option<Station>; 2],
}

/// What a process keeps when another switch takes the place of its own.
struct Station {
    id: ClientId,
    wire: Wire,
    memory: Memory,
    ports: BTreeSet<SocketAddr>,
}

impl SimSwitch {
    /// A switch of these addresses.
    pub(crate) fn new(addresses: [IpAddr; 2]) -> Self {
        Self(Arc::new(Mutex::new(State {
            switch: Some(begin(addresses, FIRST)),
            addresses,
            generation: FIRST,
            now: AGE,
            began: Duration::ZERO,
            stations: [None, None],
        })))
    }

    /// The address that both machines have, in the family of `address`.
    pub(crate) fn address_like(&self, address: IpAddr) -> IpAddr {
        let addresses = self.state().addresses;
        let its = addresses
            .into_iter()
            .find(|it| it.is_ipv4() == address.is_ipv4());
        its.expect("an address of the family")
    }

    /// Attaches the machine at a side, whose interface has this wire. Its Ethernet address is that
    /// of the side.
    pub(crate) fn attach(&self, side: Side, wire: Wire) {
        let mut state = self.state();
        let station = state.attach(side, wire);
        state.stations[side as usize] = Some(station);
    }

    /// The link that carries what the switch shows to the machine at either side.
    pub(crate) fn link(&self, seed: Seed, wires: [Wire; 2]) -> Link {
        let shown_to = |side: Side| -> Source {
            let switch = self.clone();
            Box::new(move || switch.take_shown(side))
        };
        Link::fed_by(seed, wires, [shown_to(Side::B), shown_to(Side::A)])
    }

    fn take_shown(&self, side: Side) -> Option<Vec<u8>> {
        let state = self.state();
        state.station(side).memory.frames().shown.pop_front()
    }

    /// Carries frames; how many it took.
    pub(crate) fn turn(&self, now: Duration) -> usize {
        let mut state = self.state();
        state.now = AGE + now;
        let age = state.age();
        let Some(switch) = &mut state.switch else {
            return state.lose();
        };
        let (moved, broken) = switch.turn(age);
        assert_eq!(broken, [], "no client breaks the rules");
        moved
    }

    /// The process at a side ends.
    pub(crate) fn detach(&self, side: Side) {
        let mut state = self.state();
        let (id, age) = (state.station(side).id, state.age());
        state.present().detach(id, age);
    }

    /// The switch ends. What is sent meanwhile is lost.
    pub(crate) fn stop(&self) {
        self.state().switch = None;
    }

    /// A new switch takes the place of the one that has ended. Both processes attach to it with
    /// what they had.
    pub(crate) fn replace(&self) {
        let mut state = self.state();
        assert!(state.switch.is_none(), "there is a switch");
        state.lose();
        state.generation += 1;
        state.began = state.now;
        state.switch = Some(begin(state.addresses, state.generation));
        for side in Side::BOTH {
            let former = state.stations[side as usize].take().expect("attached");
            let mut station = state.attach(side, former.wire);
            let age = state.age();
            for at in &former.ports {
                let again = state.present().open_again(station.id, *at, age);
                assert!(again, "{at} was its own");
            }
            station.ports = former.ports;
            state.stations[side as usize] = Some(station);
        }
    }

    /// Gives the machine at a side a port, until it closes it.
    pub(crate) fn open(&self, side: Side, at: SocketAddr) -> Result<SocketAddr, SwitchError> {
        let mut state = self.state();
        match state.ask(side, Request::OpenPort(at))? {
            Reply::Port(at) => {
                state.station_mut(side).ports.insert(at);
                Ok(at)
            }
            _ => Err(SwitchError::unasked()),
        }
    }

    fn close(&self, side: Side, at: SocketAddr) {
        let mut state = self.state();
        state.station_mut(side).ports.remove(&at);
        // A switch that is away, or from which the process is detached, has no ports of its.
        drop(state.ask(side, Request::ClosePort(at)));
    }

    fn has_port(&self, side: Side, at: SocketAddr) -> bool {
        self.state().station(side).ports.contains(&at)
    }

    fn ask(&self, side: Side, request: Request) -> Result<Reply, SwitchError> {
        self.state().ask(side, request)
    }

    /// What became of all frames, if it is there.
    pub(crate) fn counters(&self) -> Option<Counters> {
        self.state().switch.as_ref().map(Switch::counters)
    }

    /// Drops of the present switch that no machine may cause. A frame to a closed port is allowed:
    /// a RST answers it.
    pub(crate) fn unexpected_drops(&self) -> Option<String> {
        let allowed = Counters {
            drop_no_port: 0,
            ..self.counters()?
        };
        let drops = drops_of(&allowed);
        (!drops.is_empty()).then(|| format!("of the switch: {drops:?}"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("a switch that has not failed")
    }
}

fn begin(addresses: [IpAddr; 2], generation: u64) -> Switch<Memory> {
    let config = Config {
        addresses: addresses.to_vec(),
        ..Config::default()
    };
    Switch::new(config, generation)
}

impl State {
    fn attach(&mut self, side: Side, wire: Wire) -> Station {
        let memory = Memory::new(wire.clone());
        // Without a domain it has no way of its own to the other.
        let identity = Identity {
            uid: USER,
            process: None,
            domain: None,
        };
        let attached = (self.present()).attach(identity, memory.clone(), Some(side.mac()));
        let (id, mac) = attached.expect("a place");
        assert_eq!(mac, side.mac(), "it keeps its address");
        Station {
            id,
            wire,
            memory,
            ports: BTreeSet::new(),
        }
    }

    /// Loses what the machines have sent; how many frames.
    fn lose(&self) -> usize {
        let stations = self.stations.iter().flatten();
        stations
            .map(|station| std::iter::from_fn(|| station.wire.take_sent()).count())
            .sum()
    }

    fn ask(&mut self, side: Side, request: Request) -> Result<Reply, SwitchError> {
        let (id, age) = (self.station(side).id, self.age());
        let switch = self.switch.as_mut().ok_or(SwitchError::Silent)?;
        Ok(switch.handle(id, request, age)?)
    }

    /// Age of the present switch.
    fn age(&self) -> Duration {
        self.now.saturating_sub(self.began)
    }

    fn present(&mut self) -> &mut Switch<Memory> {
        self.switch.as_mut().expect("a switch that is there")
    }

    fn station(&self, side: Side) -> &Station {
        self.stations[side as usize].as_ref().expect("attached")
    }

    fn station_mut(&mut self, side: Side) -> &mut Station {
        self.stations[side as usize].as_mut().expect("attached")
    }
}

/// Memory of a client over the wire of its interface; a clone is a second handle.
#[derive(Clone)]
struct Memory(Arc<Mutex<Frames>>);

struct Frames {
    wire: Wire,
    /// Frames that the switch has and that have not completed.
    taken: Vec<Vec<u8>>,
    /// The first bytes of the last frames that were taken.
    heads: VecDeque<Head>,
    /// Frames that were delivered and not yet shown.
    delivered: VecDeque<Vec<u8>>,
    shown: VecDeque<Vec<u8>>,
}

impl Memory {
    fn new(wire: Wire) -> Self {
        Self(Arc::new(Mutex::new(Frames {
            wire,
            taken: Vec::new(),
            heads: VecDeque::new(),
            delivered: VecDeque::new(),
            shown: VecDeque::new(),
        })))
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.0.lock().expect("a memory that has not failed")
    }
}

impl ClientMemory for Memory {
    /// Its place in `taken`.
    type Sent = usize;

    fn take_sent(&mut self) -> Result<Option<(usize, Head)>, Hostile> {
        let mut frames = self.frames();
        let Some(frame) = frames.wire.take_sent() else {
            return Ok(None);
        };
        let head = Head::copied(frame.len(), |into| {
            into.copy_from_slice(&frame[..into.len()]);
        });
        frames.heads.truncate(FRAMES - 1);
        frames.heads.push_front(head);
        frames.taken.push(frame);
        Ok(Some((frames.taken.len() - 1, head)))
    }

    fn refused(&mut self) -> u64 {
        0
    }

    fn complete(&mut self) {
        self.frames().taken.clear();
    }

    fn deliver(&mut self, head: &Head, from: Option<(&Self, usize)>) -> Result<Delivery, Hostile> {
        let mut frame = head.bytes().to_vec();
        if let Some((from, sent)) = from {
            frame.extend_from_slice(&from.frames().taken[sent][frame.len()..]);
        }
        assert_eq!(frame.len(), head.frame_len(), "a whole frame");
        self.frames().delivered.push_back(frame);
        Ok(Delivery::Delivered)
    }

    fn publish(&mut self) {
        let mut frames = self.frames();
        let Frames {
            delivered, shown, ..
        } = &mut *frames;
        shown.append(delivered);
    }

    fn frames(&self) -> Vec<Head> {
        self.frames().heads.iter().copied().collect()
    }
}

/// Host of an RNIC whose frames go by the switch.
pub(crate) struct SwitchedHost {
    side: Side,
    switch: SimSwitch,
    monitor: InterfaceMonitor,
}

impl SwitchedHost {
    pub(crate) fn new(side: Side, switch: SimSwitch, monitor: InterfaceMonitor) -> Self {
        Self {
            side,
            switch,
            monitor,
        }
    }

    fn hop(&self, remote: SocketAddr) -> Result<[u8; 6], HostError> {
        match self.switch.ask(self.side, Request::Hop(remote))? {
            Reply::Hop(mac) => Ok(mac),
            _ => Err(SwitchError::unasked().into()),
        }
    }
}

impl Host for SwitchedHost {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, HostError> {
        match self.switch.ask(self.side, Request::Addresses)? {
            Reply::Addresses(addresses) => Ok(addresses),
            _ => Err(SwitchError::unasked().into()),
        }
    }

    fn source_to(&self, remote: SocketAddr) -> Result<IpAddr, HostError> {
        match self.switch.ask(self.side, Request::Source(remote.ip()))? {
            Reply::Source(address) => Ok(address),
            _ => Err(SwitchError::unasked().into()),
        }
    }

    fn next_hop(&self, _: SocketAddr, remote: SocketAddr, _: Duration) -> Result<Way, HostError> {
        if self.switch.has_port(self.side, remote) {
            return Ok(NextHop::ThisHost.into());
        }
        self.hop(remote).map(|mac| NextHop::Known(mac).into())
    }

    fn present_hop(
        &self,
        _: SocketAddr,
        remote: SocketAddr,
        _: bool,
    ) -> Result<PresentWay, HostError> {
        Ok(PresentWay {
            next_hop: Some(self.hop(remote)?),
            ..PresentWay::default()
        })
    }

    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        let opened = (self.switch).open(self.side, SocketAddr::new(address, port));
        let local = opened.map_err(port_error)?;
        let hold = OpenPort {
            local,
            side: self.side,
            switch: self.switch.clone(),
        };
        Ok(LocalPort::new(local, Box::new(hold)))
    }

    fn open_port_towards(
        &self,
        address: IpAddr,
        _: SocketAddr,
        _: usize,
    ) -> Result<LocalPort, HostError> {
        self.open_port(address, 0)
    }

    fn monitor(&self) -> Option<InterfaceMonitor> {
        Some(self.monitor.clone())
    }
}

/// The error that the RNIC's own host makes of a refusal.
fn port_error(error: SwitchError) -> HostError {
    match error {
        SwitchError::Refused(Refusal::InUse(at)) => PortError::InUse {
            addr: at.ip(),
            port: at.port(),
        }
        .into(),
        SwitchError::Refused(Refusal::NotHere(addr)) => PortError::AddressNotLocal { addr }.into(),
        other => other.into(),
    }
}

/// A port of an RNIC, which dropping it gives back.
struct OpenPort {
    local: SocketAddr,
    side: Side,
    switch: SimSwitch,
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.switch.close(self.side, self.local);
    }
}

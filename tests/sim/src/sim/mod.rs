//! The simulation: two machines, the link between them, and time.

mod conditions;
mod connecting;
mod time;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use xwarp::cm::MpaConfig;
use xwarp_driver::Wire;
use xwarp_test_kit::netsim::{Direction, Link, Seed};

use xwarp_test_kit::{Answers, Side};

use crate::host::{Host, Kind, MTU};
use crate::plain::PlainPeer;
use crate::switch::{self, SimSwitch};

/// First port that is listened on.
const FIRST_PORT: u16 = 7471;

/// What is at an end of the link.
enum Machine {
    Rnic(Host),
    Plain(PlainPeer),
    /// Nothing that would answer.
    Nobody,
}

/// Two machines on a link in virtual time.
pub struct Sim {
    seed: Seed,
    link: Link,
    machines: [Machine; 2],
    /// Carries frames from each machine to the link, if the machines are processes of one host.
    switch: Option<SimSwitch>,
    now: Duration,
    stale: usize,
    next_port: u16,
    expected_drops: BTreeSet<&'static str>,
}

impl Sim {
    /// Two hosts with RNICs on a perfect link.
    pub fn new(seed: Seed) -> Self {
        Self::with_kinds(seed, [Kind::default(); 2])
    }

    /// Two hosts on a perfect link, over IPv6.
    pub fn over_ipv6(seed: Seed) -> Self {
        let kind = Kind {
            address_of: Side::address_v6,
            ..Kind::default()
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// Two hosts on a perfect link, over IPv4. Each RNIC keeps at most `max_events` asynchronous
    /// events.
    pub fn with_max_events(seed: Seed, max_events: usize) -> Self {
        let kind = Kind {
            max_events,
            ..Kind::default()
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// Two hosts over IPv4, on a link that carries IP packets of up to `mtu` bytes.
    pub fn with_mtu(seed: Seed, mtu: usize) -> Self {
        Self::with_kinds(seed, [Kind::on_a_link(mtu); 2])
    }

    /// Two hosts whose RNICs have `engines` engines each, on a link.
    pub fn with_engines(seed: Seed, engines: usize, mtu: usize) -> Self {
        let kind = Kind {
            engines,
            ..Kind::on_a_link(mtu)
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// Two hosts on a link whose RNICs do not know which of their queues receives the frames of a
    /// connection that they begin.
    pub fn with_answers(seed: Seed, engines: usize, answers: Answers) -> Self {
        let kind = Kind {
            engines,
            answers,
            ..Kind::on_a_link(MTU)
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// Two hosts on a link whose NICs choose another queue for each connection after every `frames`
    /// frames.
    pub fn with_resteering(seed: Seed, engines: usize, frames: usize) -> Self {
        let kind = Kind {
            engines,
            resteers_after: Some(frames),
            ..Kind::on_a_link(MTU)
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// Two hosts on a link whose RNICs both use this configuration of MPA.
    pub fn with_mtu_and_mpa(seed: Seed, mtu: usize, mpa: MpaConfig) -> Self {
        let kind = Kind {
            mpa,
            ..Kind::on_a_link(mtu)
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// Two processes of one host, joined by a software switch of this address. Conditions of the
    /// link apply between the switch and its clients.
    pub fn switched(seed: Seed, address: IpAddr) -> Self {
        let [v4, v6] = switch::LOOPBACK;
        let kind = if address.is_ipv4() {
            Kind {
                switched: Some([address, v6]),
                ..Kind::default()
            }
        } else {
            Kind {
                address_of: Side::address_v6,
                switched: Some([v4, address]),
                ..Kind::default()
            }
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// Two hosts over IPv4, each with its own configuration of MPA.
    pub fn with_mpa(seed: Seed, a: MpaConfig, b: MpaConfig) -> Self {
        let kind = |mpa| Kind {
            mpa,
            ..Kind::default()
        };
        Self::with_kinds(seed, [kind(a), kind(b)])
    }

    fn with_kinds(seed: Seed, [kind_a, kind_b]: [Kind; 2]) -> Self {
        let switch = kind_a.switched.map(SimSwitch::new);
        let (a, wire_a) = Host::new(Side::A, seed, kind_a, switch.as_ref());
        let (b, wire_b) = Host::new(Side::B, seed, kind_b, switch.as_ref());
        let machines = [Machine::Rnic(a), Machine::Rnic(b)];
        Self::with_machines(seed, [wire_a, wire_b], machines, switch)
    }

    /// A host with an RNIC at A, a plain TCP peer at B.
    pub fn with_plain_peer(seed: Seed) -> (Self, PlainPeer) {
        Self::with_mpa_and_plain_peer(seed, MpaConfig::default())
    }

    /// A host with an RNIC of this configuration of MPA at A, a plain TCP peer at B.
    pub fn with_mpa_and_plain_peer(seed: Seed, mpa: MpaConfig) -> (Self, PlainPeer) {
        let kind = Kind {
            mpa,
            ..Kind::default()
        };
        Self::with_kind_and_plain_peer(seed, kind)
    }

    /// A host with an RNIC at A, a plain TCP peer at B. A's listeners keep up to `backlog`
    /// connections; with one engine, as the limit is per engine.
    pub fn with_backlog_and_plain_peer(seed: Seed, backlog: usize) -> (Self, PlainPeer) {
        let kind = Kind {
            backlog,
            engines: 1,
            ..Kind::default()
        };
        Self::with_kind_and_plain_peer(seed, kind)
    }

    fn with_kind_and_plain_peer(seed: Seed, kind: Kind) -> (Self, PlainPeer) {
        let switch = kind.switched.map(SimSwitch::new);
        let (a, wire_a) = Host::new(Side::A, seed, kind, switch.as_ref());
        let (peer, wire_b) = PlainPeer::new(Side::B, seed, switch.clone());
        let machines = [Machine::Rnic(a), Machine::Plain(peer.clone())];
        let sim = Self::with_machines(seed, [wire_a, wire_b], machines, switch);
        (sim, peer)
    }

    fn with_machines(
        seed: Seed,
        wires: [Wire; 2],
        machines: [Machine; 2],
        switch: Option<SimSwitch>,
    ) -> Self {
        let link = if let Some(switch) = &switch {
            switch.link(seed, wires)
        } else {
            let [a, b] = wires;
            Link::new(seed, a, b)
        };
        Self {
            seed,
            link,
            machines,
            switch,
            now: Duration::ZERO,
            stale: 0,
            next_port: FIRST_PORT,
            expected_drops: BTreeSet::new(),
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The host at A.
    pub fn a(&self) -> Host {
        self.host(Side::A)
    }

    /// The host at B.
    pub fn b(&self) -> Host {
        self.host(Side::B)
    }

    /// The host at a side.
    ///
    /// # Panics
    /// If there is none.
    pub fn host(&self, side: Side) -> Host {
        match &self.machines[side as usize] {
            Machine::Rnic(host) => host.clone(),
            Machine::Plain(_) | Machine::Nobody => panic!("there is no RNIC at {side:?}"),
        }
    }

    /// Takes a machine away; frames to it get lost from now on.
    pub fn remove(&mut self, side: Side) {
        if let Machine::Rnic(host) = &self.machines[side as usize] {
            host.carry();
        }
        self.machines[side as usize] = Machine::Nobody;
    }

    /// The process at a side of the switch ends without a word.
    ///
    /// # Panics
    /// If there is no switch.
    pub fn kill(&mut self, side: Side) {
        self.machines[side as usize] = Machine::Nobody;
        self.switch().detach(side);
    }

    /// The switch ends. Frames that are sent from now on are lost.
    ///
    /// # Panics
    /// If there is no switch.
    pub fn stop_switch(&mut self) {
        self.switch().stop();
    }

    /// A new switch takes the place of the one that has ended.
    ///
    /// # Panics
    /// If none has ended.
    pub fn replace_switch(&mut self) {
        self.switch().replace();
    }

    fn switch(&self) -> &SimSwitch {
        self.switch.as_ref().expect("a switch")
    }

    /// Ends the test; all that is known follows when the simulation is dropped.
    fn fail(&self, why: &str) -> ! {
        panic!("{why}; seed {}, virtual time {:?}", self.seed, self.now);
    }

    fn report(&self) -> String {
        let mut text = format!("seed {}, virtual time {:?}\n", self.seed, self.now);
        let mut line = |what: String| writeln!(text, "{what}").unwrap();
        for direction in Direction::ALL {
            line(format!(
                "{direction:?}: {:?}",
                self.link.counters(direction)
            ));
        }
        for (machine, side) in self.machines.iter().zip(Side::BOTH) {
            line(match machine {
                Machine::Rnic(host) => format!("{side:?}: {:?}", host.rnic().counters()),
                Machine::Plain(peer) => format!("{side:?}: {}", peer.report()),
                Machine::Nobody => format!("{side:?}: nobody"),
            });
        }
        if let Some(switch) = &self.switch {
            line(format!("switch: {:?}", switch.counters()));
        }
        line(self.link.trace().to_string());
        text
    }

    /// Drops that the test did not announce.
    fn unexpected_drops(&self) -> Vec<String> {
        let mut unexpected = Vec::new();
        for machine in &self.machines {
            if let Machine::Rnic(host) = machine {
                let mut drops = host.drops();
                drops.retain(|name, _| !self.expected_drops.contains(name.as_str()));
                unexpected.extend(drops.into_iter().map(|(name, n)| format!("{name} = {n}")));
            }
        }
        unexpected.extend(self.switch.as_ref().and_then(SimSwitch::unexpected_drops));
        unexpected
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.report());
            return;
        }
        let unexpected = self.unexpected_drops();
        assert!(
            unexpected.is_empty(),
            "unexpected drops: {unexpected:?}\n{}",
            self.report()
        );
    }
}

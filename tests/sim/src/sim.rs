//! The simulation: two machines, the link between them, and time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use xwarp::{MpaConfig, QpConfig, SendRequest, WrId};
use xwarp_netsim::{Direction, Link, Seed};
use xwarp_tcp::Instant;

use crate::end::End;
use crate::host::{Host, Kind, Place};
use crate::plain::PlainPeer;

/// Virtual time that a condition may take to come true.
const LIMIT: Duration = Duration::from_mins(10);
/// Turns within one instant after which nothing is expected to come to rest any more.
const LIVELOCK: usize = 5_000_000;
/// Deadlines in a row that had passed before and led to nothing.
const STALE_DEADLINES: usize = 10_000;
/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_mins(2);
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

    /// The same over IPv6.
    pub fn over_ipv6(seed: Seed) -> Self {
        let kind = Kind {
            address_of: Place::address_v6,
            ..Kind::default()
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// The same over IPv4 on a link that carries IP packets of so many octets.
    pub fn with_mtu(seed: Seed, mtu: usize) -> Self {
        let kind = Kind {
            mtu,
            ..Kind::default()
        };
        Self::with_kinds(seed, [kind; 2])
    }

    /// The same over IPv4, where A and B speak MPA like this.
    pub fn with_mpa(seed: Seed, a: MpaConfig, b: MpaConfig) -> Self {
        let kind = |mpa| Kind {
            mpa,
            ..Kind::default()
        };
        Self::with_kinds(seed, [kind(a), kind(b)])
    }

    fn with_kinds(seed: Seed, [kind_a, kind_b]: [Kind; 2]) -> Self {
        let (a, wire_a) = Host::new(Place::A, seed, kind_a);
        let (b, wire_b) = Host::new(Place::B, seed, kind_b);
        let link = Link::new(seed, wire_a, wire_b);
        Self::with_machines(link, [Machine::Rnic(a), Machine::Rnic(b)])
    }

    /// A host with an RNIC at A, a plain TCP peer at B.
    pub fn with_plain_peer(seed: Seed) -> (Self, PlainPeer) {
        Self::with_mpa_and_plain_peer(seed, MpaConfig::default())
    }

    /// The same, where A speaks MPA like this.
    pub fn with_mpa_and_plain_peer(seed: Seed, mpa: MpaConfig) -> (Self, PlainPeer) {
        let kind = Kind {
            mpa,
            ..Kind::default()
        };
        let (a, wire_a) = Host::new(Place::A, seed, kind);
        let (peer, wire_b) = PlainPeer::new(Place::B, seed);
        let link = Link::new(seed, wire_a, wire_b);
        let machines = [Machine::Rnic(a), Machine::Plain(peer.clone())];
        (Self::with_machines(link, machines), peer)
    }

    fn with_machines(link: Link, machines: [Machine; 2]) -> Self {
        Self {
            seed: link.seed(),
            link,
            machines,
            now: Duration::ZERO,
            stale: 0,
            next_port: FIRST_PORT,
            expected_drops: BTreeSet::new(),
        }
    }

    /// The same with this delay in either direction.
    #[must_use]
    pub fn one_way_delay(mut self, delay: Duration) -> Self {
        self.link
            .change(|conditions| conditions.one_way_delay = delay);
        self
    }

    /// The same with this rate in either direction, in bits per second.
    #[must_use]
    pub fn rate(mut self, bits_per_second: u64) -> Self {
        self.link
            .change(|conditions| conditions.rate = Some(bits_per_second));
        self
    }

    /// Two RNICs half a millisecond apart, where 5 % of the frames are lost, 10 % come late and 10 % twice.
    pub fn on_a_bad_link(seed: Seed) -> Self {
        Self::new(seed)
            .one_way_delay(Duration::from_micros(500))
            .loss(0.05)
            .reorder(0.1)
            .duplicate(0.1)
    }

    /// The same with this probability of loss.
    #[must_use]
    pub fn loss(mut self, probability: f64) -> Self {
        self.link.change(|conditions| conditions.loss = probability);
        self
    }

    /// The same with this probability that a frame is held back. One that comes after the repetition of one in front of it looks
    /// old by its timestamp (RFC 7323 §5.3).
    #[must_use]
    pub fn reorder(mut self, probability: f64) -> Self {
        self.link
            .change(|conditions| conditions.reorder = probability);
        self.expecting(&["drop_old_timestamp"])
    }

    /// The same with this probability that a frame arrives twice.
    #[must_use]
    pub fn duplicate(mut self, probability: f64) -> Self {
        self.link
            .change(|conditions| conditions.duplicate = probability);
        self
    }

    /// The same with this probability that `bits` bits of a frame are flipped. Drops for broken headers are expected then.
    #[must_use]
    pub fn corrupt(mut self, probability: f64, bits: u32) -> Self {
        self.link.change(|conditions| {
            conditions.corrupt = probability;
            conditions.corrupt_bits = bits;
        });
        self.expecting(&[
            "drop_bad_checksum",
            "drop_bad_ip",
            "drop_bad_tcp",
            "drop_fragment",
            "drop_not_ip",
            "drop_not_tcp",
        ])
    }

    /// The same, with drops of these names expected.
    #[must_use]
    pub fn expecting(mut self, drops: &[&'static str]) -> Self {
        self.expected_drops.extend(drops);
        self
    }

    /// The link.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// From now on nothing arrives any more.
    pub fn cut_link(&mut self) {
        self.link.change(|conditions| conditions.loss = 1.0);
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The host at A.
    pub fn a(&self) -> Host {
        self.host(Place::A)
    }

    /// The host at B.
    pub fn b(&self) -> Host {
        self.host(Place::B)
    }

    /// The host at an end.
    ///
    /// # Panics
    /// If there is none.
    pub fn host(&self, place: Place) -> Host {
        match &self.machines[place as usize] {
            Machine::Rnic(host) => host.clone(),
            Machine::Plain(_) | Machine::Nobody => panic!("there is no RNIC at {place:?}"),
        }
    }

    /// Takes a machine away; frames to it get lost from now on.
    pub fn remove(&mut self, place: Place) {
        self.machines[place as usize] = Machine::Nobody;
    }

    /// Two connected ends, of which either may send.
    pub fn connected_pair(&mut self) -> (End, End) {
        self.connected_pair_with(&QpConfig::default())
    }

    /// The same with other limits than the default.
    pub fn connected_pair_with(&mut self, config: &QpConfig) -> (End, End) {
        let (mut a, mut b) = (self.a().end(config), self.b().end(config));
        self.connect(&mut a, &mut b);
        (a, b)
    }

    /// Connects `a` to `b`, and lets `a` say a first word, which `b` must wait for (RFC 5044 §7.1.2): an empty Write.
    pub fn connect(&mut self, a: &mut End, b: &mut End) {
        self.connect_silently(a, b);
        let nowhere = xwarp::RemoteAddress {
            stag: xwarp::Stag::PLACEHOLDER,
            to: 0,
        };
        let heard = |end: &End| end.host().rnic().counters().unwrap().rdma.fpdus_in;
        let before = heard(b);
        a.post(SendRequest::write(WrId(0), xwarp::Sgl::new(), nowhere).unsignaled());
        self.run_until("the first FPDU", || heard(b) > before);
    }

    /// Connects `a` to `b`; nobody has sent an FPDU yet.
    pub fn connect_silently(&mut self, a: &mut End, b: &mut End) {
        let at = b.host().at(self.new_port());
        let mut listener = b.host().rnic().listen(at).unwrap();
        let mut connecting = a.qp.begin_connect(at, b"hello", CONNECT_LIMIT).unwrap();
        let request = self.wait_for("a connection request", || listener.try_accept());
        assert_eq!(request.private_data(), b"hello");
        request.accept(&mut b.qp, b"welcome").unwrap();
        let answer = self.wait_for("the answer to a connection request", || {
            connecting.try_finish()
        });
        assert_eq!(answer.unwrap(), b"welcome");
    }

    /// A port that nobody has listened on.
    pub fn new_port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    /// Lets time pass until `condition` gives something.
    ///
    /// # Panics
    /// If that takes more virtual time than any test should need.
    pub fn wait_for<T>(&mut self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let limit = self.now + LIMIT;
        loop {
            self.settle();
            if let Some(value) = condition() {
                return value;
            }
            if !self.advance(limit) {
                self.fail(&format!("waited in vain for {what}"));
            }
        }
    }

    /// Lets time pass until `condition` holds.
    pub fn run_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        self.wait_for(what, || condition().then_some(()));
    }

    /// Lets time pass until nothing is on its way and no timer runs.
    pub fn run_until_idle(&mut self) {
        let limit = self.now + LIMIT;
        self.settle();
        while self.advance(limit) {
            self.settle();
        }
        if self.next_event().is_some() {
            self.fail("the machines do not come to rest");
        }
    }

    /// Lets this much time pass.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while self.advance(until) {
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    /// Does all that can be done at this instant.
    fn settle(&mut self) {
        for _ in 0..LIVELOCK {
            if self.link.carry(self.now) + self.step_machines() == 0 {
                return;
            }
        }
        self.fail("the machines are busy for ever within one instant");
    }

    fn step_machines(&self) -> usize {
        let now = Instant::ORIGIN + self.now;
        let step = |machine: &Machine| match machine {
            Machine::Rnic(host) => host.rnic().step_at(now),
            Machine::Plain(peer) => peer.step(now),
            Machine::Nobody => 0,
        };
        self.machines.iter().map(step).sum()
    }

    /// Moves time to the next event; false when there is none up to `limit`.
    fn advance(&mut self, limit: Duration) -> bool {
        let Some(next) = self.next_event().filter(|next| *next <= limit) else {
            return false;
        };
        if next > self.now {
            self.stale = 0;
            self.now = next;
            return true;
        }
        // A deadline that has passed, with nothing left to do: timers count whole microseconds.
        self.stale += 1;
        if self.stale > STALE_DEADLINES {
            self.fail("a deadline has passed, but nothing is done about it");
        }
        self.now += Duration::from_micros(1);
        self.now <= limit
    }

    fn next_event(&self) -> Option<Duration> {
        let deadline = |machine: &Machine| match machine {
            Machine::Rnic(host) => host.rnic().next_deadline().unwrap(),
            Machine::Plain(peer) => peer.next_deadline(),
            Machine::Nobody => None,
        };
        let deadlines = self.machines.iter().filter_map(deadline);
        deadlines
            .map(Instant::since_origin)
            .chain(self.link.next_arrival())
            .min()
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
        for (machine, place) in self.machines.iter().zip([Place::A, Place::B]) {
            line(match machine {
                Machine::Rnic(host) => format!("{place:?}: {:?}", host.rnic().counters()),
                Machine::Plain(peer) => format!("{place:?}: {}", peer.report()),
                Machine::Nobody => format!("{place:?}: nobody"),
            });
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

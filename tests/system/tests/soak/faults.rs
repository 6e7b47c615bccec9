//! Faults of the network, one after the other, as a seed says.

use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use xwarp_system_tests::eventually;
use xwarp_system_tests::impair::{Bridged, DEV, Flood, Hostile, Rule, Side};
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::server::PORT;

/// The longest outage in milliseconds, and the shortest.
const LONGEST: u64 = 2000;
const SHORTEST: u64 = 20;
/// Limit beyond which a long outage is the machine's doing: the kernel changes one interface at a
/// time, for all processes.
const TOO_LONG: Duration = Duration::from_secs(3);
/// How long the network is left alone at least. After an outage it is twice as long as that, too,
/// so that a segment which is sent again at doubling intervals finds it whole.
const CALM: Duration = Duration::from_millis(500);
/// How long segments are lost, repeated and late.
const BAD_WEATHER: Duration = Duration::from_secs(2);
/// SYNs, and as many ACKs, that strangers send per second, and for how long.
const FLOOD_RATE: u32 = 5000;
const FLOOD: Duration = Duration::from_secs(2);

/// How often what has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) outages: u64,
    pub(crate) bad_weathers: u64,
    pub(crate) floods: u64,
    pub(crate) calms: u64,
}

/// The faults of a laboratory.
pub(crate) struct Faults<'a> {
    hosts: &'a Bridged,
    rng: Rng,
    told: Told,
    began: Instant,
}

impl<'a> Faults<'a> {
    pub(crate) fn new(hosts: &'a Bridged, seed: Seed) -> Self {
        Self {
            hosts,
            rng: Rng::new(seed, 1),
            told: Told::default(),
            began: Instant::now(),
        }
    }

    /// Prints what happens now, so that a failure can be seen beside its causes.
    fn say(&self, what: &str) {
        println!("{:8.3} s: {what}", self.began.elapsed().as_secs_f64());
    }

    pub(crate) fn told(&self) -> Told {
        self.told
    }

    /// One of them, and calm.
    pub(crate) fn next(&mut self) {
        let side = self.side();
        match self.rng.below(5) {
            0 => self.outage("cable", side, |hosts, up| hosts.set_cable(side, up)),
            1 => self.outage("interface", side, |hosts, up| hosts.set_interface(side, up)),
            2 => self.bad_weather(side),
            3 => self.flood(),
            _ => {
                self.told.calms += 1;
                thread::sleep(CALM);
            }
        }
        thread::sleep(CALM);
    }

    fn side(&mut self) -> Side {
        if self.rng.chance(0.5) {
            Side::A
        } else {
            Side::B
        }
    }

    fn outage(&mut self, what: &str, side: Side, switch: impl Fn(&Bridged, bool)) {
        let time = Duration::from_millis(SHORTEST + self.rng.below(LONGEST - SHORTEST));
        self.say(&format!("the {what} of {side:?} is down for {time:?}"));
        let began = Instant::now();
        switch(self.hosts, false);
        thread::sleep(time);
        switch(self.hosts, true);
        let time = began.elapsed();
        if time > TOO_LONG {
            self.say(&format!("which took {time:?}: the kernel was busy"));
        }
        thread::sleep(2 * time);
        self.told.outages += 1;
    }

    /// A link that loses, repeats and delays segments of one side.
    fn bad_weather(&mut self, side: Side) {
        let rule = Rule {
            loss: 0.03,
            duplicate: 0.02,
            reorder: 0.02,
            ..Rule::new(Seed(self.rng.draw()))
        };
        self.say(&format!("bad weather at {side:?} for {BAD_WEATHER:?}"));
        let impaired = self.hosts.impair(side, rule);
        thread::sleep(BAD_WEATHER);
        // All connections may be waiting for a timeout that outages before this have doubled.
        eventually("a segment is lost", || impaired.fates().lost > 0);
        self.told.bad_weathers += 1;
    }

    /// Strangers send SYNs and ACKs to the server, by the client's cable.
    fn flood(&mut self) {
        let hostile = Hostile {
            target: SocketAddrV4::new(Side::B.ipv4(), PORT),
            mac: Side::B.mac(),
            syns: FLOOD_RATE,
            acks: FLOOD_RATE,
            seed: Seed(self.rng.draw()),
        };
        self.say(&format!("a flood for {FLOOD:?}"));
        let flood = self.hosts.a.call(move || Flood::start(DEV, hostile));
        let flood = flood.expect("root may send");
        thread::sleep(FLOOD);
        let sent = flood.finish().expect("it could send");
        assert!(sent.syns > 0 && sent.acks > 0);
        self.told.floods += 1;
    }
}

//! Tail loss: a message's last segment that is lost is repaired by a tail loss probe, which is sent
//! in time, with the engine on both ends of a real link.
//!
//! What decides is the engine's own timer, and by what the loss was repaired: how late a busy
//! machine lets the engine run is not its fault. Times are printed. Both ends sleep when they have
//! nothing to do, so that they soon run again. The time of a repair is proved in virtual time
//! (tcp/tests/link/tail.rs).

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::{Bridged, Impaired, Rule, Side};
use xwarp_system_tests::{Exclusive, LOCK};
use xwarp_tcp::{ConnId, Event};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::Seed;

use crate::engine::Engine;

const PORT: u16 = 5005;
/// Segments of a message.
const LENGTHS: [u16; 4] = [1, 2, 3, 8];
/// Connections in each of which one message is repaired.
const REPAIRS: u16 = 40;
/// Messages before it that are not lost.
const WARM_UP: usize = 20;
/// What the timer of a probe may be set to beyond two round trips.
const FLOOR: Duration = Duration::from_millis(5);

/// A message, from when it is written until all of it is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Message {
    time: Duration,
    /// The longest that the engine's timer was set to before it sent a tail loss probe.
    timer: Duration,
    retransmissions: u64,
    tail_probes: u64,
}

/// A message whose last segment was lost.
#[derive(Debug)]
struct Repair {
    segments: u16,
    /// The longest of the handshake and of the messages before, none of which was lost. The
    /// engine's SRTT is a mean of such times.
    round_trip: Duration,
    message: Message,
}

impl Repair {
    /// What the timer may be set to.
    fn limit(&self) -> Duration {
        2 * self.round_trip + FLOOR
    }

    /// True if a tail loss probe repaired it, and nothing else was sent again.
    fn is_by_probe(&self) -> bool {
        (self.message.tail_probes, self.message.retransmissions) == (1, 1)
    }
}

/// The end that sends.
struct Sayer {
    engine: Engine,
    /// Takes the number of the segment to lose, and answers once its loss is set up.
    loser: (Sender<u16>, Receiver<()>),
}

impl Sayer {
    /// Sends a message of full segments.
    fn say(&mut self, conn: ConnId, segments: u16) -> Message {
        let counted = self.engine.stack.counters();
        let data = vec![7; usize::from(segments) * self.engine.conn(conn).emss()];
        let began = Instant::now();
        assert_eq!(self.engine.write(conn, &data), data.len());
        let now = self.engine.now();
        self.engine.stack.transmit(now).expect("a sane kernel");
        let (mut deadline, mut timer) = (None, Duration::ZERO);
        self.engine.run(|engine, _| {
            let probed = engine.stack.counters().tail_probes > counted.tail_probes;
            let next = engine.stack.next_deadline();
            if let Some(next) = next.filter(|_| !probed && deadline != next) {
                timer = timer.max(next - engine.now());
            }
            deadline = next;
            engine.conn(conn).unacked() == 0
        });
        let counters = self.engine.stack.counters();
        Message {
            time: began.elapsed(),
            timer,
            retransmissions: counters.retransmissions - counted.retransmissions,
            tail_probes: counters.tail_probes - counted.tail_probes,
        }
    }

    /// Sends messages over a connection of their own, the last of which loses its last segment.
    fn repair(&mut self, number: u16) -> Repair {
        let segments = LENGTHS[usize::from(number) % LENGTHS.len()];
        let began = Instant::now();
        let conn = self.engine.connect(44_000 + number, PORT);
        self.engine.until_connected();
        let connected = began.elapsed();
        let times = (0..WARM_UP).map(|_| self.say(conn, segments).time);
        let round_trip = times.fold(connected, Duration::max);
        self.loser.0.send(segments).expect("the test waits");
        self.loser.1.recv().expect("the test waits");
        let message = self.say(conn, segments);
        let now = self.engine.now();
        self.engine.stack.close(conn, now);
        self.engine
            .run(|_, event| matches!(event, Some(Event::Closed { .. })));
        Repair {
            segments,
            round_trip,
            message,
        }
    }
}

/// Takes all that comes until all connections have ended.
fn hear(engine: &mut Engine) {
    let (mut data, mut ended) = (Vec::new(), 0);
    engine.run(|engine, event| {
        match event {
            Some(Event::Readable(conn)) => {
                data.clear();
                engine.read(conn, &mut data);
            }
            Some(Event::PeerClosed(conn)) => {
                let now = engine.now();
                engine.stack.close(conn, now);
            }
            Some(Event::Closed { .. }) => ended += 1,
            _ => {}
        }
        ended == REPAIRS
    });
    engine.check();
}

/// Has A send to B, and loses what it asks for.
fn repairs(hosts: &Bridged, impaired: &Impaired<'_>) -> Vec<Repair> {
    let (ready, is_ready) = mpsc::channel();
    let hearing = hosts.b.begin(move || {
        let mut engine = Engine::open_at(Side::B, XdpMode::Native).sleeping();
        engine.listen(PORT);
        ready.send(()).expect("the test waits");
        hear(&mut engine);
    });
    is_ready.recv().expect("a listener");
    let ((asks, asked), (answers, answered)) = (mpsc::channel(), mpsc::channel());
    let saying = hosts.a.begin(move || {
        let mut sayer = Sayer {
            engine: Engine::open(XdpMode::Native).sleeping(),
            loser: (asks, answered),
        };
        let repairs: Vec<Repair> = (0..REPAIRS).map(|number| sayer.repair(number)).collect();
        sayer.engine.check();
        repairs
    });
    for segments in asked {
        impaired.set_rule(Rule {
            lost_number: segments.into(),
            ..Rule::new(Seed(1))
        });
        answers.send(()).expect("A waits");
    }
    let repairs = saying.recv().expect("repairs");
    hearing.recv().expect("an end in order");
    repairs
}

#[test]
fn lost_tail_is_probed_within_two_round_trips_and_5_ms() {
    needs_root!();
    let _alone = Exclusive::wait_for(LOCK);
    let hosts = Bridged::new();
    let impaired = hosts.impair(Side::A, Rule::new(Seed(1)));
    let repairs = repairs(&hosts, &impaired);
    assert_eq!(impaired.fates().lost, u64::from(REPAIRS));
    for segments in LENGTHS {
        let mut alike: Vec<&Repair> = (repairs.iter())
            .filter(|repair| repair.segments == segments)
            .collect();
        alike.sort_by_key(|repair| repair.message.time);
        println!("{segments} segments: {alike:#?}");
        for repair in &alike {
            assert!(repair.message.timer <= repair.limit(), "{repair:?}");
        }
        // An end that waits for a processor gets segments again without need.
        let by_probe = alike.iter().filter(|repair| repair.is_by_probe());
        assert!(by_probe.count() > alike.len() / 4, "{alike:?}");
    }
}

//! Loss of an application's last segments: no later segment can reveal it.

use std::time::Duration;

use xwarp_tcp::{ConnId, Event, Instant, StackConfig};
use xwarp_test_kit::netsim::{Direction, Link, Seed};
use xwarp_test_kit::{Endpoint, Side};

use crate::pair::{FRAMES, address, path};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// Two stacks with a connection, on a link that loses chosen frames.
struct Talk {
    hosts: [Endpoint; 2],
    conns: [Option<ConnId>; 2],
    link: Link,
    now: Duration,
}

impl Talk {
    fn new(round_trip: Duration, config: &StackConfig) -> Self {
        let hosts = Side::BOTH.map(|side| {
            let config = StackConfig {
                mac: side.mac(),
                seed: Some(3),
                ..config.clone()
            };
            Endpoint::new(FRAMES, config)
        });
        let [wire_a, wire_b] = hosts.each_ref().map(|host| host.wire.clone());
        let mut talk = Self {
            hosts,
            conns: [None, None],
            link: Link::new(Seed(1), wire_a, wire_b).one_way_delay(round_trip / 2),
            now: Duration::from_secs(1),
        };
        talk.connect();
        talk
    }

    fn connect(&mut self) {
        let now = Instant::ORIGIN + self.now;
        let [a, b] = &mut self.hosts;
        b.stack.listen(address(Side::B), 4).unwrap();
        self.conns[0] = Some(a.stack.connect(path(), now).unwrap());
        self.run(|talk| talk.conns[1].is_some());
    }

    /// Lets time pass until `done` returns true. Returns how long that took.
    fn run(&mut self, done: impl Fn(&mut Self) -> bool) -> Duration {
        let start = self.now;
        for _ in 0..100_000 {
            if done(self) {
                return self.now.saturating_sub(start);
            }
            if self.turn() == 0 {
                self.wait();
            }
        }
        let counters = self.hosts.each_ref().map(|host| host.stack.counters());
        panic!("no end: {counters:?}");
    }

    fn turn(&mut self) -> usize {
        let now = Instant::ORIGIN + self.now;
        let mut done = self.link.carry(self.now);
        for (host, conn) in self.hosts.iter_mut().zip(&mut self.conns) {
            done += host.step(now);
            for event in host.events() {
                if let Event::Incoming { conn: incoming, .. } = event {
                    *conn = Some(incoming);
                }
            }
            if let Some(conn) = *conn {
                let mut conn = host.conn(conn);
                conn.consume(conn.readable_len());
            }
        }
        done
    }

    fn wait(&mut self) {
        let deadlines = self.hosts.iter();
        let next = deadlines
            .filter_map(|host| host.stack.next_deadline())
            .map(Instant::since_origin)
            .chain(self.link.next_arrival())
            .min();
        self.now = next.expect("something to wait for").max(self.now + US);
    }

    /// Sends `segments` segments. Returns the time until all are acknowledged.
    fn say(&mut self, segments: usize) -> Duration {
        let (conn, now) = (self.conns[0].unwrap(), Instant::ORIGIN + self.now);
        for _ in 0..segments {
            assert!(self.hosts[0].write(conn, &[1; 1448], now), "room");
        }
        self.hosts[0].stack.transmit(now).unwrap();
        self.run(|talk| talk.hosts[0].conn(conn).unacked() == 0)
    }

    /// Sends `segments` segments, the last of which is lost. Returns the time until all are
    /// acknowledged.
    fn say_and_lose_the_tail(&mut self, segments: usize) -> Duration {
        let mut left = segments;
        self.link.lane(Direction::AToB).drop_if(move |frame| {
            let data = frame.len() > 1000;
            left = left.wrapping_sub(usize::from(data));
            data && left == 0
        });
        let time = self.say(segments);
        self.link.lane(Direction::AToB).drop_no_more();
        time
    }
}

#[test]
fn lost_tail_is_repaired_within_two_round_trips_and_5_ms() {
    for round_trip in [20 * US, 100 * US, MS, 2 * MS, 5 * MS, 10 * MS] {
        for segments in [1, 2, 3, 8] {
            let mut talk = Talk::new(round_trip, &StackConfig::default());
            for _ in 0..30 {
                talk.say(1); // so that the variance is the path's
            }
            let time = talk.say_and_lose_the_tail(segments);
            let what = format!("{segments} segments, a round trip of {round_trip:?}: {time:?}");
            assert!(time <= 2 * round_trip + 5 * MS + 20 * US, "{what}");
            let counters = talk.hosts[0].stack.counters();
            assert_eq!(counters.retransmissions, 1, "{what}: {counters:?}");
        }
    }
}

#[test]
fn repaired_tail_costs_one_segment_and_no_timeout() {
    let mut talk = Talk::new(100 * US, &StackConfig::default());
    talk.say(8);
    talk.say_and_lose_the_tail(8);
    let counters = talk.hosts[0].stack.counters();
    assert_eq!((counters.tail_probes, counters.retransmissions), (1, 1));
}

#[test]
fn floor_is_what_a_tail_waits_for_beyond_the_round_trip() {
    let patient = StackConfig {
        min_rto: Duration::from_secs(1),
        ..StackConfig::default()
    };
    let mut talk = Talk::new(100 * US, &patient);
    talk.say(8);
    let time = talk.say_and_lose_the_tail(1);
    assert!(
        time >= Duration::from_secs(1) && time < Duration::from_millis(1001),
        "{time:?}"
    );
}

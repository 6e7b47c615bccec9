//! Memory of the stack after connections have ended.

use std::time::Duration;

use xwarp_driver::{MemoryIo, Wire};

use super::Stack;
use crate::config::{Path, StackConfig};
use crate::event::{ConnId, Event};
use crate::time::Instant;

struct Endpoints {
    ends: [(Stack, Wire); 2],
    now: Instant,
}

impl Endpoints {
    fn new() -> Self {
        let end = |last| {
            let (io, wire) = MemoryIo::new(64).unwrap();
            let config = StackConfig {
                mac: [2, 0, 0, 0, 0, last],
                ..StackConfig::default()
            };
            (Stack::new(Box::new(io), config), wire)
        };
        let now = Instant::ORIGIN + Duration::from_secs(1);
        let mut ends = [end(1), end(2)];
        ends[1].0.listen(path().remote, 4).unwrap();
        Self { ends, now }
    }

    /// Runs both stacks until no frame is in flight, and returns the second one's events.
    fn settle(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..20 {
            self.now = self.now + Duration::from_micros(100);
            let [(a, to_b), (b, to_a)] = &mut self.ends;
            a.step(self.now, 64).unwrap();
            b.step(self.now, 64).unwrap();
            while let Some(frame) = to_b.take_sent() {
                to_a.deliver(frame);
            }
            while let Some(frame) = to_a.take_sent() {
                to_b.deliver(frame);
            }
            while a.poll_event().is_some() {}
            events.extend(std::iter::from_fn(|| b.poll_event()));
        }
        events
    }

    /// Opens a connection from the first stack, which also closes it first.
    fn connect_and_close(&mut self) {
        let now = self.now;
        let a: ConnId = self.ends[0].0.connect(path(), now).unwrap();
        let events = self.settle();
        let [Event::Incoming { conn: b, .. }] = events[..] else {
            panic!("{events:?}");
        };
        let now = self.now;
        self.ends[0].0.close(a, now);
        self.settle();
        let now = self.now;
        self.ends[1].0.close(b, now);
        self.settle();
    }
}

fn path() -> Path {
    Path {
        local: "10.0.0.1:40000".parse().unwrap(),
        remote: "10.0.0.2:4791".parse().unwrap(),
        next_hop: [2, 0, 0, 0, 0, 2],
        metrics: crate::config::RouteMetrics::default(),
    }
}

#[test]
fn connections_that_have_rested_leave_nothing() {
    const ROUNDS: usize = if cfg!(miri) { 5 } else { 100 };
    let mut endpoints = Endpoints::new();
    for _ in 0..ROUNDS {
        endpoints.connect_and_close();
        assert_eq!(endpoints.ends[0].0.connection_count(), 1, "in TIME-WAIT");
        endpoints.now = endpoints.now + Duration::from_secs(11);
        endpoints.settle();
        assert_eq!(endpoints.ends[0].0.connection_count(), 0);
    }
    let resting = endpoints.ends[0].0.time_wait_len();
    assert!(resting <= 3, "{resting} are remembered");
}

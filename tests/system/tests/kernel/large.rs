//! Large segments on a real link, with the engine on both ends: how many can be in flight in either
//! direction.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::{Bridged, Side};
use xwarp_system_tests::{Exclusive, LOCK, eventually};
use xwarp_tcp::{CongestionControl, ConnId, Event, StackConfig};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::engine::Engine;

const PORT: u16 = 5007;
/// Windows that are filled one after the other. The first ACK of each, by a segment at least, makes
/// the next one larger: in the end the peer's window is what counts.
const ROUNDS: usize = 40;
/// Bytes of the IPv4 and TCP headers with timestamps.
const HEADERS: usize = 52;

/// Its window grows by slow start as long as nothing is lost. However long a peer has to wait for a
/// processor, nothing is repeated.
fn open(side: Side) -> Engine {
    let config = StackConfig {
        congestion: CongestionControl::NewReno,
        min_rto: Duration::from_secs(10),
        ..StackConfig::default()
    };
    Engine::open_with(side, XdpMode::Native, &config)
}

/// Turns until there is a connection.
fn accept(engine: &mut Engine) -> ConnId {
    let mut accepted = None;
    engine.run(|_, event| {
        if let Some(Event::Incoming { conn, .. }) = event {
            accepted = Some(conn);
        }
        accepted.is_some()
    });
    accepted.expect("turned until there is one")
}

/// Receives as many bytes as `sent` announces, round by round. Answers each round with one byte,
/// whose segment also advertises the reopened window. Returns all that it has received.
fn take(engine: &mut Engine, sent: &Receiver<usize>) -> Vec<u8> {
    let conn = accept(engine);
    let (mut received, mut wanted) = (Vec::new(), 0);
    for round in sent {
        wanted += round;
        engine.run(|engine, _| {
            engine.read(conn, &mut received);
            received.len() == wanted
        });
        assert_eq!(engine.write(conn, &[0]), 1);
        let now = engine.now();
        engine.stack.transmit(now).expect("a sane kernel");
    }
    received
}

/// Sends B the number of new bytes, and turns the engine until B has taken them and answered.
fn have_taken(engine: &mut Engine, conn: ConnId, bytes: usize, sent: &Sender<usize>) {
    sent.send(bytes).expect("a receiver");
    let mut answers = Vec::new();
    engine.run(|engine, _| {
        engine.read(conn, &mut answers);
        !answers.is_empty()
    });
}

/// Fills the window and has it taken, again and again; how many segments it had room for in the
/// end.
fn fill(engine: &mut Engine, conn: ConnId, data: &[u8], sent: &Sender<usize>) -> usize {
    let (mut left, mut segments) = (data, 0);
    for _ in 0..ROUNDS {
        let written = engine.write(conn, left);
        assert_eq!(engine.conn(conn).unacked(), written);
        segments = written / engine.conn(conn).emss();
        left = &left[written..];
        have_taken(engine, conn, written, sent);
        assert_eq!(engine.conn(conn).unacked(), 0);
    }
    // A peer that waits for a processor gets the last segment again (RFC 8985 §7), and reports it
    // as a duplicate.
    eventually("all that was sent again had arrived", || {
        have_taken(engine, conn, 0, sent);
        let counters = engine.stack.counters();
        counters.retransmissions == counters.duplicates_reported
    });
    segments
}

/// Segments that A can send before B, which does not turn meanwhile, acknowledges any.
fn in_flight(hosts: &Bridged, mtu: usize) -> usize {
    let (ready, is_ready) = mpsc::channel();
    let (sent, arrives) = mpsc::channel();
    let receiving = hosts.b.begin(move || {
        let mut engine = open(Side::B);
        engine.listen(PORT);
        ready.send(()).expect("the test waits");
        let received = take(&mut engine, &arrives);
        engine.check();
        received
    });
    is_ready.recv().expect("a listener");
    let data = Rng::new(Seed(6), 0).bytes(ROUNDS << 20);
    let stream = data.clone();
    let segments = hosts.a.call(move || {
        let mut engine = open(Side::A);
        let conn = engine.connect(46_000, PORT);
        engine.until_connected();
        assert_eq!(engine.conn(conn).emss(), mtu - HEADERS);
        let segments = fill(&mut engine, conn, &stream, &sent);
        engine.check();
        segments
    });
    let received = receiving.recv().expect("what came");
    assert!(received == data[..received.len()], "other bytes");
    segments
}

#[test]
fn sixteen_segments_are_in_flight_however_large_they_are() {
    needs_root!();
    for (mtu, segments) in [(9000, 29), (65_535, 16)] {
        let _alone = Exclusive::wait_for(LOCK);
        let hosts = Bridged::with_mtu(mtu);
        assert_eq!(in_flight(&hosts, mtu), segments, "MTU {mtu}");
    }
}

//! Segments of TCP: a stream in bursts from one stack to another, each over an interface in memory,
//! whose copies are counted as well.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use xwarp_tcp::{ConnId, Event, Instant, Path, StackConfig};
use xwarp_test_kit::{Endpoint, Side, carry};

use crate::cases::FPDUS;

/// The names of what is counted, [`FPDUS`] segments each: of the only connection, and of one among
/// [`CROWD`] more.
pub(crate) const NAMES: [&str; 4] = [
    "transmit_1448",
    "receive_1448",
    "transmit_crowded",
    "receive_crowded",
];
/// Connections that are established and idle.
const CROWD: u16 = 10_000;
/// Bytes of payload in a full segment at an MTU of 1500, with timestamps.
const PAYLOAD: usize = 1448;
/// Segments of a burst, which is acknowledged once.
const BURST: usize = 25;
/// Bursts before anything counts: the congestion window has its size then.
const WARM_UP: usize = 40;
const FRAMES: usize = 512;
const BUDGET: usize = 64;
const HALF_TRIP: Duration = Duration::from_micros(20);
const SERVER: SocketAddr = SocketAddr::new(Side::B.address(), 4791);

fn endpoint(side: Side) -> Endpoint {
    let config = StackConfig {
        mac: side.mac(),
        seed: Some(1),
        max_connections: usize::from(CROWD) + 1,
        ..StackConfig::default()
    };
    Endpoint::new(FRAMES, config)
}

/// A turn whose events stay where they are: [`Endpoint::step`] would take them within what is
/// counted.
fn turn(endpoint: &mut Endpoint, now: Instant) {
    let done = endpoint.stack.step(now, BUDGET);
    black_box(done.expect("an interface in memory"));
}

/// The connection that has just been established.
fn connected(endpoint: &mut Endpoint) -> ConnId {
    let established = |event: &Event| matches!(event, Event::Connected(_) | Event::Incoming { .. });
    let event = endpoint.events().into_iter().find(established);
    event.expect("a connection").conn()
}

/// Takes the ACK of the burst before, and sends one: what the payload is written by is not counted.
#[inline]
fn transmit(endpoint: &mut Endpoint, conn: ConnId, now: Instant) {
    turn(endpoint, now);
    let mut tcp = endpoint.conn(conn);
    for _ in 0..BURST {
        black_box(tcp.writable(PAYLOAD).expect("an open window"));
        tcp.commit(PAYLOAD, now);
    }
    endpoint
        .stack
        .transmit(now)
        .expect("an interface in memory");
}

/// Takes a burst and acknowledges it: what the payload is read by is not counted.
#[inline]
fn receive(endpoint: &mut Endpoint, conn: ConnId, now: Instant) {
    turn(endpoint, now);
    while let Some(event) = endpoint.stack.poll_event() {
        black_box(event);
    }
    let mut tcp = endpoint.conn(conn);
    for _ in 0..BURST {
        assert_eq!(black_box(tcp.readable(PAYLOAD)).len(), PAYLOAD);
        tcp.consume(PAYLOAD);
    }
    endpoint
        .stack
        .transmit(now)
        .expect("an interface in memory");
}

#[inline(never)]
fn transmit_1448(endpoint: &mut Endpoint, conn: ConnId, now: Instant) {
    black_box("transmit");
    transmit(endpoint, conn, now);
}

#[inline(never)]
fn receive_1448(endpoint: &mut Endpoint, conn: ConnId, now: Instant) {
    black_box("receive");
    receive(endpoint, conn, now);
}

#[inline(never)]
fn transmit_crowded(endpoint: &mut Endpoint, conn: ConnId, now: Instant) {
    black_box("transmit in a crowd");
    transmit(endpoint, conn, now);
}

#[inline(never)]
fn receive_crowded(endpoint: &mut Endpoint, conn: ConnId, now: Instant) {
    black_box("receive in a crowd");
    receive(endpoint, conn, now);
}

type Work = fn(&mut Endpoint, ConnId, Instant);

/// Carries `bursts` bursts.
fn run(
    endpoints: &mut [Endpoint; 2],
    conns: [ConnId; 2],
    now: &mut Instant,
    bursts: usize,
    work: [Work; 2],
) {
    let [a, b] = endpoints;
    let [send, take] = work;
    for _ in 0..bursts {
        send(a, conns[0], *now);
        carry(&a.wire, &b.wire);
        *now = *now + HALF_TRIP;
        take(b, conns[1], *now);
        carry(&b.wire, &a.wire);
        *now = *now + HALF_TRIP;
    }
}

/// A connection from this port.
fn connect(endpoints: &mut [Endpoint; 2], now: &mut Instant, port: u16) -> [ConnId; 2] {
    let [a, b] = endpoints;
    let path = Path {
        local: SocketAddr::new(Side::A.address(), port),
        remote: SERVER,
        next_hop: Side::B.mac(),
        metrics: xwarp_tcp::RouteMetrics::default(),
    };
    a.stack.connect(path, *now).expect("a new flow");
    for _ in 0..4 {
        a.step(*now);
        carry(&a.wire, &b.wire);
        b.step(*now);
        carry(&b.wire, &a.wire);
        *now = *now + HALF_TRIP;
    }
    [connected(a), connected(b)]
}

/// Counts [`FPDUS`] segments of a connection beside `crowd` idle ones.
fn count_beside(crowd: u16, counted: [Work; 2]) {
    let mut endpoints = Side::BOTH.map(endpoint);
    let mut now = Instant::from_micros(1_000_000);
    endpoints[1].stack.listen(SERVER, 1).expect("a free port");
    for number in 0..crowd {
        connect(&mut endpoints, &mut now, 10_000 + number);
    }
    let conns = connect(&mut endpoints, &mut now, 40_000);
    // Slow start begins with fewer segments than a burst has.
    for _ in 0..WARM_UP {
        warm_up(&mut endpoints, conns, &mut now);
    }
    run(&mut endpoints, conns, &mut now, 2, [transmit, receive]);
    run(&mut endpoints, conns, &mut now, FPDUS / BURST, counted);
}

/// Counts all.
pub(crate) fn count() {
    count_beside(0, [transmit_1448, receive_1448]);
    count_beside(CROWD, [transmit_crowded, receive_crowded]);
}

/// As many segments there as the window has room for, up to two bursts, and their ACK back.
fn warm_up(endpoints: &mut [Endpoint; 2], [conn, peer]: [ConnId; 2], now: &mut Instant) {
    let [a, b] = endpoints;
    let mut tcp = a.conn(conn);
    for _ in 0..2 * BURST {
        if tcp.writable(PAYLOAD).is_none() {
            break;
        }
        tcp.commit(PAYLOAD, *now);
    }
    turn(a, *now);
    carry(&a.wire, &b.wire);
    *now = *now + HALF_TRIP;
    turn(b, *now);
    let mut tcp = b.conn(peer);
    tcp.consume(tcp.readable_len());
    turn(b, *now);
    carry(&b.wire, &a.wire);
    *now = *now + HALF_TRIP;
    turn(a, *now);
}

//! Cost of a connection among many.

use std::time::Duration;

use xwarp_tcp::{ConnId, StackConfig};
use xwarp_test_kit::{Side, pattern_of};

use crate::net::{Net, config};

/// Bytes of a message of the busy connection, and the number of messages.
const MESSAGE: usize = 1448;
const MESSAGES: usize = 2000;

/// A host for `connections` connections with keep-alive.
fn crowded(side: Side, connections: usize) -> StackConfig {
    StackConfig {
        max_connections: connections,
        keepalive: Some(Duration::from_hours(2)),
        ..config(side)
    }
}

/// Two hosts with `connections` established connections, and the last of these.
fn established(connections: u16) -> (Net, (ConnId, ConnId)) {
    let of = |side| crowded(side, connections.into());
    let mut net = Net::with(of(Side::A), of(Side::B));
    net.listen(false);
    let mut last = None;
    for n in 0..connections {
        last = Some(net.connect_from(false, 20_000 + n));
    }
    (net, last.unwrap())
}

/// Visits to connections on both hosts while one of them carries messages to and fro.
fn conn_visits(connections: u16) -> u64 {
    let (mut net, (a, b)) = established(connections);
    let counted =
        |net: &Net| net.a.stack.counters().conn_visits + net.b.stack.counters().conn_visits;
    let before = counted(&net);
    let data = pattern_of(1, MESSAGE);
    for _ in 0..MESSAGES {
        assert!(net.a.write(a, &data, net.now));
        net.settle();
        assert!(net.b.read(b, MESSAGE) == data);
        assert!(net.b.write(b, &data, net.now));
        net.settle();
        assert!(net.a.read(a, MESSAGE) == data);
    }
    counted(&net) - before
}

#[test]
fn ten_thousand_idle_connections_are_not_looked_at() {
    let (alone, crowded) = (conn_visits(1), conn_visits(10_000));
    assert!(alone >= 2 * MESSAGES as u64, "{alone} visits");
    assert!(
        crowded <= alone + alone / 20,
        "{crowded} visits with idle connections, {alone} without"
    );
}

#[test]
fn ack_of_all_that_was_sent_costs_no_turn_and_calls_the_timer_off() {
    let silent = |side| StackConfig {
        keepalive: None,
        ..config(side)
    };
    let mut net = Net::with(silent(Side::A), silent(Side::B));
    let (a, b) = net.connect(false);
    let data = pattern_of(1, MESSAGE);
    let before = net.a.stack.counters().conn_visits;
    assert!(net.a.write(a, &data, net.now));
    net.settle();
    assert!(net.b.read(b, MESSAGE) == data);
    net.settle();
    assert_eq!(net.a.conn(a).unacked(), 0);
    let visits = net.a.stack.counters().conn_visits - before;
    assert_eq!(visits, 1, "to look after what was sent");
    assert_eq!(net.a.stack.next_deadline(), None);
}

#[test]
fn idle_connections_are_asked_whether_they_live_however_many_there_are() {
    let (mut net, _) = established(1000);
    net.pass(Duration::from_hours(2) + Duration::from_mins(1));
    assert_eq!(net.a.stack.counters().probes_out, 1000);
}

//! Ends of connections.

use std::time::Duration;

use xwarp_tcp::{CloseReason, ConnId, ConnectError, Event, Stack, StackConfig};
use xwarp_test_kit::{Side, pattern_of};

use crate::frames;
use crate::net::{Fate, Net, config};

fn closed(conn: ConnId, reason: CloseReason) -> Event {
    Event::Closed {
        conn,
        reason,
        lost: false,
    }
}

fn assert_dead(stack: &mut Stack, conn: ConnId, net_now: xwarp_tcp::Instant) {
    assert!(stack.conn(conn).is_none());
    assert!(stack.conn_mut(conn).is_none());
    stack.close(conn, net_now);
    stack.abort(conn, net_now);
    assert_eq!(stack.poll_event(), None);
}

#[test]
fn either_side_may_close_first_and_the_other_may_go_on() {
    for a_first in [true, false] {
        let mut net = Net::new();
        let (mut first, mut last) = net.connect(false);
        if !a_first {
            std::mem::swap(&mut net.a, &mut net.b);
            std::mem::swap(&mut first, &mut last);
        }
        assert!(net.a.write(first, b"the end", net.now));
        net.a.stack.close(first, net.now);
        assert!(net.a.conn(first).writable(1).is_none());
        net.settle();
        assert_eq!(net.a.events(), []);
        let told = [Event::Readable(last), Event::PeerClosed(last)];
        assert_eq!(net.b.events(), told);
        assert_eq!(net.b.read(last, 3), b"the end");

        // Half closed: the other direction still works.
        assert!(net.b.write(last, b"not yet", net.now));
        net.settle();
        assert_eq!(net.a.events(), [Event::Readable(first)]);
        assert_eq!(net.a.read(first, 3), b"not yet");

        net.b.stack.close(last, net.now);
        net.settle();
        assert_eq!(net.b.events(), [closed(last, CloseReason::Graceful)]);
        let graceful = closed(first, CloseReason::Graceful);
        assert_eq!(net.a.events(), [Event::PeerClosed(first), graceful]);
        assert_dead(&mut net.a.stack, first, net.now);
        assert_dead(&mut net.b.stack, last, net.now);
        net.pass(Duration::from_secs(11));
        assert_eq!(net.a.stack.next_deadline(), None);
    }
}

#[test]
fn both_sides_may_close_at_once() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.write(a, b"x", net.now);
    net.a.stack.close(a, net.now);
    net.b.stack.close(b, net.now);
    net.settle();
    assert_eq!(
        net.a.events(),
        [Event::PeerClosed(a), closed(a, CloseReason::Graceful)]
    );
    assert_eq!(
        net.b.events(),
        [
            Event::Readable(b),
            Event::PeerClosed(b),
            closed(b, CloseReason::Graceful)
        ]
    );
    net.pass(Duration::from_secs(11));
    assert_eq!(net.a.stack.next_deadline(), None);
    assert_eq!(net.b.stack.next_deadline(), None);
}

#[test]
fn fin_follows_all_that_was_committed_despite_loss() {
    for k in 3..40 {
        let mut net = Net::new();
        let (a, b) = net.connect(false);
        let data = pattern_of(4, 50_000);
        let mut count = 0;
        net.judge(move |_, _| {
            count += 1;
            if count % k == 0 {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        for piece in data.chunks(1000) {
            while !net.a.write(a, piece, net.now) {
                assert!(net.jump(), "one in {k}");
            }
        }
        net.a.stack.close(a, net.now);
        net.pass(Duration::from_secs(29));
        assert_eq!(net.b.read(b, 4096), data);
        assert_eq!(
            net.b.events().last(),
            Some(&Event::PeerClosed(b)),
            "one in {k}"
        );
    }
}

#[test]
fn bytes_stay_readable_until_closed_is_polled() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.b.stack.close(b, net.now);
    net.settle();
    net.a.write(a, b"last words", net.now);
    net.a.stack.close(a, net.now);
    let carry = |from: &mut crate::net::Endpoint, to: &mut crate::net::Endpoint, now| {
        from.sent()
            .into_iter()
            .for_each(|frame| to.wire.deliver(frame));
        to.stack.step(now, 64).unwrap();
    };
    carry(&mut net.a, &mut net.b, net.now);
    assert_eq!(net.b.stack.poll_event(), Some(Event::Readable(b)));
    assert_eq!(net.b.stack.poll_event(), Some(Event::PeerClosed(b)));
    assert_eq!(net.b.conn(b).readable(10), b"last words");
    assert_eq!(
        net.b.stack.poll_event(),
        Some(closed(b, CloseReason::Graceful))
    );
    assert_dead(&mut net.b.stack, b, net.now);
}

#[test]
fn abort_is_a_reset_for_the_peer() {
    let mut net = Net::new();
    let (a, b) = net.connect(true);
    net.a.write(a, b"unread", net.now);
    net.settle();
    net.b.events();
    net.a.stack.abort(a, net.now);
    net.a.stack.abort(a, net.now);
    // The bytes can be read until the event is polled, which `settle` does.
    assert_eq!(net.b.conn(b).readable(6), b"unread");
    net.settle();
    assert_eq!(net.a.events(), [closed(a, CloseReason::Aborted)]);
    assert_eq!(net.b.events(), [closed(b, CloseReason::Reset)]);
    assert_dead(&mut net.a.stack, a, net.now);
    assert_dead(&mut net.b.stack, b, net.now);
    let resets = net.carried.iter().filter(|(_, f)| frames::read(f).rst);
    assert_eq!(resets.count(), 1);
    // The flow is free at once on both sides.
    net.connect_from(true, 40_000);
}

#[test]
fn closing_or_aborting_before_the_handshake_is_silent() {
    for abort in [false, true] {
        let mut net = Net::new();
        let a = net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
        net.a.sent();
        if abort {
            net.a.stack.abort(a, net.now);
        } else {
            net.a.stack.close(a, net.now);
        }
        net.settle();
        assert_eq!(net.a.events(), [closed(a, CloseReason::Aborted)]);
        assert!(net.carried.is_empty());
    }
}

#[test]
fn unacknowledged_bytes_time_out() {
    let mut net = Net::new();
    let (a, _) = net.connect(false);
    net.judge(|_, _| Fate::Lose);
    net.a.write(a, b"hello?", net.now);
    net.pass(Duration::from_secs(99));
    assert_eq!(net.a.events(), []);
    net.pass(Duration::from_secs(2));
    let timed_out = Event::Closed {
        conn: a,
        reason: CloseReason::TimedOut,
        lost: true,
    };
    assert_eq!(net.a.events(), [timed_out]);
    assert_eq!(net.a.stack.next_deadline(), None);
}

#[test]
fn idle_connection_lives_on() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.pass(Duration::from_hours(1));
    assert_eq!((net.a.events(), net.b.events()), (vec![], vec![]));
    net.a.write(a, b"still there", net.now);
    net.settle();
    assert_eq!(net.b.read(b, 1), b"still there");
}

/// Two hosts, of which A sends a silent peer keep-alive probes every 10 s.
fn with_keepalive() -> Net {
    let keepalive = Some(Duration::from_secs(10));
    let a = StackConfig {
        keepalive,
        ..config(Side::A)
    };
    Net::with(a, config(Side::B))
}

#[test]
fn silent_peer_that_lives_is_kept() {
    let mut net = with_keepalive();
    let (a, b) = net.connect(false);
    net.carried.clear();
    net.pass(Duration::from_mins(10));
    assert_eq!((net.a.events(), net.b.events()), (vec![], vec![]));
    let probes = net.carried.iter().filter(|(from, _)| *from == Side::A);
    assert!((50..=60).contains(&probes.count()), "one in 10 s");
    net.a.write(a, b"still there", net.now);
    net.settle();
    assert_eq!(net.b.read(b, 1), b"still there");
    assert_eq!(net.a.stack.counters().retransmissions, 0);
}

#[test]
fn silent_peer_that_has_died_is_given_up() {
    let mut net = with_keepalive();
    let (a, _) = net.connect(false);
    net.judge(|_, _| Fate::Lose);
    net.pass(Duration::from_secs(10 + 99));
    assert_eq!(net.a.events(), []);
    net.pass(Duration::from_secs(2));
    assert_eq!(net.a.events(), [closed(a, CloseReason::TimedOut)]);
}

#[test]
fn silent_peer_whose_program_has_died_answers_a_probe_with_a_reset() {
    let mut net = with_keepalive();
    let (a, b) = net.connect(false);
    // B forgets the connection without a segment, as a host does whose program was killed.
    net.judge(|from, _| {
        if from == Side::B {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    net.b.stack.abort(b, net.now);
    net.settle();
    net.judge(|_, _| Fate::Pass);
    net.pass(Duration::from_secs(11));
    assert_eq!(net.a.close_reasons(a), [CloseReason::Reset]);
}

#[test]
fn peer_that_never_closes_is_given_up() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.stack.close(a, net.now);
    net.pass(Duration::from_secs(101));
    assert_eq!(net.a.events(), [closed(a, CloseReason::TimedOut)]);
    assert_eq!(net.b.close_reasons(b), [CloseReason::Reset]);
}

#[test]
fn time_wait_ends_by_a_newer_syn() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.b.stack.close(b, net.now);
    net.settle();
    net.a.stack.close(a, net.now);
    net.settle();
    net.a.events();
    assert_eq!(
        net.b.events(),
        [Event::PeerClosed(b), closed(b, CloseReason::Graceful)]
    );
    // b is in TIME-WAIT. a's next initial sequence number is below or above its last one: one of a
    // few attempts is above.
    let mut connected = false;
    for _ in 0..20 {
        let again = net
            .a
            .stack
            .connect(Net::path(false, 40_000), net.now)
            .unwrap();
        net.settle();
        if net.a.events() == [Event::Connected(again)] {
            connected = true;
            break;
        }
        net.a.stack.abort(again, net.now);
        net.settle();
        net.a.events();
    }
    assert!(connected);
}

#[test]
fn time_wait_ends_for_want_of_room() {
    let mut one = config(Side::A);
    one.max_connections = 1;
    let mut net = Net::with(one, config(Side::B));
    let (a, b) = net.connect(false);
    net.a.stack.close(a, net.now);
    net.settle();
    net.b.stack.close(b, net.now);
    net.settle();
    net.a.events();
    net.b.events();
    net.connect_from(false, 40_001);
}

/// A client reuses a port whose former connection is in TIME-WAIT.
#[test]
fn flow_in_time_wait_makes_way_for_our_next_connection() {
    let mut net = Net::new();
    let mut ends = net.connect(false);
    for key in 0..20 {
        let data = pattern_of(key, 5000);
        assert!(net.transfer(ends, &data, || 1000) == data);
        net.a.stack.close(ends.0, net.now);
        net.settle();
        net.b.stack.close(ends.1, net.now);
        net.settle();
        net.a.events();
        net.b.events();
        ends = net.connect_from(false, 40_000);
    }
    let path = Net::path(false, 40_000);
    let refused = net.a.stack.connect(path, net.now).unwrap_err();
    assert!(matches!(refused, ConnectError::FlowExists { .. }));
}

#[test]
fn lost_last_ack_is_repeated_from_time_wait() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.stack.close(a, net.now);
    net.settle();
    net.judge(|from, _| {
        if from == Side::A {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    net.b.stack.close(b, net.now);
    net.settle();
    net.be_kind();
    assert_eq!(net.a.close_reasons(a), [CloseReason::Graceful]);
    net.b.events();
    net.pass(Duration::from_secs(2));
    assert_eq!(net.b.close_reasons(b), [CloseReason::Graceful]);
}

#[test]
fn new_connection_does_not_answer_to_an_old_id() {
    let mut net = Net::new();
    let (old, _) = net.connect(false);
    net.a.stack.abort(old, net.now);
    net.settle();
    net.a.events();
    net.b.events();
    let (new, peer) = net.connect_from(false, 40_000);
    assert_ne!(old, new);
    net.b.write(peer, b"for the new one", net.now);
    net.settle();
    net.a.events();
    assert_dead(&mut net.a.stack, old, net.now);
    net.settle();
    assert_eq!(net.a.read(new, 1), b"for the new one");
    assert_eq!(net.b.events(), []);
}

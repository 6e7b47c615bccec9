//! Handshakes.

use std::time::Duration;

use xwarp_driver::MemoryIo;
use xwarp_tcp::{CloseReason, ConnectError, Event, Instant, ListenError, Path, Stack};
use xwarp_test_kit::{Side, pattern_of};

use crate::frames;
use crate::net::{Fate, Net, config};

#[test]
fn both_families_connect_and_know_their_addresses() {
    for ipv6 in [false, true] {
        let mut net = Net::new();
        let (a, b) = net.connect(ipv6);
        let path = Net::path(ipv6, 40_000);
        assert_eq!(net.a.conn(a).local_addr(), path.local);
        assert_eq!(net.a.conn(a).peer_addr(), path.remote);
        assert_eq!(net.b.conn(b).local_addr(), path.remote);
        assert_eq!(net.b.conn(b).peer_addr(), path.local);
        let emss = if ipv6 { 1428 } else { 1448 }; // timestamps take 12 bytes
        assert_eq!((net.a.conn(a).emss(), net.b.conn(b).emss()), (emss, emss));
    }
}

#[test]
fn options_of_a_syn_are_these() {
    let mut net = Net::new();
    net.connect(false);
    let syn = frames::read(&net.carried[0].1);
    assert!(syn.syn && !syn.ack);
    assert_eq!(syn.window, 65535);
    assert_eq!(syn.options.len(), 20);
    // MSS 1460, SACK permitted, timestamps
    assert_eq!(syn.options[..8], [2, 4, 0x05, 0xb4, 4, 2, 8, 10]);
    assert_eq!(syn.options[12..16], [0; 4]); // there is nothing to echo
    assert_eq!(syn.options[16..], [1, 3, 3, 3]); // window scale 3: 65535 << 3 holds 256 KiB
    let answer = frames::read(&net.carried[1].1);
    assert!(answer.syn && answer.ack);
    assert_eq!(answer.options[..8], syn.options[..8]);
    assert_eq!(answer.options[12..16], syn.options[8..12]);
    assert_eq!(answer.options[16..], syn.options[16..]);
    let ack = frames::read(&net.carried[2].1);
    assert_eq!(u32::from(ack.window) << 3, 256 * 1024);
}

#[test]
fn mss_follows_from_the_mtu_and_the_smaller_one_counts() {
    let mut small = config(Side::B);
    small.mtu = 1000;
    let mut large = config(Side::A);
    large.mtu = 3800;
    let mut net = Net::with(large, small);
    let (a, b) = net.connect(true);
    assert_eq!(
        frames::read(&net.carried[0].1).options[..4],
        [2, 4, 0x0e, 0x9c]
    );
    assert_eq!(
        frames::read(&net.carried[1].1).options[..4],
        [2, 4, 0x03, 0xac]
    );
    assert_eq!((net.a.conn(a).emss(), net.b.conn(b).emss()), (928, 928));
}

#[test]
fn mtu_that_no_frame_holds_is_lowered() {
    let mut jumbo = config(Side::A);
    jumbo.mtu = 9000;
    let (io, wire) = MemoryIo::with_room(8, 3840).unwrap();
    let (mut stack, now) = (Stack::new(Box::new(io), jumbo), Instant::from_micros(0));
    stack.connect(Net::path(false, 1), now).unwrap();
    stack.step(now, 1).unwrap();
    let syn = frames::read(&wire.take_sent().unwrap());
    let largest = u16::from_be_bytes([syn.options[2], syn.options[3]]);
    assert_eq!((syn.options[0], largest), (2, 3840 - 22 - 40));
}

#[test]
fn mtu_beyond_ethernets_is_used() {
    for mtu in [9000, 65_535] {
        let mut jumbo = config(Side::A);
        jumbo.mtu = mtu;
        let other = xwarp_tcp::StackConfig {
            mac: Side::B.mac(),
            ..jumbo.clone()
        };
        let mut net = Net::with(jumbo, other);
        let pair = net.connect(false);
        assert_eq!(net.a.conn(pair.0).emss(), mtu - 40 - 12);
        let data = pattern_of(1, 1_000_000);
        assert_eq!(net.transfer(pair, &data, || mtu - 74), data);
    }
}

#[test]
fn port_without_a_listener_refuses() {
    let mut net = Net::new();
    let conn = net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
    net.settle();
    let reason = CloseReason::Refused;
    assert_eq!(
        net.a.events(),
        [Event::Closed {
            conn,
            reason,
            lost: false
        }]
    );
    let counters = net.b.stack.counters();
    assert_eq!((counters.drop_no_flow, counters.resets_out), (1, 1));
    assert_eq!(net.a.stack.next_deadline(), None);
}

#[test]
fn silent_peer_times_out_after_retries() {
    let mut net = Net::new();
    net.judge(|_, _| Fate::Lose);
    let start = net.now;
    let conn = net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
    net.pass(Duration::from_millis(4990));
    assert_eq!(net.a.events(), []);
    net.pass(Duration::from_millis(20));
    let reason = CloseReason::TimedOut;
    assert_eq!(
        net.a.events(),
        [Event::Closed {
            conn,
            reason,
            lost: false
        }]
    );
    assert!(net.now - start < Duration::from_secs(6));
    // At 0, 1, 3 and 4 s. A peer that does not answer gets no RST.
    assert_eq!(net.carried.len(), 4);
    assert_eq!(net.a.stack.counters().retransmissions, 3);
    assert_eq!(net.a.stack.next_deadline(), None);
}

#[test]
fn lost_syn_is_repeated_by_either_side() {
    for lost in [0, 1] {
        let mut net = Net::new();
        net.listen(false);
        let mut seen = 0;
        net.judge(move |_, _| {
            seen += 1;
            if seen == lost + 1 {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        let conn = net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
        net.pass(Duration::from_millis(1500));
        assert_eq!(net.a.events(), [Event::Connected(conn)]);
        assert_eq!(net.b.events().len(), 1);
    }
}

#[test]
fn half_open_connection_dies_silently() {
    let mut net = Net::new();
    net.b.stack.listen(Net::path(false, 1).remote, 1).unwrap();
    net.judge(|from, _| {
        if from == Side::B {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
    let sent = |net: &Net| net.carried.iter().filter(|it| it.0 == Side::B).count();
    net.pass(Duration::from_secs(6));
    let answers = sent(&net);
    net.pass(Duration::from_secs(56));
    assert_eq!(sent(&net) - answers, 3, "after 7, 15 and 31 s");
    assert!(net.b.stack.next_deadline().is_some());
    net.pass(Duration::from_secs(2));
    assert_eq!(net.b.stack.next_deadline(), None);
    assert_eq!(net.b.events(), []);
    assert!(
        net.carried
            .iter()
            .all(|(_, frame)| !frames::read(frame).rst)
    );
    net.be_kind();
    net.a.events();
    // Its place in the backlog is free again.
    net.connect_from(false, 2);
    assert_eq!(net.b.stack.counters().cookies_out, 0);
}

/// The peer takes the connection for established from its first ACK on, and is reset if its data
/// finds no connection.
#[test]
fn connection_whose_first_acks_are_lost_is_not_forgotten() {
    for outage in [4, 6, 14, 30] {
        let mut net = Net::new();
        net.listen(false);
        net.judge(|from, frame| {
            if from == Side::A && !frames::read(frame).syn {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        let a = net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
        net.settle();
        assert_eq!(net.a.events(), [Event::Connected(a)]);
        assert!(net.a.write(a, b"a Request", net.now));
        net.pass(Duration::from_secs(outage));
        net.be_kind();
        net.pass(Duration::from_secs(outage));
        let [Event::Incoming { conn, .. }, ..] = net.b.events()[..] else {
            panic!("an outage of {outage} s: no connection");
        };
        assert_eq!(net.b.read(conn, 9), b"a Request");
        assert_eq!(net.b.stack.counters().drop_no_flow, 0);
    }
}

/// Carries frames only, without polling b's events.
fn exchange(net: &mut Net) {
    for _ in 0..4 {
        net.a.stack.step(net.now, 64).unwrap();
        for frame in net.a.sent() {
            net.b.wire.deliver(frame);
        }
        net.b.stack.step(net.now, 64).unwrap();
        for frame in net.b.sent() {
            net.a.wire.deliver(frame);
        }
    }
}

#[test]
fn syns_are_dropped_while_a_backlog_of_connections_waits_to_be_polled() {
    let mut net = Net::new();
    net.b.stack.listen(Net::path(false, 1).remote, 2).unwrap();
    let connect = |net: &mut Net, port| net.a.stack.connect(Net::path(false, port), net.now);
    for port in 1..=3 {
        connect(&mut net, port).unwrap();
        exchange(&mut net);
    }
    assert_eq!(net.b.stack.counters().drop_backlog_full, 1);
    assert!(matches!(
        net.b.stack.poll_event(),
        Some(Event::Incoming { .. })
    ));
    net.now = net.now + Duration::from_secs(1);
    exchange(&mut net);
    assert_eq!(net.b.stack.counters().drop_backlog_full, 1);
    for _ in 0..2 {
        assert!(matches!(
            net.b.stack.poll_event(),
            Some(Event::Incoming { .. })
        ));
    }
    assert_eq!(net.b.stack.poll_event(), None);
}

#[test]
fn unlisten_resets_what_was_not_accepted() {
    let mut net = Net::new();
    let listener = net.listen(false);
    let (kept, _) = net.connect_from(false, 1);
    let waiting = net.a.stack.connect(Net::path(false, 2), net.now).unwrap();
    for _ in 0..3 {
        net.a.step(net.now);
        net.a.sent().into_iter().for_each(|f| net.b.wire.deliver(f));
        net.b.stack.step(net.now, 64).unwrap();
        net.b.sent().into_iter().for_each(|f| net.a.wire.deliver(f));
    }
    assert_eq!(net.a.events(), [Event::Connected(waiting)]);
    net.b.stack.unlisten(listener);
    net.b.stack.unlisten(listener);
    net.settle();
    let reason = CloseReason::Reset;
    assert_eq!(
        net.a.events(),
        [Event::Closed {
            conn: waiting,
            reason,
            lost: false
        }]
    );
    assert_eq!(net.b.events(), []);
    assert!(net.a.stack.conn(kept).is_some());
    // The port is free, and answered by RST without a listener.
    let refused = net.a.stack.connect(Net::path(false, 3), net.now).unwrap();
    net.settle();
    assert_eq!(net.a.close_reasons(refused), [CloseReason::Refused]);
    net.listen(false);
}

#[test]
fn connection_that_cannot_be_opened_is_refused_with_its_reason() {
    let mut few = config(Side::A);
    few.max_connections = 1;
    let mut net = Net::with(few, config(Side::B));
    let path = Net::path(false, 1);
    let local = path.local;
    let refused = |net: &mut Net, path| net.a.stack.connect(path, net.now).unwrap_err();
    let to = |remote| Path { remote, ..path };
    let nowhere = "0.0.0.0:1".parse().unwrap();
    let bad = ConnectError::BadAddress(nowhere);
    assert_eq!(refused(&mut net, to(nowhere)), bad);
    let remote = Net::path(true, 1).remote;
    let mixed = ConnectError::MixedFamilies { local, remote };
    assert_eq!(refused(&mut net, to(remote)), mixed);
    net.a.stack.connect(path, net.now).unwrap();
    let remote = path.remote;
    let exists = ConnectError::FlowExists { local, remote };
    assert_eq!(refused(&mut net, path), exists);
    let too_many = ConnectError::TooManyConnections(1);
    assert_eq!(refused(&mut net, Net::path(false, 2)), too_many);
}

#[test]
fn listener_that_cannot_be_opened_is_refused_with_its_reason() {
    let mut net = Net::new();
    net.listen(false);
    let at = Net::path(false, 1).remote;
    let in_use = Err(ListenError::AddressInUse(at));
    assert_eq!(net.b.stack.listen(at, 1), in_use);
    let group = "224.0.0.1:1".parse().unwrap();
    let bad = Err(ListenError::BadAddress(group));
    assert_eq!(net.b.stack.listen(group, 1), bad);
}

#[test]
fn full_table_drops_syns() {
    let mut few = config(Side::B);
    few.max_connections = 1;
    let mut net = Net::with(config(Side::A), few);
    net.connect(false);
    net.a.stack.connect(Net::path(false, 2), net.now).unwrap();
    net.settle();
    assert_eq!(net.b.stack.counters().drop_table_full, 1);
}

#[test]
fn both_sides_may_open_at_once() {
    let mut net = Net::new();
    let path = Net::path(false, 1);
    let back = Path {
        local: path.remote,
        remote: path.local,
        next_hop: Side::A.mac(),
        metrics: xwarp_tcp::RouteMetrics::default(),
    };
    let a = net.a.stack.connect(path, net.now).unwrap();
    let b = net.b.stack.connect(back, net.now).unwrap();
    net.settle();
    assert_eq!(net.a.events(), [Event::Connected(a)]);
    assert_eq!(net.b.events(), [Event::Connected(b)]);
    let data = pattern_of(3, 10_000);
    assert_eq!(net.transfer((a, b), &data, || 700), data);
}

#[test]
fn initial_sequence_numbers_follow_the_seed_and_differ() {
    let first = |seed| {
        let mut host = config(Side::A);
        host.seed = Some(seed);
        let mut net = Net::with(host, config(Side::B));
        net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
        net.a.stack.connect(Net::path(false, 2), net.now).unwrap();
        net.a
            .sent()
            .iter()
            .map(|f| frames::read(f).seq)
            .collect::<Vec<_>>()
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
    assert_ne!(first(1)[0], first(1)[1]);
}

/// Two tags with priorities, but without a VLAN.
const TAGS: [u8; 8] = [0x88, 0xa8, 0x20, 0x00, 0x81, 0x00, 0xe0, 0x00];

#[test]
fn connection_with_priorities_answers_with_the_same() {
    let mut net = Net::new();
    net.judge(|from, frame| {
        // The way to b passes a port that tags, the way back one that untags.
        if from == Side::A {
            frame.splice(12..12, TAGS);
        } else {
            assert_eq!(frame[..6], Side::A.mac());
            assert_eq!(frame[6..12], Side::B.mac());
            assert_eq!(frame[12..20], TAGS);
            frame.drain(12..20);
        }
        Fate::Pass
    });
    for ipv6 in [false, true] {
        let (a, b) = net.connect(ipv6);
        let data = pattern_of(9, 5000);
        assert_eq!(net.transfer((a, b), &data, || 1400), data);
        net.b.events();
    }
}

#[test]
fn stack_can_move_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<Stack>();
}

//! SYN floods: cookies (RFC 4987).

use std::time::Duration;

use smoltcp::wire::{TcpControl, TcpRepr};
use xwarp_tcp::{CloseReason, ConnId, Event, RouteMetrics, StackConfig};
use xwarp_test_kit::{Side, pattern_of};

use crate::frames::{self, Seen};
use crate::net::{Fate, Net, config};

const BACKLOG: usize = 4;

/// A listening host b that has received `syns` SYNs whose senders send nothing more.
fn flooded(syns: u16, config: impl Fn(Side) -> StackConfig) -> Net {
    let mut net = Net::with(config(Side::A), config(Side::B));
    let listened = Net::path(false, 1).remote;
    net.b.stack.listen(listened, BACKLOG).unwrap();
    for port in 0..syns {
        deliver(
            &mut net,
            &TcpRepr {
                src_port: 1000 + port,
                ..frames::segment(TcpControl::Syn, 7, None)
            },
        );
    }
    net
}

fn deliver(net: &mut Net, segment: &TcpRepr<'_>) -> Vec<Seen> {
    net.b.wire.deliver(frames::write(segment));
    net.b.step(net.now);
    net.b
        .sent()
        .iter()
        .map(|frame| frames::read(frame))
        .collect()
}

fn connected(net: &mut Net) -> (ConnId, ConnId) {
    net.connect_from(false, 40_000)
}

/// Both directions of a connection.
fn carries(net: &mut Net, (a, b): (ConnId, ConnId)) {
    let data = pattern_of(3, 300_000);
    assert!(net.transfer((a, b), &data, || 1000) == data);
    assert!(net.b.write(b, &data[..1000], net.now));
    net.settle();
    assert!(net.a.read(a, 1000) == data[..1000]);
}

#[test]
fn flood_of_syns_keeps_nobody_out_and_takes_no_more_room_than_the_backlog() {
    let mut net = flooded(5000, config);
    assert_eq!(net.b.stack.counters().cookies_out, 5000 - BACKLOG as u64);
    let debug = format!("{:?}", net.b.stack);
    assert!(
        debug.contains(&format!("connections: {BACKLOG}")),
        "{debug}"
    );
    let pair = connected(&mut net);
    let counters = net.b.stack.counters();
    assert_eq!((counters.cookies_in, counters.drop_no_flow), (1, 0));
    carries(&mut net, pair);
}

#[test]
fn cookie_keeps_window_scale_sack_and_timestamps() {
    let mut net = flooded(5, |side| StackConfig {
        buffer: Some(1 << 20),
        ..config(side)
    });
    let pair = connected(&mut net);
    let emss = [net.a.conn(pair.0).emss(), net.b.conn(pair.1).emss()];
    assert_eq!(emss, [1448, 1448], "with room for timestamps");
    let data = pattern_of(5, 2_000_000);
    let (mut most, mut left) = (0, &data[..]);
    while let Some((piece, rest)) = left
        .split_at_checked(left.len().min(1448))
        .filter(|it| !it.0.is_empty())
    {
        if net.b.write(pair.1, piece, net.now) {
            left = rest;
            continue;
        }
        most = most.max(net.b.conn(pair.1).unacked());
        net.settle();
        net.a.read(pair.0, 1000);
        net.settle();
    }
    assert!(most > 65535, "{most} bytes, if the window is scaled");
    let mut sent = 0;
    net.judge(move |from, _| {
        sent += usize::from(from == Side::A);
        if sent == 40 { Fate::Lose } else { Fate::Pass }
    });
    assert!(net.transfer(pair, &data[..300_000], || 1448) == data[..300_000]);
    assert_eq!(net.a.stack.counters().retransmissions, 1, "with SACK");
}

#[test]
fn without_timestamps_a_cookie_is_good_too() {
    let plain = |side| StackConfig {
        timestamps: false,
        ..config(side)
    };
    let mut net = flooded(5, plain);
    let pair = connected(&mut net);
    assert_eq!(net.b.stack.counters().cookies_in, 1);
    assert_eq!(net.b.conn(pair.1).emss(), 1460);
    carries(&mut net, pair);
}

/// The first data of a connection beside a flood is the most likely to be lost, and is
/// retransmitted at once.
#[test]
fn ack_of_a_cookie_measures_the_round_trip() {
    let mut net = flooded(5, config);
    let (a, b) = connected(&mut net);
    net.judge(|_, _| Fate::Lose);
    assert!(net.b.write(b, b"a Reply", net.now));
    net.settle();
    net.be_kind();
    net.pass(Duration::from_millis(20));
    assert_eq!(net.a.read(a, 7), b"a Reply");
}

/// The MSS that a SYN offers in its first option.
fn mss(syn: &Seen) -> usize {
    assert_eq!(syn.options[..2], [2, 4]);
    u16::from_be_bytes([syn.options[2], syn.options[3]]).into()
}

/// Sets the metrics of a route.
fn route(net: &mut Net, conn: ConnId, mtu: Option<usize>, advmss: Option<usize>) {
    let metrics = RouteMetrics { mtu, advmss };
    net.b.stack.set_metrics(conn, metrics, net.now);
    net.b.step(net.now);
}

/// A cookie waits for no route: it offers the smallest MSS that any route has had the host offer.
/// Its connection asks for the route later.
#[test]
fn cookie_offers_the_least_mss_of_all_routes_and_its_connection_keeps_to_its_own() {
    let mut net = flooded(0, config);
    net.b.stack.await_metrics();
    for (port, advmss) in (1..).zip([1200, 600, 800, 1460]) {
        let syn = TcpRepr {
            src_port: port,
            ..frames::segment(TcpControl::Syn, 7, None)
        };
        assert_eq!(deliver(&mut net, &syn), [], "it awaits its route");
        let conn = net.b.events()[0].conn();
        route(&mut net, conn, None, Some(advmss));
        let answers = net.b.sent();
        assert_eq!(
            answers
                .iter()
                .map(|it| mss(&frames::read(it)))
                .collect::<Vec<_>>(),
            [advmss]
        );
    }
    let a = (net.a.stack).connect(Net::path(false, 40_000), net.now);
    net.settle();
    assert_eq!(net.b.stack.counters().cookies_out, 1);
    let answer = net.carried.iter().find(|(from, _)| *from == Side::B);
    assert_eq!(mss(&frames::read(&answer.unwrap().1)), 600);
    let [Event::RouteWanted(asked), Event::Incoming { conn: b, .. }] = net.b.events()[..] else {
        panic!("{:?}", net.b.events);
    };
    assert_eq!((asked, net.b.conn(b).emss()), (b, 1448));
    route(&mut net, b, Some(900), None);
    assert_eq!(net.b.conn(b).emss(), 848);
    carries(&mut net, (a.unwrap(), b));
}

/// No state is left of a connection that was reset, so a repeated ACK carries a right cookie. The
/// peer ends the connection that it makes.
#[test]
fn repeated_ack_of_a_cookie_makes_a_connection_that_the_peer_resets() {
    let mut net = flooded(5, config);
    let (a, _) = connected(&mut net);
    net.carried.clear();
    assert!(net.a.write(a, b"a Request", net.now));
    net.settle();
    let (_, request) = net.carried.first().cloned().unwrap();
    net.a.stack.abort(a, net.now);
    net.settle();
    net.b.events();
    net.b.wire.deliver(request);
    net.settle();
    let [
        Event::Incoming { conn, .. },
        Event::Readable(_),
        Event::Closed {
            conn: closed,
            reason,
            ..
        },
    ] = net.b.events()[..]
    else {
        panic!("{:?}", net.b.events);
    };
    assert_eq!((closed, reason), (conn, CloseReason::Reset));
    assert_eq!(net.b.stack.counters().cookies_in, 2);
}

/// An ACK that arrives late may have waited for the peer's timeouts, which reveal nothing about the
/// round trip.
#[test]
fn late_ack_of_a_cookie_does_not_lengthen_the_timeout() {
    let mut net = flooded(5, config);
    let a = net
        .a
        .stack
        .connect(Net::path(false, 40_000), net.now)
        .unwrap();
    net.judge(|from, frame| match from {
        Side::A if !frames::read(frame).syn => Fate::Lose,
        Side::A | Side::B => Fate::Pass,
    });
    net.settle();
    assert!(net.a.write(a, b"a Request", net.now));
    net.pass(Duration::from_millis(900));
    net.be_kind();
    net.pass(Duration::from_millis(900));
    let Some(Event::Incoming { conn: b, .. }) = net.b.events().first().copied() else {
        panic!("no connection");
    };
    net.judge(|_, _| Fate::Lose);
    assert!(net.b.write(b, b"a Reply", net.now));
    net.settle();
    net.be_kind();
    net.pass(Duration::from_millis(1010));
    assert_eq!(net.a.read(a, 7), b"a Reply");
}

#[test]
fn bytes_that_bring_the_cookie_back_are_taken() {
    let mut net = flooded(4, config);
    let answer = deliver(&mut net, &frames::segment(TcpControl::Syn, 99, None));
    let [
        Seen {
            seq,
            ack_number: 100,
            syn: true,
            ..
        },
    ] = answer[..]
    else {
        panic!("{answer:?}");
    };
    let data = TcpRepr {
        payload: b"at once",
        ..frames::segment(TcpControl::Psh, 100, Some(seq.wrapping_add(1)))
    };
    let answer = deliver(&mut net, &data);
    assert!(
        matches!(
            answer[..],
            [Seen {
                ack_number: 107,
                rst: false,
                ..
            }]
        ),
        "{answer:?}"
    );
    let [Event::Incoming { conn, .. }, Event::Readable(_)] = net.b.events()[..] else {
        panic!("no connection");
    };
    assert_eq!(net.b.read(conn, 7), b"at once");
}

#[test]
fn wrong_an_old_or_an_unasked_cookie_is_reset() {
    let mut net = flooded(4, config);
    let answer = deliver(&mut net, &frames::segment(TcpControl::Syn, 99, None));
    let cookie = answer[0].seq.wrapping_add(1);
    let refused = |net: &mut Net, segment: &TcpRepr<'_>| {
        let answer = deliver(net, segment);
        assert!(matches!(answer[..], [Seen { rst: true, .. }]), "{answer:?}");
    };
    refused(
        &mut net,
        &frames::segment(TcpControl::None, 100, Some(cookie.wrapping_add(1))),
    );
    refused(
        &mut net,
        &frames::segment(TcpControl::None, 101, Some(cookie)),
    );
    let other = TcpRepr {
        src_port: 40_001,
        ..frames::segment(TcpControl::None, 100, Some(cookie))
    };
    refused(&mut net, &other);
    net.now = net.now + Duration::from_secs(200);
    refused(
        &mut net,
        &frames::segment(TcpControl::None, 100, Some(cookie)),
    );
    assert_eq!(net.b.events(), []);
}

#[test]
fn once_the_flood_is_over_connections_are_kept_from_their_syn_on() {
    let mut net = flooded(100, config);
    net.judge(|from, _| {
        if from == Side::B {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    net.pass(Duration::from_secs(64));
    net.be_kind();
    let before = net.b.stack.counters().cookies_out;
    let pair = connected(&mut net);
    let counters = net.b.stack.counters();
    assert_eq!((counters.cookies_out, counters.cookies_in), (before, 0));
    carries(&mut net, pair);
}

/// Sends a SYN of an honest client. Returns the number of its answer.
fn ask(net: &mut Net, src_port: u16) -> u32 {
    let syn = TcpRepr {
        src_port,
        ..frames::segment(TcpControl::Syn, 99, None)
    };
    let answer = deliver(net, &syn);
    assert!(
        matches!(
            answer[..],
            [Seen {
                syn: true,
                ack_number: 100,
                ..
            }]
        ),
        "{answer:?}"
    );
    answer[0].seq
}

/// Sends wrong cookies, each from another port. Returns the number of RSTs.
fn guess(net: &mut Net, guesses: std::ops::Range<u32>) -> usize {
    let mut resets = 0;
    for guess in guesses {
        let ack = TcpRepr {
            src_port: 1024 + (guess % 30_000) as u16,
            ..frames::segment(TcpControl::None, guess, Some(!guess))
        };
        resets += deliver(net, &ack).iter().filter(|seen| seen.rst).count();
    }
    resets
}

/// 20,000 wrong ACKs arrive within a second, and among them those of twelve clients, early and
/// late.
#[test]
fn flood_of_wrong_acks_keeps_nobody_out() {
    let mut net = flooded(5, config);
    let clients: Vec<(u16, u32)> = (50_000..50_012)
        .map(|port| (port, ask(&mut net, port)))
        .collect();
    let mut guesses = 0;
    for (src_port, cookie) in clients {
        guess(&mut net, guesses..guesses + 1700);
        guesses += 1700;
        net.now = net.now + Duration::from_millis(80);
        let ack = TcpRepr {
            src_port,
            payload: b"mine",
            ..frames::segment(TcpControl::Psh, 100, Some(cookie.wrapping_add(1)))
        };
        let answer = deliver(&mut net, &ack);
        assert!(
            matches!(
                answer[..],
                [Seen {
                    rst: false,
                    ack_number: 104,
                    ..
                }]
            ),
            "client {src_port} after {guesses} guesses: {answer:?}"
        );
    }
    assert_eq!(net.b.stack.counters().cookies_in, 12);
}

/// RSTs that a stack sends after a silence.
const RESETS: usize = 16_384;

#[test]
fn so_many_resets_a_second_can_be_provoked_and_the_others_are_counted() {
    let mut net = flooded(5, config);
    assert_eq!(guess(&mut net, 0..20_000), RESETS, "after a silence");
    assert_eq!(guess(&mut net, 20_000..21_000), 0);
    net.now = net.now + Duration::from_millis(250);
    assert_eq!(guess(&mut net, 21_000..22_000), 250);
    net.now = net.now + Duration::from_secs(1);
    assert_eq!(guess(&mut net, 22_000..25_000), 1000);
    net.now = net.now + Duration::from_mins(1);
    assert_eq!(
        guess(&mut net, 25_000..45_000),
        RESETS,
        "no more is saved up"
    );
    let counters = net.b.stack.counters();
    let resets = 2 * RESETS as u64 + 1250;
    assert_eq!(counters.resets_out, resets);
    assert_eq!(counters.resets_withheld, 45_000 - resets);
    assert_eq!(counters.drop_no_flow, 45_000);
}

#[test]
fn knocking_at_closed_ports_provokes_no_more_resets_either() {
    let mut net = Net::new();
    let knock = |net: &mut Net, dst_port| {
        let syn = TcpRepr {
            dst_port,
            ..frames::segment(TcpControl::Syn, 7, None)
        };
        deliver(net, &syn).len()
    };
    let resets: usize = (1..=20_000).map(|port| knock(&mut net, port)).sum();
    assert_eq!(resets, RESETS);
    let withheld = net.b.stack.counters().resets_withheld;
    assert_eq!(withheld, 20_000 - RESETS as u64);
}

/// The limit belongs to each connection, so a disturbed handshake takes nothing from other
/// connections.
#[test]
fn wrong_acks_of_a_half_open_connection_provoke_few_resets() {
    let mut net = flooded(1, config);
    let wrong = TcpRepr {
        src_port: 1000,
        ..frames::segment(TcpControl::None, 8, Some(1))
    };
    let resets: usize = (0..100).map(|_| deliver(&mut net, &wrong).len()).sum();
    assert_eq!(resets, 16);
    let counters = net.b.stack.counters();
    assert_eq!((counters.resets_out, counters.resets_withheld), (16, 84));
    assert_eq!(guess(&mut net, 0..20_000), RESETS);
}

/// All connections at once, whose peers retransmit at the same instants: none must wait for a
/// limit.
#[test]
fn peers_of_a_restarted_server_learn_of_it_at_once() {
    let mut net = Net::new();
    for port in 0..16_384 {
        let data = TcpRepr {
            src_port: 10_000 + port,
            payload: b"as before",
            ..frames::segment(TcpControl::Psh, 7, Some(8))
        };
        let answer = deliver(&mut net, &data);
        assert!(matches!(answer[..], [Seen { rst: true, .. }]), "{answer:?}");
    }
}

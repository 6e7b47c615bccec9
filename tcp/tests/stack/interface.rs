//! Changes of the interface under its connections.

use std::time::Duration;

use xwarp_tcp::{CloseReason, Event};
use xwarp_test_kit::{Side, pattern_of};

use crate::net::{Net, config};

const NEW_MAC: [u8; 6] = [2, 0x11, 0x22, 0x33, 0x44, 0x55];
/// Bytes of the headers of a segment with data: Ethernet, IP, TCP with timestamps.
const HEADERS: [usize; 3] = [14, 20, 32];

#[test]
fn after_an_outage_of_the_link_what_was_lost_is_sent_again_at_once() {
    for outage in [1, 3, 20, 90].map(Duration::from_secs) {
        let mut net = Net::new();
        let (a, b) = net.connect(false);
        net.judge(|_, _| crate::net::Fate::Lose);
        assert!(net.a.write(a, b"lost on the way", net.now));
        net.settle();
        net.a.stack.set_up(false, net.now);
        net.pass(outage);
        net.a.stack.set_up(true, net.now);
        net.settle(); // the peer's interface may take a moment longer, and loses waiting frames
        net.be_kind();
        net.pass(Duration::from_millis(50));
        assert_eq!(net.b.read(b, 20), b"lost on the way", "after {outage:?}");
    }
}

/// Loses a segment of a, whose link goes down for a moment every second from then on, while the
/// network carries nothing for `outage`. Returns the seconds, rounded up, until the segment
/// arrived. The retransmission timeout is 3 s.
fn segment_on_a_link_that_flaps(outage: Duration) -> u64 {
    let mut slow = config(Side::A);
    slow.min_rto = Duration::from_secs(3);
    slow.user_timeout = Duration::from_secs(10);
    let mut net = Net::with(slow, config(Side::B));
    let (a, b) = net.connect(false);
    net.judge(|_, _| crate::net::Fate::Lose);
    assert!(net.a.write(a, b"lost on the way", net.now));
    net.settle();
    let began = net.now;
    for second in 1..11 {
        let until = began + Duration::from_secs(second);
        for at in [began + outage, until] {
            net.pass(at.min(until) - net.now);
            if began + outage <= net.now {
                net.be_kind();
            }
            if net.b.read(b, 20) == b"lost on the way" {
                return second;
            }
        }
        net.a.stack.set_up(false, net.now);
        net.pass(Duration::from_millis(20));
        net.a.stack.set_up(true, net.now);
    }
    panic!("it was never sent again");
}

#[test]
fn link_that_flaps_more_often_than_the_timeout_does_not_put_it_off() {
    // The tail probe after 3 s is lost, too. The timeout that it starts ends after 6 s.
    let outage = Duration::from_millis(3500);
    assert!(segment_on_a_link_that_flaps(outage) <= 7);
}

#[test]
fn last_try_is_made_though_the_link_flaps() {
    // The last try is after 7.5 s: its answer has a quarter of the user timeout.
    let outage = Duration::from_millis(7450);
    assert_eq!(segment_on_a_link_that_flaps(outage), 8);
}

/// Lengths of the IP packets that a sent.
fn packets(net: &Net) -> Vec<usize> {
    let sent = net.carried.iter().filter(|(from, _)| *from == Side::A);
    sent.map(|(_, frame)| frame.len() - HEADERS[0]).collect()
}

#[test]
fn after_the_mtu_was_lowered_no_packet_is_larger_also_when_it_is_sent_again() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.stack.io_mut().set_up(false);
    let data = pattern_of(1, 1448);
    assert!(net.a.write(a, &data, net.now), "in flight when it happens");
    net.a.step(net.now);
    net.a.stack.set_mtu(600);
    net.a.stack.io_mut().set_up(true);
    net.carried.clear();
    net.pass(Duration::from_secs(1));
    assert_eq!(net.b.read(b, 1448), data);
    assert_eq!(
        packets(&net)[0],
        1500,
        "what had been given to the interface before"
    );
    assert_eq!(net.a.conn(a).emss(), 600 - HEADERS[1] - HEADERS[2]);
    net.carried.clear();
    assert!(net.a.write(a, &pattern_of(2, 548), net.now));
    net.settle();
    assert_eq!(packets(&net), [600]);
}

#[test]
fn segment_that_was_lost_is_cut_when_the_mtu_was_lowered_meanwhile() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.judge(|_, _| crate::net::Fate::Lose);
    let data = pattern_of(1, 1448);
    assert!(net.a.write(a, &data, net.now));
    net.settle();
    net.be_kind();
    net.a.stack.set_mtu(600);
    net.carried.clear();
    net.pass(Duration::from_secs(1));
    assert_eq!(net.b.read(b, 1448), data);
    assert!(
        packets(&net).iter().all(|len| *len <= 600),
        "{:?}",
        packets(&net)
    );
}

#[test]
fn higher_mtu_is_for_connections_to_come_as_far_as_frames_have_room() {
    let (io, wire) = xwarp_driver::MemoryIo::with_room(64, 3000).unwrap();
    let mut net = Net::new();
    net.a = crate::net::Endpoint::on(Box::new(io), wire, config(Side::A));
    let mut jumbo = config(Side::B);
    jumbo.mtu = 9000;
    net.b = crate::net::Endpoint::new(crate::net::FRAMES, jumbo);
    let (old, _) = net.connect(false);
    net.a.stack.set_mtu(9000);
    let (new, _) = net.connect_from(false, 40_001);
    let headers = HEADERS[1] + HEADERS[2];
    assert_eq!(net.a.conn(old).emss(), 1500 - headers);
    let link_header_max = 22;
    assert_eq!(net.a.conn(new).emss(), 3000 - link_header_max - headers);
    net.a.stack.set_mtu(100);
    assert_eq!(
        net.a.conn(new).emss(),
        576 - headers,
        "as little as TCP goes"
    );
}

#[test]
fn frames_come_from_the_present_ethernet_address() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.stack.set_mac(NEW_MAC);
    net.carried.clear();
    assert!(net.a.write(a, b"old connection", net.now));
    net.settle();
    assert_eq!(net.b.read(b, 20), b"old connection");
    net.b.events();
    // The peer uses the former address until it resolves it again.
    let to_former = |net: &Net| {
        net.carried
            .iter()
            .any(|(_, frame)| frame[..6] == Side::A.mac())
    };
    assert!(to_former(&net), "its ACKs");
    assert_eq!(net.a.conn(a).unacked(), 0);
    net.connect_from(false, 40_001);
    let sources: Vec<&[u8]> = (net.carried.iter())
        .filter(|(from, _)| *from == Side::A)
        .map(|(_, frame)| &frame[6..12])
        .collect();
    assert!(sources.len() >= 3, "data, SYN, ACK");
    assert!(sources.iter().all(|source| *source == NEW_MAC));
}

#[test]
fn connections_of_an_address_that_the_host_has_lost_end_in_silence() {
    let mut net = Net::new();
    let (mine, peer) = net.connect(false);
    let (other, _) = net.connect(true);
    net.judge(|_, _| crate::net::Fate::Lose);
    let syn = net
        .a
        .stack
        .connect(Net::path(false, 40_002), net.now)
        .unwrap();
    assert!(net.a.write(mine, b"unacknowledged", net.now));
    net.settle();
    net.carried.clear();
    assert!(net.b.write(peer, b"never answered", net.now));
    net.a.stack.withdraw(Net::path(false, 1).local.ip());
    let reason = CloseReason::AddressLost;
    let closed = |conn, lost| Event::Closed { conn, reason, lost };
    let events: Vec<Event> = std::iter::from_fn(|| net.a.stack.poll_event()).collect();
    assert_eq!(events, [closed(mine, true), closed(syn, false)]);
    net.be_kind();
    net.pass(Duration::from_mins(5));
    let from_it = |frame: &[u8]| frame[12..14] == [8, 0];
    let sent = net.carried.iter().filter(|(from, _)| *from == Side::A);
    assert_eq!(sent.filter(|(_, frame)| from_it(frame)).count(), 0);
    assert!(net.a.write(other, b"still there", net.now));
}

#[test]
fn nobody_is_told_of_a_half_open_connection_whose_address_is_lost_and_its_backlog_is_free() {
    let mut net = Net::new();
    net.listen(false);
    net.judge(|from, _| match from {
        Side::A => crate::net::Fate::Pass,
        Side::B => crate::net::Fate::Lose,
    });
    net.a
        .stack
        .connect(Net::path(false, 40_000), net.now)
        .unwrap();
    net.settle();
    net.b.stack.withdraw(Net::path(false, 1).remote.ip());
    net.settle();
    assert_eq!(net.b.events(), []);
    net.be_kind();
    net.a.events();
    net.connect_from(false, 40_001);
    let sent = net.b.stack.counters().cookies_out;
    assert_eq!(sent, 0, "there is room in the backlog");
}

#[test]
fn rest_in_time_wait_ends_with_its_address() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.stack.close(a, net.now);
    net.settle();
    net.b.stack.close(b, net.now);
    net.settle();
    net.a.stack.withdraw(Net::path(false, 1).local.ip());
    net.a.events();
    net.b.events();
    let again = net.a.stack.connect(Net::path(false, 40_000), net.now);
    assert!(again.is_ok(), "its flow is free");
}

/// The first of them is the tail probe's, which is no timeout. RFC 9293 §3.8.3 asks for advice
/// after three timeouts.
#[test]
fn peer_that_is_silent_for_three_timeouts_puts_its_path_in_doubt() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.judge(|_, _| crate::net::Fate::Lose);
    assert!(net.a.write(a, b"lost on the way", net.now));
    net.settle();
    let mut sent = net.a.stack.counters().retransmissions;
    let mut timeouts = 0;
    while net.a.doubts.is_empty() {
        net.pass(Duration::from_millis(1));
        let now_sent = net.a.stack.counters().retransmissions;
        timeouts += now_sent - sent;
        sent = now_sent;
    }
    let probes = net.a.stack.counters().tail_probes;
    assert_eq!(timeouts - probes, 3);
    assert_eq!(net.a.doubts, [a]);
    net.pass(Duration::from_secs(25));
    net.be_kind();
    net.b.stack.set_mac(NEW_MAC);
    assert!(net.a.stack.set_next_hop(a, NEW_MAC, net.now));
    assert!(!net.a.stack.set_next_hop(a, NEW_MAC, net.now), "no news");
    net.carried.clear();
    net.pass(Duration::from_millis(500));
    assert_eq!(
        net.b.read(b, 20),
        b"lost on the way",
        "the timeout is short again"
    );
    let mut sent = net.carried.iter().filter(|(from, _)| *from == Side::A);
    assert!(sent.all(|(_, frame)| frame[..6] == NEW_MAC));
    assert_eq!(net.a.stack.counters().rerouted, 1);
    net.a.stack.abort(a, net.now);
    net.a.step(net.now);
    assert!(
        !net.a.stack.set_next_hop(a, Side::B.mac(), net.now),
        "it is gone"
    );
}

#[test]
fn connection_to_the_own_host_has_no_next_hop() {
    let mut net = Net::new();
    let (a, _) = net.connect(false);
    net.a.stack.set_mac(Side::B.mac());
    assert!(!net.a.stack.set_next_hop(a, NEW_MAC, net.now));
}

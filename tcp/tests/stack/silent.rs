//! Silent peers hold TX frames until their ACKs arrive: their effect on other connections. An
//! honest peer beside 16, 64 or 2000 of them is served within 6 ms.

use std::time::Duration;

use smoltcp::wire::{Ipv4Address, TcpPacket, TcpSeqNumber};
use xwarp_tcp::{ConnId, StackConfig};
use xwarp_test_kit::{Side, pattern_of};

use crate::net::{Endpoint, Fate, Net, config};

/// Bytes of a message, which is one segment.
const MESSAGE: usize = 1448;
/// Bytes that open a connection's congestion window.
const OPENING: usize = 600_000;
/// Bytes sent to the honest peer, and their time limit.
const WANTED: usize = 500_000;
const SOON: Duration = Duration::from_millis(20);
/// Time before a peer counts as silent.
const AT_ONCE: Duration = Duration::from_millis(4);
const FIRST_PORT: u16 = 20_000;

/// A network with peers that have fallen silent with full windows in flight, and one honest peer.
struct Crowd {
    net: Net,
    silent: Vec<(ConnId, ConnId)>,
    /// Messages in flight to each silent peer.
    in_flight: Vec<usize>,
    honest: (ConnId, ConnId),
}

impl Crowd {
    fn new(peers: u16, opening: usize) -> Self {
        let of = |side| StackConfig {
            max_connections: usize::from(peers) + 1,
            ..config(side)
        };
        let mut net = Net::with(of(Side::A), of(Side::B));
        net.listen(false);
        let silent: Vec<_> = (0..peers)
            .map(|n| {
                let ends = net.connect_from(false, FIRST_PORT + n);
                net.transfer(ends, &pattern_of(1, opening), || MESSAGE);
                net.a.events();
                net.b.events();
                ends
            })
            .collect();
        let honest = net.connect_from(false, FIRST_PORT + peers);
        net.judge(move |_, frame| {
            let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let silent = FIRST_PORT..FIRST_PORT + peers;
            if silent.contains(&port(34)) || silent.contains(&port(36)) {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        let data = pattern_of(2, MESSAGE);
        let fill = |(conn, _): &(ConnId, ConnId)| {
            let mut messages = 0;
            while net.a.write(*conn, &data, net.now) {
                messages += 1;
            }
            messages
        };
        let in_flight = silent.iter().map(fill).collect();
        Self {
            net,
            silent,
            in_flight,
            honest,
        }
    }

    /// The latest ACK of each silent peer.
    fn latest_acks(&self) -> Vec<Vec<u8>> {
        let port = |frame: &[u8]| usize::from(u16::from_be_bytes([frame[36], frame[37]]));
        let mut latest = vec![Vec::new(); self.silent.len()];
        for (_, frame) in self.net.carried.iter().filter(|it| it.0 == Side::B) {
            if let Some(ack) = latest.get_mut(port(frame) - usize::from(FIRST_PORT)) {
                ack.clone_from(frame);
            }
        }
        latest
    }

    /// Bytes that reach the honest peer in 20 ms while each other peer sends an ACK per
    /// millisecond, made from its last one by `alter`.
    fn serve_beside_acks(&mut self, alter: impl Fn(&mut TcpPacket<&mut [u8]>)) -> usize {
        let mut acks = self.latest_acks();
        let (data, mut received) = (pattern_of(3, MESSAGE), 0);
        let (a, b) = self.honest;
        for _ in 0..SOON.as_millis() {
            for ack in &mut acks {
                let mut segment = TcpPacket::new_unchecked(&mut ack[34..]);
                alter(&mut segment);
                let [from, to] = [2, 1].map(|host| Ipv4Address::new(10, 0, 0, host).into());
                segment.fill_checksum(&from, &to);
                self.net.a.wire.deliver(ack.clone());
            }
            while self.net.a.write(a, &data, self.net.now) {}
            self.net.pass(Duration::from_millis(1));
            received += self.net.b.read(b, MESSAGE).len();
        }
        received
    }

    /// Time to send the honest peer all its bytes.
    fn serve(&mut self) -> Duration {
        let (began, data) = (self.net.now, pattern_of(3, WANTED));
        let received = self.net.transfer(self.honest, &data, || MESSAGE);
        assert!(received == data);
        self.net.now - began
    }
}

#[test]
fn honest_peer_has_its_share_at_once_beside_a_few_silent_ones() {
    let mut crowd = Crowd::new(8, OPENING);
    let took = crowd.serve();
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
fn honest_peer_is_served_beside_many_silent_ones() {
    for peers in [16, 64] {
        let mut crowd = Crowd::new(peers, OPENING);
        assert!(crowd.in_flight.iter().sum::<usize>() > 900);
        let took = crowd.serve();
        assert!(took < SOON, "{peers} silent peers: {took:?}");
    }
}

/// Peers that hold all frames by an occasional sign of life: a closed window, or one byte
/// acknowledged.
#[test]
fn peers_that_acknowledge_next_to_nothing_keep_no_frames_from_others() {
    let closed = |segment: &mut TcpPacket<&mut [u8]>| segment.set_window_len(0);
    let dripping = |segment: &mut TcpPacket<&mut [u8]>| {
        let TcpSeqNumber(ack) = segment.ack_number();
        segment.set_ack_number(TcpSeqNumber(ack.wrapping_add(1)));
    };
    for alter in [closed, dripping] {
        let mut crowd = Crowd::new(64, OPENING);
        let received = crowd.serve_beside_acks(alter);
        assert!(received > WANTED, "{received} bytes");
    }
}

#[test]
fn more_silent_peers_than_frames_take_none_for_long() {
    let mut crowd = Crowd::new(2000, MESSAGE);
    let took = crowd.serve();
    assert!(took < SOON, "{took:?}");
    // A retransmission to each of them occupies a frame only while the kernel has it.
    crowd.net.pass(Duration::from_secs(1));
    let took = crowd.serve();
    assert!(took < SOON, "{took:?}");
}

#[test]
fn peer_that_is_heard_again_gets_all_of_it() {
    let mut crowd = Crowd::new(16, OPENING);
    crowd.serve();
    crowd.net.pass(Duration::from_secs(1));
    let before = crowd.net.a.stack.counters().retransmissions;
    assert!(before > 0);
    crowd.net.be_kind();
    crowd.net.pass(Duration::from_secs(2));
    let message = pattern_of(2, MESSAGE);
    for ((_, b), messages) in crowd.silent.iter().zip(&crowd.in_flight) {
        let received = crowd.net.b.read(*b, MESSAGE);
        assert!(received == message.repeat(*messages));
    }
    for (a, _) in crowd.silent {
        assert_eq!(crowd.net.a.conn(a).unacked(), 0);
    }
}

/// Peers with more data in flight than may be parked.
#[test]
fn peers_that_have_more_in_flight_than_may_be_parked_leave_a_share() {
    let mut crowd = Crowd::new(350, OPENING);
    let data = pattern_of(2, MESSAGE);
    let mut in_flight: usize = crowd.in_flight.iter().sum();
    let mut idle = 0;
    while idle < 5 {
        let before = in_flight;
        crowd.net.pass(Duration::from_millis(6));
        for (conn, _) in &crowd.silent {
            while crowd.net.a.write(*conn, &data, crowd.net.now) {
                in_flight += 1;
            }
        }
        idle = if in_flight == before { idle + 1 } else { 0 };
    }
    // The maximum of parked data, all frames, and few segments of each connection.
    let parked = (64 << 20) / MESSAGE;
    let most = parked + 1024 + 4 * crowd.silent.len();
    assert!((parked..most).contains(&in_flight), "{in_flight} messages");
    let took = crowd.serve();
    assert!(took < SOON, "{took:?}");
}

#[test]
fn nobody_looks_for_frames_that_no_peer_can_give() {
    let mut net = Net::new();
    net.a = Endpoint::new(64, config(Side::A));
    let (conn, _) = net.connect(false);
    net.judge(|_, _| Fate::Lose);
    let (mut turns, end) = (0, net.now + Duration::from_secs(5));
    while net.now < end {
        while net.a.write(conn, &[0], net.now) {}
        net.settle();
        assert!(net.jump(), "something is in flight");
        turns += 1;
    }
    let unacked = net.a.conn(conn).unacked();
    assert!(unacked > 40, "most frames are its own: {unacked}");
    // Retransmissions and probes, but not a thousand visits a second.
    assert!((5..200).contains(&turns), "{turns} turns");
}

//! Connections of a stack to itself: their frames do not reach the wire, and no other host can pass
//! for the own host.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xwarp_driver::net::Network;
use xwarp_tcp::{CloseReason, ConnId, Event, Instant, Path};
use xwarp_test_kit::{Endpoint, Side};

use crate::net::{FRAMES, config};
use crate::nic_checksum::offering;

const PORT: u16 = 4791;

/// A host, and its clock.
struct Host {
    end: Endpoint,
    address: IpAddr,
    now: Instant,
}

impl Host {
    fn new(address: &str) -> Self {
        Self::on(Endpoint::new(FRAMES, config(Side::A)), address)
    }

    fn on(mut end: Endpoint, address: &str) -> Self {
        let address = address.parse().unwrap();
        let prefix = 24;
        end.stack.set_networks(vec![Network { address, prefix }]);
        let now = Instant::from_micros(1_000_000);
        Self { end, address, now }
    }

    /// A path to a port of the same host.
    fn path_to(&self, port: u16) -> Path {
        Path {
            local: SocketAddr::new(self.address, 40_000),
            remote: SocketAddr::new(self.address, port),
            next_hop: self.end.stack.mac(),
            metrics: xwarp_tcp::RouteMetrics::default(),
        }
    }

    /// Runs the stack until it has no work, which it must report itself.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.now = self.now + Duration::from_micros(10);
            let done = self.end.step(self.now);
            let due = self.end.stack.next_deadline() == Some(self.now);
            if done == 0 && !due {
                return;
            }
        }
        panic!("the stack does not come to rest");
    }

    /// A connection to itself: the connecting end, and the accepted one.
    fn connect(&mut self) -> (ConnId, ConnId) {
        let at = SocketAddr::new(self.address, PORT);
        self.end.stack.listen(at, 64).unwrap();
        let path = self.path_to(PORT);
        let a = self.end.stack.connect(path, self.now).unwrap();
        assert_eq!(self.end.stack.next_deadline(), Some(self.now));
        self.settle();
        match self.end.events()[..] {
            [Event::Connected(conn), Event::Incoming { conn: b, .. }]
            | [Event::Incoming { conn: b, .. }, Event::Connected(conn)] => {
                assert_eq!(conn, a);
                (a, b)
            }
            ref other => panic!("{other:?}"),
        }
    }

    /// Carries `len` bytes from one end to the other.
    fn transfer(&mut self, from: ConnId, to: ConnId, len: usize) {
        let data: Vec<u8> = (0..=250).cycle().take(len).collect();
        let (mut left, mut received) = (&data[..], Vec::new());
        while received.len() < len {
            while !left.is_empty() {
                let (piece, rest) = left.split_at(1000.min(left.len()));
                if !self.end.write(from, piece, self.now) {
                    break;
                }
                left = rest;
            }
            let before = received.len();
            self.settle();
            received.extend(self.end.read(to, 999));
            assert!(received.len() > before, "stuck after {before} bytes");
        }
        assert!(received == data);
    }
}

#[test]
fn stack_connects_to_itself_and_nothing_of_it_reaches_the_wire() {
    for address in ["10.0.0.1", "fd00::a", "127.0.0.1", "::1"] {
        let mut host = Host::new(address);
        let (a, b) = host.connect();
        host.transfer(a, b, 3_000_000);
        host.transfer(b, a, 3_000_000);
        host.end.events();
        host.end.stack.close(a, host.now);
        host.settle();
        host.end.stack.close(b, host.now);
        host.settle();
        assert!(host.end.events.contains(&Event::PeerClosed(a)));
        assert_eq!(host.end.close_reasons(b), [CloseReason::Graceful]);
        assert_eq!(host.end.sent(), Vec::<Vec<u8>>::new());
        let (io, tcp) = (host.end.stack.io().counters(), host.end.stack.counters());
        assert!(io.looped_frames > 4000, "{io:?}");
        assert_eq!((io.drop_looped, io.drop_foreign), (0, 0));
        assert_eq!((tcp.retransmissions, tcp.drop_bad_source), (0, 0));
    }
}

/// The NIC does not see these frames, whatever it offers to compute.
#[test]
fn checksums_of_a_connection_to_itself_are_left_to_nobody() {
    let mut host = Host::on(offering(Side::A), "10.0.0.1");
    let (a, b) = host.connect();
    host.transfer(a, b, 100_000);
    host.transfer(b, a, 100_000);
    assert_eq!(host.end.stack.counters().checksum_probes_out, 0);
}

#[test]
fn connection_to_itself_lives_on_when_the_ethernet_address_changes_and_the_link_goes() {
    let mut host = Host::new("10.0.0.1");
    let (a, b) = host.connect();
    host.end.stack.set_up(false, host.now);
    host.end.stack.set_mac(Side::B.mac());
    host.transfer(a, b, 100_000);
    host.transfer(b, a, 100_000);
    assert_eq!(host.end.sent(), Vec::<Vec<u8>>::new());
}

#[test]
fn port_that_nobody_listens_on_refuses_its_own_host() {
    let mut host = Host::new("10.0.0.1");
    let path = host.path_to(9);
    let conn = host.end.stack.connect(path, host.now).unwrap();
    host.settle();
    assert_eq!(host.end.close_reasons(conn), [CloseReason::Refused]);
    assert_eq!(host.end.sent(), Vec::<Vec<u8>>::new());
}

/// RFC 1122 §3.2.1.3: a frame from outside with an address of the host is not answered, even while
/// the host has connections to itself.
#[test]
fn frame_of_the_wire_does_not_pass_for_one_of_the_own_host() {
    let mut host = Host::new("10.0.0.1");
    let _ = host.connect();
    let mut other = Endpoint::new(FRAMES, config(Side::B));
    let forged = Path {
        local: SocketAddr::new(host.address, 50_000),
        remote: SocketAddr::new(host.address, PORT),
        next_hop: host.end.stack.mac(),
        metrics: xwarp_tcp::RouteMetrics::default(),
    };
    for mac in [Side::B.mac(), host.end.stack.mac()] {
        // From its own station, and from the host's.
        other.stack.set_mac(Side::B.mac());
        let conn = other.stack.connect(forged, host.now).unwrap();
        other.step(host.now);
        for mut frame in other.sent() {
            frame[6..12].copy_from_slice(&mac);
            host.end.wire.deliver(frame);
        }
        other.stack.abort(conn, host.now);
        host.settle();
        assert_eq!(host.end.sent(), Vec::<Vec<u8>>::new());
        assert_eq!(host.end.events(), []);
    }
    assert_eq!(host.end.stack.counters().drop_bad_source, 2);
}

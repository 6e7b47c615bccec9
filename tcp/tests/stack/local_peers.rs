//! Connections between processes of one host, behind a switch: each has an Ethernet address of its
//! own, and the next hop to all others is the switch. IP addresses may be the same at both ends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket};
use xwarp_driver::net::Network;
use xwarp_driver::{Digest, LocalHop, MemoryIo, Wire};
use xwarp_tcp::{CloseReason, ConnId, ConnectError, Event, Instant, Path, RouteMetrics};
use xwarp_test_kit::{Side, pattern_of};

use crate::net::{Endpoint, FRAMES, config};

/// Ethernet address of the switch at each process.
const SWITCH: [u8; 6] = [2, 0, 0, 0, 0xff, 0xff];
/// Ethernet address of a router on a wire.
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const PORT: u16 = 4791;
/// Addresses that both ends of a connection may have.
const ADDRESSES: [&str; 6] = [
    "10.0.0.1",
    "127.0.0.1",
    "127.1.2.3",
    "::1",
    "fe80::1",
    "fd00::a",
];

/// Bytes of IP and TCP headers with timestamps, by IPv4.
const HEADERS: usize = 52;
/// The switch, which has no MTU of its own.
const NARROW: LocalHop = LocalHop {
    mac: SWITCH,
    mtu: None,
    is_trusted: false,
};
/// The switch, whose frames need no checksums.
const TRUSTED: LocalHop = LocalHop {
    is_trusted: true,
    ..NARROW
};
/// The switch, with an MTU of its own.
const WIDE: LocalHop = LocalHop {
    mtu: Some(65_535),
    ..NARROW
};

/// A process of the host, whose frames have room for `room` bytes.
fn process(side: Side, switch: LocalHop, room: usize) -> Endpoint {
    let (io, wire) = MemoryIo::with_room(FRAMES, room).unwrap();
    on(io.with_local_hop(switch), wire, side)
}

/// A process of the host on this interface.
fn on(io: MemoryIo, wire: Wire, side: Side) -> Endpoint {
    let mut end = Endpoint::on(Box::new(io), wire, config(side));
    let networks = ["10.0.0.1", "fd00::a", "fe80::1"].map(|address| Network {
        address: address.parse().unwrap(),
        prefix: if address.contains(':') { 64 } else { 24 },
    });
    end.stack.set_networks(networks.to_vec());
    end
}

/// Two processes, and the switch between them. A router is between them, too.
struct Host {
    a: Endpoint,
    b: Endpoint,
    now: Instant,
    /// Every frame that was carried, as it was sent.
    carried: Vec<(Side, Vec<u8>)>,
}

impl Host {
    fn new() -> Self {
        Self::with(NARROW)
    }

    fn with(switch: LocalHop) -> Self {
        Self::of_frames(switch, 65_600)
    }

    fn of_frames(switch: LocalHop, room: usize) -> Self {
        Self {
            a: process(Side::A, switch, room),
            b: process(Side::B, switch, room),
            now: Instant::from_micros(1_000_000),
            carried: Vec::new(),
        }
    }

    /// A path from a to a port of b. Both have the address.
    fn path(address: &str, port: u16) -> Path {
        let address: IpAddr = address.parse().unwrap();
        Path {
            local: SocketAddr::new(address, 40_000),
            remote: SocketAddr::new(address, port),
            next_hop: SWITCH,
            metrics: RouteMetrics::default(),
        }
    }

    /// A path from a to b over the wire.
    fn path_by_router() -> Path {
        Path {
            local: "10.9.0.1:40000".parse().unwrap(),
            remote: "10.9.0.2:4791".parse().unwrap(),
            next_hop: ROUTER,
            metrics: RouteMetrics::default(),
        }
    }

    /// Carries what both have sent. As switch and router do, it writes both Ethernet addresses
    /// anew.
    fn carry(&mut self) -> usize {
        let before = self.carried.len();
        for (side, from, to) in [
            (Side::A, &self.a, (&self.b, Side::B)),
            (Side::B, &self.b, (&self.a, Side::A)),
        ] {
            for frame in from.sent() {
                self.carried.push((side, frame.clone()));
                let (hop, rest) = frame.split_at(6);
                assert!(hop == SWITCH || hop == ROUTER);
                assert_eq!(rest[..6], side.mac());
                let (to, at) = to;
                to.wire.deliver([&at.mac()[..], hop, &frame[12..]].concat());
            }
        }
        self.carried.len() - before
    }

    /// Runs both until neither has work.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.now = self.now + Duration::from_micros(10);
            let done = self.a.step(self.now) + self.b.step(self.now);
            if self.carry() + done == 0 {
                return;
            }
        }
        panic!("the processes do not come to rest");
    }

    /// A connection from a to b, as each names it.
    fn connect(&mut self, address: &str) -> (ConnId, ConnId) {
        self.connect_along(Self::path(address, PORT))
    }

    fn connect_along(&mut self, path: Path) -> (ConnId, ConnId) {
        self.b.stack.listen(path.remote, 64).unwrap();
        let a = self.a.stack.connect(path, self.now).unwrap();
        self.settle();
        assert_eq!(self.a.events(), [Event::Connected(a)], "{path:?}");
        match self.b.events()[..] {
            [Event::Incoming { conn, remote, .. }] => {
                assert_eq!(remote, path.local);
                (a, conn)
            }
            ref other => panic!("{path:?}: {other:?}"),
        }
    }

    /// Payload per segment at both ends of a connection.
    fn sizes(&mut self, (a, b): (ConnId, ConnId)) -> [usize; 2] {
        [self.a.conn(a).emss(), self.b.conn(b).emss()]
    }

    /// Carries a piece in each direction.
    fn exchange(&mut self, (a, b): (ConnId, ConnId), len: usize) {
        let data = pattern_of(3, len);
        assert!(self.a.write(a, &data, self.now));
        self.settle();
        assert!(self.b.read(b, 999) == data);
        assert!(self.b.write(b, &data, self.now));
        self.settle();
        assert!(self.a.read(a, 999) == data);
        self.a.events();
        self.b.events();
    }
}

#[test]
fn processes_connect_by_one_address_of_the_host() {
    for address in ADDRESSES {
        let mut host = Host::new();
        let (a, b) = host.connect(address);
        host.exchange((a, b), 1000);
        host.a.stack.close(a, host.now);
        host.settle();
        host.b.stack.close(b, host.now);
        host.settle();
        assert_eq!(host.b.close_reasons(b), [CloseReason::Graceful]);
        for end in [&host.a, &host.b] {
            let counters = end.stack.counters();
            assert_eq!(counters.retransmissions, 0);
            assert_eq!(
                (counters.drop_bad_source, counters.drop_not_unicast),
                (0, 0)
            );
        }
    }
}

#[test]
fn port_without_a_listener_refuses_another_process() {
    for address in ADDRESSES {
        let mut host = Host::new();
        let path = Host::path(address, 9);
        let conn = host.a.stack.connect(path, host.now).unwrap();
        host.settle();
        assert_eq!(host.a.close_reasons(conn), [CloseReason::Refused]);
    }
}

/// A flood of SYNs is answered by cookies, whose ACKs are judged by the frame, too.
#[test]
fn cookies_are_for_processes_of_the_host_too() {
    let mut host = Host::new();
    let at = Host::path("127.0.0.1", PORT).remote;
    host.b.stack.listen(at, 1).unwrap();
    let connect = |host: &mut Host, port| {
        let mut path = Host::path("127.0.0.1", PORT);
        path.local.set_port(port);
        host.a.stack.connect(path, host.now).unwrap()
    };
    connect(&mut host, 40_001);
    let second = connect(&mut host, 40_002);
    host.settle();
    assert!(host.a.events().contains(&Event::Connected(second)));
    assert_eq!(host.b.stack.counters().cookies_in, 1);
}

/// RFC 1122 §3.2.1.3: what a wire carries with these addresses is not answered.
#[test]
fn frame_of_a_wire_with_the_same_addresses_is_refused() {
    for address in ADDRESSES {
        let mut host = Host::new();
        let path = Host::path(address, PORT);
        host.b.stack.listen(path.remote, 64).unwrap();
        host.a.stack.connect(path, host.now).unwrap();
        host.a.step(host.now);
        let syns = host.a.sent();
        assert_eq!(syns.len(), 1);
        for source in [ROUTER, Side::A.mac(), Side::B.mac()] {
            let forged = [&Side::B.mac()[..], &source, &syns[0][12..]].concat();
            host.b.wire.deliver(forged);
            host.b.step(host.now);
            assert_eq!(host.b.sent(), Vec::<Vec<u8>>::new(), "{address}");
        }
        assert_eq!(host.b.events(), []);
        let counters = host.b.stack.counters();
        let loopback = path.remote.ip().is_loopback();
        let expected = if loopback { (0, 3) } else { (3, 0) };
        let refused = (counters.drop_bad_source, counters.drop_not_unicast);
        assert_eq!(refused, expected, "{address}");
    }
}

#[test]
fn connection_by_a_loopback_address_is_opened_only_where_frames_stay_on_the_host() {
    let mut host = Host::new();
    let outside = "10.0.0.9:4791".parse().unwrap();
    for address in ["127.0.0.1", "127.1.2.3", "::1"] {
        let local = Path {
            next_hop: ROUTER,
            ..Host::path(address, PORT)
        };
        let refused = host.a.stack.connect(local, host.now);
        assert_eq!(refused, Err(ConnectError::Loopback(local.local)));
        if local.local.is_ipv4() {
            let half = Path {
                remote: outside,
                ..local
            };
            let refused = host.a.stack.connect(half, host.now);
            assert_eq!(refused, Err(ConnectError::Loopback(half.local)));
            let half = Path {
                local: outside,
                ..local
            };
            let refused = host.a.stack.connect(half, host.now);
            assert_eq!(refused, Err(ConnectError::Loopback(half.remote)));
        }
        let itself = Path {
            next_hop: host.a.stack.mac(),
            ..local
        };
        assert!(host.a.stack.connect(itself, host.now).is_ok());
    }
    host.a.step(host.now);
    assert_eq!(host.a.sent(), Vec::<Vec<u8>>::new());
}

#[test]
fn path_between_processes_has_an_mtu_of_its_own_beside_the_interfaces() {
    let mut host = Host::with(WIDE);
    let local = host.connect("10.0.0.1");
    let remote = host.connect_along(Host::path_by_router());
    assert_eq!(host.sizes(local), [65_535 - HEADERS; 2]);
    assert_eq!(host.sizes(remote), [1500 - HEADERS; 2]);
    host.carried.clear();
    host.exchange(local, 65_535 - HEADERS);
    let longest = host.carried.iter().map(|(_, frame)| frame.len()).max();
    assert_eq!(longest, Some(14 + 65_535), "in one piece");
    host.exchange(remote, 1448);
}

#[test]
fn mtu_between_processes_is_at_most_what_a_frame_holds() {
    let mut host = Host::of_frames(WIDE, 3000);
    let local = host.connect("10.0.0.1");
    let link_header_max = 22;
    assert_eq!(host.sizes(local), [3000 - link_header_max - HEADERS; 2]);
}

#[test]
fn smaller_mtu_of_the_interface_leaves_the_paths_between_processes_alone() {
    let mut host = Host::with(WIDE);
    let local = host.connect("10.0.0.1");
    let remote = host.connect_along(Host::path_by_router());
    for end in [&mut host.a, &mut host.b] {
        end.stack.set_mtu(600);
    }
    assert_eq!(host.sizes(local), [65_535 - HEADERS; 2]);
    assert_eq!(host.sizes(remote), [600 - HEADERS; 2]);
    host.exchange(local, 65_535 - HEADERS);
    // A switch without an MTU of its own has the interface's.
    let mut host = Host::new();
    let local = host.connect("10.0.0.1");
    host.a.stack.set_mtu(600);
    assert_eq!(host.sizes(local), [600 - HEADERS, 1500 - HEADERS]);
}

#[test]
fn mtu_between_processes_holds_for_connections_by_cookies() {
    let mut host = Host::with(WIDE);
    let path = Host::path("10.0.0.1", PORT);
    host.b.stack.listen(path.remote, 1).unwrap();
    let mut first = path;
    first.local.set_port(40_001);
    host.a.stack.connect(first, host.now).unwrap();
    let a = host.a.stack.connect(path, host.now).unwrap();
    host.settle();
    let mut incoming = host.b.events().into_iter().filter_map(|event| match event {
        Event::Incoming { conn, remote, .. } => (remote == path.local).then_some(conn),
        _ => None,
    });
    let b = incoming.next().unwrap();
    assert_eq!(host.b.stack.counters().cookies_in, 1);
    // A cookie has no room for a larger MSS of the peer than 8960.
    assert_eq!(host.sizes((a, b)), [65_535 - HEADERS, 8960 - 12]);
}

#[test]
fn connection_that_goes_over_to_the_wire_has_the_interfaces_mtu() {
    let mut host = Host::with(WIDE);
    let (a, b) = host.connect_along(Path {
        next_hop: SWITCH,
        ..Host::path_by_router()
    });
    assert!(host.a.stack.set_next_hop(a, ROUTER, host.now));
    assert!(host.b.stack.set_next_hop(b, ROUTER, host.now));
    assert_eq!(host.sizes((a, b)), [1500 - HEADERS; 2]);
    host.carried.clear();
    host.exchange((a, b), 1448);
    assert!(host.carried.iter().all(|(_, frame)| frame[..6] == ROUTER));
}

/// Checksum of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    Right,
    Zero,
    Wrong,
}

fn sum_of(frame: &[u8]) -> Sum {
    let packet = &frame[14..];
    let (tcp, [source, target]) = if packet[0] >> 4 == 4 {
        let ip = Ipv4Packet::new_checked(packet).unwrap();
        assert!(ip.verify_checksum());
        let ends = [ip.src_addr(), ip.dst_addr()].map(Into::into);
        (ip.payload(), ends)
    } else {
        let ip = Ipv6Packet::new_checked(packet).unwrap();
        let ends = [ip.src_addr(), ip.dst_addr()].map(Into::into);
        (ip.payload(), ends)
    };
    let tcp = TcpPacket::new_checked(tcp).unwrap();
    match tcp.checksum() {
        0 => Sum::Zero,
        _ if tcp.verify_checksum(&source, &target) => Sum::Right,
        _ => Sum::Wrong,
    }
}

impl Host {
    /// The checksums of all segments that were carried since the last call.
    fn sums(&mut self) -> Vec<Sum> {
        let carried = std::mem::take(&mut self.carried);
        carried.iter().map(|(_, frame)| sum_of(frame)).collect()
    }

    /// Writes a piece whose sum is known.
    fn write_summed(&mut self, a: ConnId, data: &[u8]) {
        let mut digest = Digest::default();
        digest.add(data);
        let mut conn = self.a.conn(a);
        conn.writable(data.len()).unwrap().copy_from_slice(data);
        conn.commit_summed(data.len(), Some(digest.checksum()), self.now);
    }
}

#[test]
fn segments_to_a_trusted_next_hop_carry_no_checksum_from_the_syn_to_the_fin() {
    for (address, switch) in [
        ("127.0.0.1", TRUSTED),
        ("fd00::a", TRUSTED),
        ("10.0.0.1", NARROW),
        ("::1", NARROW),
    ] {
        let mut host = Host::with(switch);
        let (a, b) = host.connect(address);
        assert_eq!(host.a.conn(a).is_summed(), !switch.is_trusted);
        host.exchange((a, b), 1000);
        let data = pattern_of(7, 1400);
        host.write_summed(a, &data);
        host.settle();
        assert!(host.b.read(b, 999) == data);
        host.a.stack.close(a, host.now);
        host.settle();
        host.b.stack.close(b, host.now);
        host.settle();
        assert_eq!(host.b.close_reasons(b), [CloseReason::Graceful]);
        let expected = if switch.is_trusted {
            Sum::Zero
        } else {
            Sum::Right
        };
        let sums = host.sums();
        assert!(sums.len() > 8);
        assert!(sums.iter().all(|sum| *sum == expected), "{sums:?}");
        for end in [&host.a, &host.b] {
            let counters = end.stack.counters();
            assert_eq!(
                (counters.retransmissions, counters.drop_bad_checksum),
                (0, 0)
            );
        }
    }
}

/// Also such a SYN is refused, and such a RST.
#[test]
fn frame_without_a_checksum_is_refused_where_frames_are_not_trusted() {
    for address in ["10.0.0.1", "::1"] {
        let mut host = Host::with(TRUSTED);
        host.b = process(Side::B, NARROW, 65_600);
        let path = Host::path(address, PORT);
        host.b.stack.listen(path.remote, 64).unwrap();
        host.a.stack.connect(path, host.now).unwrap();
        host.settle();
        assert_eq!(host.sums(), [Sum::Zero]);
        assert_eq!(host.b.stack.counters().drop_bad_checksum, 1);
        assert_eq!(host.b.events(), []);
    }
    // A connection is not harmed by a segment that the router has brought.
    let mut host = Host::with(TRUSTED);
    let (a, b) = host.connect("10.0.0.1");
    host.carried.clear();
    assert!(host.a.write(a, b"trusted", host.now));
    host.a.step(host.now);
    let sent = host.a.sent();
    let from = |hop: [u8; 6]| [&Side::B.mac()[..], &hop, &sent[0][12..]].concat();
    host.b.wire.deliver(from(ROUTER));
    host.settle();
    assert_eq!(host.b.stack.counters().drop_bad_checksum, 1);
    assert_eq!(host.b.conn(b).readable_len(), 0);
    host.b.wire.deliver(from(SWITCH));
    host.settle();
    assert_eq!(host.b.read(b, 7), b"trusted");
}

#[test]
fn segment_that_is_sent_again_has_the_checksum_that_the_present_next_hop_needs() {
    let mut host = Host::with(TRUSTED);
    let (a, b) = host.connect_along(Path {
        next_hop: SWITCH,
        ..Host::path_by_router()
    });
    host.carried.clear();
    for (hop, expected) in [
        (SWITCH, Sum::Zero),
        (ROUTER, Sum::Right),
        (SWITCH, Sum::Zero),
    ] {
        let before = host.a.stack.counters().retransmissions;
        assert!(host.a.write(a, b"lost on the way", host.now));
        host.a.step(host.now);
        assert_eq!(host.a.sent().len(), 1, "and lost");
        host.a.stack.set_next_hop(a, hop, host.now);
        host.b.stack.set_next_hop(b, hop, host.now);
        for _ in 0..100 {
            host.now = host.now + Duration::from_millis(1);
            host.settle();
        }
        assert_eq!(host.b.read(b, 15), b"lost on the way");
        assert!(host.a.stack.counters().retransmissions > before);
        let sums = host.sums();
        assert!(sums.iter().all(|sum| *sum == expected), "{sums:?}");
        host.a.events();
        host.b.events();
        host.exchange((a, b), 1000);
        let sums = host.sums();
        assert!(sums.iter().all(|sum| *sum == expected), "{sums:?}");
    }
}

/// Nothing is left to a NIC that does not see the frames, not even after it has proved itself.
#[test]
fn nic_that_offers_checksums_is_not_asked_where_none_are_needed() {
    let offering = |side| {
        let (io, wire) = MemoryIo::new(FRAMES).unwrap();
        on(io.with_local_hop(TRUSTED).offering_checksums(), wire, side)
    };
    let mut host = Host::new();
    (host.a, host.b) = (offering(Side::A), offering(Side::B));
    let path = Host::path_by_router();
    let local = Path {
        next_hop: SWITCH,
        ..path
    };
    let (a, b) = host.connect_along(local);
    (0..3).for_each(|_| host.exchange((a, b), 100));
    assert_eq!(host.a.stack.counters().checksum_probes_out, 0);
    let hops = |host: &mut Host, hop| {
        assert!(host.a.stack.set_next_hop(a, hop, host.now));
        assert!(host.b.stack.set_next_hop(b, hop, host.now));
        (0..3).for_each(|_| host.exchange((a, b), 100));
    };
    hops(&mut host, ROUTER);
    assert_eq!(host.a.stack.counters().checksums_proven, 1);
    host.sums();
    hops(&mut host, SWITCH);
    let sums = host.sums();
    assert!(sums.iter().all(|sum| *sum == Sum::Zero), "{sums:?}");
}

//! Against the kernel's own TCP: where several ways lead to a host, our answer is the way that its
//! SYN takes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    recv, setsockopt, socket, sockopt,
};
use xwarp_test_kit::needs_root;

use super::testbed::{NEAR, Namespace, ip};
use super::*;

/// The second interface of the near host.
const OTHER: &str = "xwn2";
/// The port that is connected to.
const PORT: u16 = 7471;
/// Bytes of the Ethernet, IPv4 and IPv6 headers.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;

/// A host with two interfaces, and everything that they send.
struct Ways {
    near: Namespace,
    wire: OwnedFd,
    _far: Namespace,
}

impl Ways {
    /// The gateways 10.77.0.11 to .13 on one interface, 10.78.0.11 to .13 on the other, and the
    /// same of IPv6. They answer nothing.
    fn new() -> Self {
        let (near, far) = (Namespace::new(), Namespace::new());
        for (name, net) in [(NEAR, 77), (OTHER, 78)] {
            let path = far.path();
            near.sh(&format!(
                "ip link add {name} type veth peer name {name} netns {path}
                 ip addr add 10.{net}.0.1/24 dev {name}
                 ip addr add fd{net}::1/64 dev {name} nodad
                 ip link set {name} up"
            ));
            far.sh(&format!("ip link set {name} up"));
            for host in 11..=13 {
                near.sh(&format!(
                    "ip neigh add 10.{net}.0.{host} lladdr 02:00:00:00:{net}:{host} nud permanent dev {name}
                     ip neigh add fd{net}::{host} lladdr 02:00:00:00:{net}:{host} nud permanent dev {name}"
                ));
            }
        }
        let wire = far.run(|| {
            let (family, flags) = (AddressFamily::Packet, SockFlag::SOCK_CLOEXEC);
            socket(family, SockType::Raw, flags, SockProtocol::EthAll).expect("a packet socket")
        });
        Self {
            near,
            wire,
            _far: far,
        }
    }

    fn index(&self, name: &'static str) -> u32 {
        self.near.run(|| interface_by_name(name)).unwrap().index
    }

    /// The Ethernet address that the kernel's TCP sends its SYN to. With `dev` its socket is bound
    /// to that interface.
    fn of_kernel(&self, local: SocketAddr, remote: SocketAddr, dev: Option<&str>) -> [u8; 6] {
        let _connecting = self.near.run(|| syn(local, remote, dev));
        let mut frame = [0; 2048];
        loop {
            let len = recv(self.wire.as_raw_fd(), &mut frame, MsgFlags::empty()).expect("a frame");
            if source_port(&frame[..len]) == Some(local.port()) {
                return frame[..6].try_into().expect("6 bytes");
            }
        }
    }

    /// The route of a socket that uses interface `dev`.
    fn of_ours(&self, local: SocketAddr, remote: SocketAddr, dev: &'static str) -> [u8; 6] {
        let index = self.index(dev);
        self.near.run(|| {
            let route = route_from_interface(Some(local), remote, index).unwrap();
            let found = resolve_neighbour(
                route.interface_index,
                local.ip(),
                route.next_hop,
                Duration::ZERO,
            );
            match found {
                Ok(Resolution::Known(mac)) => mac.0,
                other => panic!("{}: {:?}", route.next_hop, other.err()),
            }
        })
    }

    /// Sets the parts of a flow that choose the next hop: 0 for addresses only, 1 for the ports,
    /// too.
    fn hash_policy(&self, policy: u8) {
        self.near.sh(&format!(
            "echo {policy} > /proc/sys/net/ipv4/fib_multipath_hash_policy
             echo {policy} > /proc/sys/net/ipv6/fib_multipath_hash_policy"
        ));
    }

    /// Fails unless both have each flow take the same way; the ways that were taken.
    fn compare(&self, source: &str, remote: &str, dev: Option<&str>) -> BTreeSet<[u8; 6]> {
        let remote = at(remote, PORT);
        let way = |port| {
            let local = at(source, port);
            let kernel = self.of_kernel(local, remote, dev);
            assert_eq!(self.of_ours(local, remote, NEAR), kernel, "{local}");
            kernel
        };
        (40_000..40_024).map(way).collect()
    }
}

fn at(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host), port)
}

/// The Ethernet address of a gateway on our interface.
fn gateway(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0x77, host]
}

/// Begins to connect, as the kernel's own TCP does.
fn syn(local: SocketAddr, remote: SocketAddr, dev: Option<&str>) -> OwnedFd {
    let family = if local.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let connecting = socket(family, SockType::Stream, flags, None).expect("a socket");
    if let Some(dev) = dev {
        setsockopt(&connecting, sockopt::BindToDevice, &dev.into()).expect("root may");
    }
    bind(connecting.as_raw_fd(), &SockaddrStorage::from(local)).expect("a free port");
    let begun = connect(connecting.as_raw_fd(), &SockaddrStorage::from(remote));
    assert_eq!(begun, Err(Errno::EINPROGRESS));
    connecting
}

/// The source port of a TCP segment.
fn source_port(frame: &[u8]) -> Option<u16> {
    let header = match frame.get(12..ETHERNET)? {
        [0x08, 0x00] if *frame.get(ETHERNET + 9)? == 6 => ETHERNET + IPV4,
        [0x86, 0xdd] if *frame.get(ETHERNET + 6)? == 6 => ETHERNET + IPV6,
        _ => return None,
    };
    let port = frame.get(header..header + 2)?;
    Some(u16::from_be_bytes(port.try_into().ok()?))
}

#[test]
fn of_several_next_hops_the_flow_decides_as_in_the_kernel() {
    needs_root!();
    let ways = Ways::new();
    ways.near.sh(&format!(
        "ip route add 192.0.2.0/24 nexthop via 10.77.0.11 dev {NEAR} nexthop via 10.77.0.12 dev {NEAR} \
             nexthop via 10.77.0.13 dev {NEAR} weight 2
         ip route add 2001:db8::/64 nexthop via fd77::11 dev {NEAR} nexthop via fd77::12 dev {NEAR}"
    ));
    for (policy, by_port) in [(1, true), (0, false)] {
        ways.hash_policy(policy);
        for (source, remote) in [("10.77.0.1", "192.0.2.7"), ("fd77::1", "2001:db8::7")] {
            let taken = ways.compare(source, remote, None);
            let several = taken.len() > 1;
            assert_eq!(several, by_port, "{remote}, policy {policy}: {taken:?}");
        }
    }
}

/// Some ways lead over the other interface. An RNIC has one, as a socket that is bound to it.
#[test]
fn way_over_another_interface_is_left_for_one_over_ours_as_in_a_bound_socket() {
    needs_root!();
    let ways = Ways::new();
    ways.near.sh(&format!(
        "ip route add 192.0.2.0/24 nexthop via 10.78.0.11 dev {OTHER} nexthop via 10.77.0.12 dev {NEAR}
         ip route add 203.0.113.0/24 via 10.78.0.11 dev {OTHER}
         ip route add 203.0.113.0/24 via 10.77.0.13 dev {NEAR} metric 9
         ip route add 198.51.100.0/24 via 10.78.0.11 dev {OTHER}"
    ));
    ways.hash_policy(1);
    for (remote, host) in [("192.0.2.7", 0x12), ("203.0.113.7", 0x13)] {
        let taken = ways.compare("10.77.0.1", remote, Some(NEAR));
        assert_eq!(taken, BTreeSet::from([gateway(host)]), "{remote}");
    }
    let index = ways.index(NEAR);
    let only = ways
        .near
        .run(|| route_from_interface(None, at("198.51.100.7", PORT), index));
    assert_eq!(only.unwrap().interface_index, ways.index(OTHER));
}

#[test]
fn rules_about_ports_protocol_and_source_are_kept_to() {
    needs_root!();
    let ways = Ways::new();
    ways.near.sh(&format!(
        "ip addr add 10.77.0.9/32 dev {NEAR}
         ip route add 192.0.2.0/24 via 10.77.0.11
         ip route add 192.0.2.0/24 via 10.77.0.12 table 12
         ip route add 192.0.2.0/24 via 10.77.0.13 table 13"
    ));
    let of = |source: &str, host| {
        let taken = ways.compare(source, "192.0.2.7", None);
        assert_eq!(taken, BTreeSet::from([gateway(host)]), "from {source}");
    };
    let rules = [
        ("dport 7471", "10.77.0.1", 0x12),
        ("sport 40000-40023", "10.77.0.1", 0x12),
        ("ipproto tcp", "10.77.0.1", 0x12),
        ("from 10.77.0.9", "10.77.0.9", 0x12),
        ("dport 7472", "10.77.0.1", 0x11),
        ("ipproto udp", "10.77.0.1", 0x11),
        ("from 10.77.0.9", "10.77.0.1", 0x11),
    ];
    for (rule, source, host) in rules {
        println!("{rule}");
        ways.near.sh(&format!("ip rule add {rule} lookup 12"));
        of(source, host);
        ways.near.sh(&format!("ip rule del {rule} lookup 12"));
    }
    // The rule of the interface is for those that are bound to it. It is asked where the host's own
    // way leads elsewhere.
    ways.near.sh(&format!(
        "ip route replace 192.0.2.0/24 via 10.78.0.11
         ip rule add oif {NEAR} lookup 13"
    ));
    let taken = ways.compare("10.77.0.1", "192.0.2.7", Some(NEAR));
    assert_eq!(taken, BTreeSet::from([gateway(0x13)]));
}

//! Against the kernel: what needs no privilege on this host's loopback, the rest in namespaces (as
//! root).

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use xwarp_test_kit::{eventually, needs_root};

use super::testbed::{FAR, NEAR, Namespace, Testbed, ip};
use super::*;
use crate::wake::sleep_on;

const TIMEOUT: Duration = Duration::from_secs(3);

/// A port of a host.
fn port(host: IpAddr) -> SocketAddr {
    SocketAddr::new(host, 7471)
}

/// Resolves a neighbour and waits for the end, by the search's descriptor alone.
fn resolved(
    interface_index: u32,
    source: IpAddr,
    next_hop: IpAddr,
    timeout: Duration,
) -> Result<MacAddr, NeighbourError> {
    let mut search = match resolve_neighbour(interface_index, source, next_hop, timeout)? {
        Resolution::Known(address) => return Ok(address),
        Resolution::Searching(search) => search,
    };
    loop {
        if let Some(address) = search.poll()? {
            return Ok(address);
        }
        sleep_on([search.as_fd()], &[], None).expect("a descriptor");
    }
}

#[test]
fn loopback_is_described() {
    let lo = interface_by_name("lo").unwrap();
    assert!(lo.is_loopback() && lo.up && lo.mtu >= 1500 && lo.rx_queues == 1);
    assert_eq!(lo.mac, MacAddr([0; 6]));
    assert!(lo.addresses.contains(&ip("127.0.0.1")));
    assert!(interfaces().unwrap().contains(&lo));
    assert_eq!(interface_with_address(ip("127.0.0.1")).unwrap(), Some(lo));
    assert_eq!(interface_with_address(ip("192.0.2.1")).unwrap(), None);
}

#[test]
fn unknown_interface_is_answered_with_those_that_exist() {
    let error = interface_by_name("nosuch0").unwrap_err().to_string();
    assert!(
        error.starts_with("no interface is named \"nosuch0\" here; choose one of: "),
        "{error}"
    );
    assert!(error.contains("lo"), "{error}");
}

#[test]
fn mac_address_is_shown_with_colons() {
    assert_eq!(
        MacAddr([2, 0xfc, 0, 0, 0, 0x1a]).to_string(),
        "02:fc:00:00:00:1a"
    );
}

#[test]
fn addresses_that_are_not_one_other_host_have_no_route() {
    let refusal = |remote| route_to(port(ip(remote)), None).unwrap_err();
    for own in ["127.0.0.1", "127.9.9.9"] {
        assert!(matches!(refusal(own), RouteError::ThisHost { .. }), "{own}");
    }
    for many in ["224.0.0.1", "ff02::1"] {
        assert!(
            matches!(refusal(many), RouteError::Multicast { .. }),
            "{many}"
        );
    }
    for none in ["0.0.0.0", "::"] {
        assert!(
            matches!(refusal(none), RouteError::Unspecified { .. }),
            "{none}"
        );
    }
    let mapped = refusal("::ffff:10.77.0.2").to_string();
    assert_eq!(
        mapped,
        "::ffff:10.77.0.2 stands for the IPv4 address 10.77.0.2 inside a host; use 10.77.0.2"
    );
    let mixed = route_to(port(ip("127.0.0.1")), Some(ip("::1")));
    assert!(matches!(mixed, Err(RouteError::FamilyMismatch { .. })));
}

#[test]
fn port_in_use_is_not_reserved() {
    refuses_a_port_in_use(ip("127.0.0.1"));
}

fn refuses_a_port_in_use(addr: IpAddr) {
    let taken = TcpListener::bind((addr, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = PortReservation::reserve(addr, port, 0)
        .unwrap_err()
        .to_string();
    assert!(
        said.starts_with(&format!(
            "TCP port {port} of {addr} is in use by another program;"
        )),
        "{said}"
    );
}

#[test]
fn reserved_port_is_neither_handed_out_nor_served_until_dropped() {
    holds_a_port_until_dropped(ip("127.0.0.1"));
}

fn holds_a_port_until_dropped(addr: IpAddr) {
    let held = PortReservation::reserve(addr, 0, 0).unwrap();
    let local = held.local();
    assert_ne!(local.port(), 0);
    assert_eq!(local.ip(), addr);
    let bind = TcpListener::bind(local).unwrap_err();
    assert_eq!(bind.kind(), ErrorKind::AddrInUse);
    let connect = TcpStream::connect(local).unwrap_err();
    assert_eq!(connect.kind(), ErrorKind::ConnectionRefused);
    let again = PortReservation::reserve(addr, local.port(), 0);
    assert!(matches!(again, Err(PortError::InUse { .. })));
    drop(held);
    // Not at once: a child that another test is just starting shares our sockets until it runs its
    // program.
    eventually("the port is free", || TcpListener::bind(local).is_ok());
}

#[test]
fn ipv6_loopback_is_this_host_and_its_ports_are_held_too() {
    needs_root!();
    Namespace::new().run(|| {
        let own = route_to(port(ip("::1")), None);
        assert!(matches!(own, Err(RouteError::ThisHost { .. })), "{own:?}");
        refuses_a_port_in_use(ip("::1"));
        holds_a_port_until_dropped(ip("::1"));
    });
}

#[test]
fn kernel_hands_no_reserved_port_to_a_connection() {
    needs_root!();
    let space = Namespace::new();
    space.sh("echo '40000 40001' > /proc/sys/net/ipv4/ip_local_port_range");
    space.run(|| {
        let server = TcpListener::bind("127.0.0.1:5000").unwrap();
        let held = PortReservation::reserve(ip("127.0.0.1"), 40_000, 0).unwrap();
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        assert_eq!(client.local_addr().unwrap().port(), 40_001);
        let none = TcpStream::connect(server.local_addr().unwrap()).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::AddrNotAvailable);
        let none = PortReservation::reserve(ip("127.0.0.1"), 0, 0);
        assert!(matches!(none, Err(PortError::NoneFree { .. })), "{none:?}");
        drop(held);
    });
}

#[test]
fn port_of_somebody_else_is_not_reserved() {
    for addr in ["192.0.2.1", "2001:db8::1", "fe80::dead"] {
        let error = PortReservation::reserve(ip(addr), 7471, 1);
        assert!(
            matches!(error, Err(PortError::AddressNotLocal { .. })),
            "{addr}: {error:?}"
        );
    }
}

#[test]
fn interface_is_described_with_addresses_mtu_and_queues() {
    needs_root!();
    let bed = Testbed::new();
    let interface = bed.near.run(|| interface_by_name(NEAR)).unwrap();
    assert!(interface.up && !interface.is_loopback());
    assert_eq!((interface.mtu, interface.rx_queues), (3000, 4));
    assert!(
        interface.addresses.contains(&ip("10.77.0.1"))
            && interface.addresses.contains(&ip("fd77::1"))
    );
    assert!(
        bed.near
            .sh(&format!("ip link show {NEAR}"))
            .contains(&interface.mac.to_string())
    );
    let owner = bed
        .near
        .run(|| interface_with_address(ip("fd77::1")))
        .unwrap();
    assert_eq!(owner.map(|interface| interface.name).as_deref(), Some(NEAR));

    bed.near.sh(&format!(
        "ethtool -L {NEAR} rx 2; ip link set {NEAR} down mtu 1500"
    ));
    let interface = bed.near.run(|| interface_by_name(NEAR)).unwrap();
    assert_eq!(
        (interface.up, interface.mtu, interface.rx_queues),
        (false, 1500, 2)
    );
}

#[test]
fn interface_strips_vlan_tags_until_that_is_switched_off() {
    needs_root!();
    let bed = Testbed::new();
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    let strips = || bed.near.run(|| strips_vlan_tags(index)).unwrap();
    assert!(strips(), "veth does unless set");
    bed.near.sh(&format!("ethtool -K {NEAR} rxvlan off"));
    assert!(!strips());
    let unknown = bed.near.run(|| strips_vlan_tags(index + 1000));
    assert_eq!(unknown.unwrap_err().refusal(), Some(Errno::ENODEV));
}

#[test]
fn queues_are_counted_where_the_driver_cannot_tell() {
    needs_root!();
    let space = Namespace::new();
    space.sh("ip link add xwn2 type ifb; ip link add xwn3 numrxqueues 3 type ifb");
    let queues = |name| space.run(|| interface_by_name(name)).unwrap().rx_queues;
    assert_eq!((queues("xwn2"), queues("xwn3")), (1, 3));
}

#[test]
fn address_counts_once_it_is_known_to_be_unique() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.sh(&format!("ip addr add fd77::5/64 dev {NEAR}"));
    let usable = || {
        bed.near
            .run(|| interface_with_address(ip("fd77::5")))
            .unwrap()
            .is_some()
    };
    assert!(!usable(), "duplicate address detection takes a second");
    eventually("fd77::5 is usable", usable);

    bed.near.sh(&format!("ip addr add fd77::2/64 dev {NEAR}")); // the far end has it
    let denied = || {
        bed.near
            .sh(&format!("ip addr show dev {NEAR}"))
            .contains("dadfailed")
    };
    eventually("fd77::2 is denied", denied);
    assert!(
        bed.near
            .run(|| interface_with_address(ip("fd77::2")))
            .unwrap()
            .is_none()
    );
}

#[test]
fn table_of_many_pieces_is_read_whole() {
    needs_root!();
    let space = Namespace::new();
    space.sh("for i in $(seq 400); do
             echo link add xwm$i type ifb
             echo addr add 10.78.$((i / 200)).$((i % 200))/32 dev xwm$i
         done | ip -b -");
    let interfaces = space.run(interfaces).unwrap();
    assert_eq!(interfaces.len(), 401);
    assert!(
        interfaces
            .iter()
            .all(|interface| interface.is_loopback() || interface.addresses.len() == 1)
    );
}

#[test]
fn neighbour_in_the_subnet_is_its_own_next_hop() {
    needs_root!();
    let bed = Testbed::new();
    let interface = bed.near.run(|| interface_by_name(NEAR)).unwrap();
    for (remote, source, mtu) in [
        ("10.77.0.2", "10.77.0.1", None),
        ("fd77::2", "fd77::1", Some(3000)),
    ] {
        let expected = Route {
            interface_index: interface.index,
            source: ip(source),
            next_hop: ip(remote),
            mtu,
            advmss: None,
        };
        for from in [None, Some(ip(source))] {
            assert_eq!(
                bed.near.run(|| route_to(port(ip(remote)), from)).unwrap(),
                expected
            );
        }
    }
    let broadcast = bed.near.run(|| route_to(port(ip("10.77.0.255")), None));
    assert!(matches!(broadcast, Err(RouteError::Broadcast { .. })));
    let own = bed.near.run(|| route_to(port(ip("10.77.0.1")), None));
    assert!(matches!(own, Err(RouteError::ThisHost { .. })));
    for (remote, from) in [("10.77.0.2", "10.77.0.3"), ("fd77::2", "fd77::3")] {
        let foreign = bed.near.run(|| route_to(port(ip(remote)), Some(ip(from))));
        assert!(
            matches!(foreign, Err(RouteError::SourceNotLocal { .. })),
            "{foreign:?}"
        );
    }
}

#[test]
fn route_by_a_gateway_says_gateway_and_mtu() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.sh(&format!(
        "ip route add 192.0.2.0/24 via 10.77.0.2 mtu 1400
         ip route add 2001:db8::/64 via fd77::2 mtu 1300
         ip route add 198.51.100.0/24 via inet6 fd77::2 dev {NEAR}
         ip route add blackhole 203.0.113.0/25
         ip route add unreachable 203.0.113.128/25
         ip route add prohibit 2001:db8:1::/64"
    ));
    let route = |remote| bed.near.run(|| route_to(port(ip(remote)), None));
    let found = route("192.0.2.7").unwrap();
    assert_eq!((found.next_hop, found.mtu), (ip("10.77.0.2"), Some(1400)));
    assert_eq!(found.source, ip("10.77.0.1"));
    let found = route("2001:db8::7").unwrap();
    assert_eq!((found.next_hop, found.mtu), (ip("fd77::2"), Some(1300)));
    let found = route("198.51.100.7").unwrap();
    assert_eq!(
        (found.next_hop, found.source),
        (ip("fd77::2"), ip("10.77.0.1"))
    );
    for lost in [
        "203.0.113.1",
        "203.0.113.129",
        "2001:db8:1::1",
        "203.0.114.1",
        "2001:db9::1",
    ] {
        assert!(
            matches!(route(lost), Err(RouteError::NoRoute { .. })),
            "{lost}: {:?}",
            route(lost)
        );
    }
}

/// systemd gives a NIC several. They may be longer than a name.
#[test]
fn interface_is_found_by_an_alternative_name() {
    needs_root!();
    let bed = Testbed::new();
    let long = "enp65s0f1np1-of-a-rather-long-name";
    bed.near.sh(&format!(
        "ip link property add dev {NEAR} altname {long} altname short"
    ));
    for name in [long, "short", NEAR] {
        let found = bed.near.run(|| interface_by_name(name)).unwrap();
        assert_eq!(found.name, NEAR, "by {name}");
    }
    for name in ["shor", "", &"long".repeat(40)] {
        let unknown = bed.near.run(|| interface_by_name(name));
        assert!(
            matches!(&unknown, Err(InterfaceError::Unknown { known, .. }) if known.len() == 2),
            "{unknown:?}"
        );
    }
}

#[test]
fn encapsulated_route_is_refused() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.sh(&format!(
        "ip route add 192.0.2.0/24 encap ip id 5 dst 10.77.0.2 dev {NEAR}"
    ));
    let route = bed.near.run(|| route_to(port(ip("192.0.2.7")), None));
    assert!(
        matches!(route, Err(RouteError::Encapsulated { .. })),
        "{route:?}"
    );
}

#[test]
fn link_local_hosts_are_found_on_the_link_of_the_source() {
    needs_root!();
    let bed = Testbed::new();
    let own = |space: &Namespace, name: &'static str| {
        let first = || {
            let interface = space.run(|| interface_by_name(name)).unwrap();
            interface
                .addresses
                .into_iter()
                .find(|addr| is_link_local(*addr))
        };
        eventually("a link-local address", || first().is_some());
        first().unwrap()
    };
    let (near, far) = (own(&bed.near, NEAR), own(&bed.far, FAR));
    let far_mac = bed.far.run(|| interface_by_name(FAR)).unwrap().mac;
    bed.near.run(|| {
        let route = route_to(port(far), Some(near)).unwrap();
        assert_eq!((route.source, route.next_hop), (near, far));
        let mac = resolved(route.interface_index, near, far, TIMEOUT).unwrap();
        assert_eq!(mac, far_mac);
        let held = PortReservation::reserve(near, 7471, route.interface_index).unwrap();
        assert_eq!(held.local(), socket_addr(near, 7471, route.interface_index));
    });
}

#[test]
fn host_that_answers_is_resolved() {
    needs_root!();
    let bed = Testbed::new();
    let far = bed.far.run(|| interface_by_name(FAR)).unwrap();
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    for (source, remote) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
        let mac = bed
            .near
            .run(|| resolved(index, ip(source), ip(remote), TIMEOUT));
        assert_eq!(mac.unwrap(), far.mac, "{remote}");
    }
    // An IPv6 gateway of an IPv4 route, and one that no subnet covers.
    bed.near.sh("ip neigh flush all");
    bed.far.sh(&format!("ip addr add 10.99.0.1/32 dev {FAR}"));
    for (source, remote) in [("10.77.0.1", "fd77::2"), ("10.77.0.1", "10.99.0.1")] {
        let mac = bed
            .near
            .run(|| resolved(index, ip(source), ip(remote), TIMEOUT));
        assert_eq!(mac.unwrap(), far.mac, "{remote}");
    }
}

#[test]
fn host_that_is_slow_to_appear_is_waited_for() {
    needs_root!();
    let bed = Testbed::new();
    let far = bed.far.run(|| interface_by_name(FAR)).unwrap();
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("the kernel has asked in vain", || {
                let entry = bed.near.sh("ip neigh show 10.77.0.7");
                entry.contains("INCOMPLETE")
            });
            bed.far.sh(&format!("ip addr add 10.77.0.7/24 dev {FAR}"));
        });
        let mac = bed
            .near
            .run(|| resolved(index, ip("10.77.0.1"), ip("10.77.0.7"), TIMEOUT));
        assert_eq!(mac.unwrap(), far.mac);
    });
}

/// The kernel forgets its question for a neighbour when the carrier goes, and reports only that.
#[test]
fn host_is_asked_for_anew_when_the_carrier_was_lost() {
    needs_root!();
    let bed = Testbed::new();
    let far = bed.far.run(|| interface_by_name(FAR)).unwrap();
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    let entry = |address| bed.near.sh(&format!("ip neigh show {address}"));
    let long = Duration::from_secs(30);
    for (source, remote, prefix, options) in [
        ("10.77.0.1", "10.77.0.7", 24, ""),
        ("fd77::1", "fd77::7", 64, "nodad"),
    ] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                eventually("the kernel asks", || entry(remote).contains("INCOMPLETE"));
                // The other end of a veth pair is its carrier.
                bed.far.sh(&format!("ip link set {FAR} down"));
                let link = || bed.near.sh(&format!("ip link show {NEAR}"));
                eventually("the carrier is lost", || link().contains("NO-CARRIER"));
                bed.far.sh(&format!(
                    "ip link set {FAR} up; ip addr add {remote}/{prefix} dev {FAR} {options}"
                ));
            });
            let mac = bed
                .near
                .run(|| resolved(index, ip(source), ip(remote), long));
            assert_eq!(mac.unwrap(), far.mac, "{remote}");
        });
    }
}

/// What is said of a host that does not answer near, and after how long.
fn missing(bed: &Testbed, source: &str, remote: &str, timeout: Duration) -> (String, Duration) {
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    let started = Instant::now();
    let error = bed
        .near
        .run(|| resolved(index, ip(source), ip(remote), timeout))
        .unwrap_err();
    assert!(
        matches!(error, NeighbourError::NoAnswer { .. }),
        "{error:?}"
    );
    (error.to_string(), started.elapsed())
}

#[test]
fn host_that_is_not_there_is_an_error_in_time() {
    needs_root!();
    let bed = Testbed::new();
    let timeout = Duration::from_millis(300);
    for (source, remote, protocol) in [
        ("10.77.0.1", "10.77.0.9", "ARP"),
        ("fd77::1", "fd77::9", "NDP"),
    ] {
        let (said, waited) = missing(&bed, source, remote, timeout);
        assert!(said.starts_with(&format!(
            "no host answers at {remote} on {NEAR} ({protocol}) within 0.3 s"
        )));
        assert!(
            waited >= timeout && waited < Duration::from_secs(5),
            "{waited:?}"
        );
    }
    // The kernel gives up first: three questions, 100 ms apart.
    bed.near.sh(&format!(
        "ip ntable change name arp_cache dev {NEAR} retrans 100
         ip ntable change name ndisc_cache dev {NEAR} retrans 100"
    ));
    for (source, remote) in [("10.77.0.1", "10.77.0.10"), ("fd77::1", "fd77::a")] {
        for attempt in 1..=2 {
            let (_, waited) = missing(&bed, source, remote, Duration::from_secs(30));
            assert!(
                waited < Duration::from_secs(5),
                "{remote}, attempt {attempt}: {waited:?}"
            );
        }
    }
}

/// Another program's question used to end the search when it ended, which may be at once.
#[test]
fn search_outlasts_a_question_that_the_kernel_has_asked_before() {
    needs_root!();
    let bed = Testbed::new();
    // The kernel asks for 1.5 s.
    bed.near.sh(&format!(
        "ip ntable change name arp_cache dev {NEAR} retrans 500"
    ));
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    let remote = "10.77.0.9";
    let long = Duration::from_secs(30);
    bed.near.run(|| {
        let begun = resolve_neighbour(index, ip("10.77.0.1"), ip(remote), long);
        assert!(matches!(begun, Ok(Resolution::Searching(_))));
    });
    std::thread::sleep(Duration::from_millis(1200)); // most of that time
    let (_, waited) = missing(&bed, "10.77.0.1", remote, long);
    assert!(waited >= Duration::from_millis(1400), "{waited:?}");
}

#[test]
fn search_for_a_silent_host_does_not_wait_and_is_readable_in_time() {
    needs_root!();
    let bed = Testbed::new();
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    // Otherwise the kernel gives up first.
    bed.near.sh(&format!(
        "ip ntable change name arp_cache dev {NEAR} retrans 20000"
    ));
    let (started, timeout) = (Instant::now(), Duration::from_secs(5));
    bed.near.run(|| {
        let begin = || resolve_neighbour(index, ip("10.77.0.1"), ip("10.77.0.9"), timeout);
        let Ok(Resolution::Searching(mut search)) = begin() else {
            panic!("no host is there");
        };
        drop(begin());
        // Had either waited for an answer, the time would be over.
        assert!(matches!(search.poll(), Ok(None)));
        let ended = loop {
            sleep_on([search.as_fd()], &[], None).unwrap();
            if let Some(ended) = search.poll().transpose() {
                break ended;
            }
        };
        assert!(
            matches!(ended, Err(NeighbourError::NoAnswer { .. })),
            "{ended:?}"
        );
    });
    assert!(started.elapsed() >= timeout);
}

#[test]
fn link_local_host_is_sought_on_the_link_that_is_named() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.sh("ip link add xwn8 type veth peer name xwn9
         ip link set xwn8 up; ip link set xwn9 up
         ip -6 addr add fe80::8/64 dev xwn8 nodad
         ip -6 addr add fe80::7/64 dev xwn0 nodad");
    for (interface, source) in [("xwn8", "fe80::8"), (NEAR, "fe80::7")] {
        let index = bed.near.run(|| interface_by_name(interface)).unwrap().index;
        let route = bed
            .near
            .run(|| route_from_interface(None, port(ip("fe80::99")), index))
            .unwrap();
        assert_eq!(
            (route.interface_index, route.next_hop),
            (index, ip("fe80::99"))
        );
        let own = bed
            .near
            .run(|| interface_with_address(route.source))
            .unwrap();
        assert_eq!(
            own.map(|interface| interface.name).as_deref(),
            Some(interface),
            "{source}"
        );
    }
    let index = bed.near.run(|| interface_by_name("xwn8")).unwrap().index;
    let other = bed
        .near
        .run(|| route_from_interface(None, port(ip("10.77.0.2")), index))
        .unwrap();
    assert_ne!(other.interface_index, index, "the kernel's choice");
}

#[test]
fn known_address_is_used_at_once_and_a_stale_one_confirmed() {
    needs_root!();
    let bed = Testbed::new();
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    bed.near.sh(&format!(
        "ip neigh add 10.77.0.20 lladdr 02:00:00:00:00:20 nud permanent dev {NEAR}
         ip neigh add 10.77.0.21 lladdr 02:00:00:00:00:21 nud stale dev {NEAR}"
    ));
    for host in [20_u8, 21] {
        let remote = ip(&format!("10.77.0.{host}"));
        let mac = bed
            .near
            .run(|| resolved(index, ip("10.77.0.1"), remote, Duration::ZERO));
        let last = if host == 20 { 0x20 } else { 0x21 };
        assert_eq!(mac.unwrap(), MacAddr([2, 0, 0, 0, 0, last]));
    }
    let state = bed.near.sh("ip neigh show 10.77.0.21");
    assert!(
        state.contains("DELAY") || state.contains("PROBE"),
        "{state}"
    );
}

#[test]
fn neighbour_that_cannot_be_asked_for_is_an_error_at_once() {
    needs_root!();
    let bed = Testbed::new();
    let index = bed.near.run(|| interface_by_name(NEAR)).unwrap().index;
    let resolve = |index, source| {
        bed.near
            .run(|| resolved(index, ip(source), ip("10.77.0.2"), TIMEOUT))
            .unwrap_err()
    };
    assert!(matches!(
        resolve(index, "10.77.0.99"),
        NeighbourError::CannotAsk { .. }
    ));
    assert!(matches!(
        resolve(9999, "10.77.0.1"),
        NeighbourError::NoInterface {
            interface_index: 9999
        }
    ));
    bed.near.sh(&format!("ip link set {NEAR} down"));
    let down = resolve(index, "10.77.0.1");
    assert!(matches!(down, NeighbourError::CannotAsk { .. }), "{down:?}");
}

#[test]
fn addresses_are_those_of_the_interface_whatever_its_name() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.run(|| {
        let index = interface_by_name(NEAR).unwrap().index;
        bed.near.sh(&format!("ip link set {NEAR} name other0"));
        assert!(addresses_of(index).unwrap().contains(&ip("10.77.0.1")));
        bed.near.sh("ip link delete other0");
        assert!(matches!(addresses_of(index), Err(InterfaceError::Gone(gone)) if gone == index));
    });
}

/// As a VLAN interface and the one beneath it have.
#[test]
fn same_link_local_address_on_two_interfaces_has_ports_on_each() {
    needs_root!();
    let space = Namespace::new();
    space.sh("ip link add xwn4 type veth peer name xwn5
         ip link set xwn4 up; ip link set xwn5 up
         ip -6 addr add fe80::7/64 dev xwn4 nodad
         ip -6 addr add fe80::7/64 dev xwn5 nodad");
    space.run(|| {
        let index = |name| interface_by_name(name).unwrap().index;
        let reserve = |index| PortReservation::reserve(ip("fe80::7"), 7471, index);
        let both = [index("xwn4"), index("xwn5")].map(|index| (index, reserve(index).unwrap()));
        for (index, held) in &both {
            assert_eq!(held.local(), socket_addr(ip("fe80::7"), 7471, *index));
        }
        let again = reserve(both[0].0);
        assert!(matches!(again, Err(PortError::InUse { .. })), "{again:?}");
        let elsewhere = reserve(index("lo"));
        assert!(
            matches!(elsewhere, Err(PortError::AddressNotLocal { .. })),
            "{elsewhere:?}"
        );
    });
}

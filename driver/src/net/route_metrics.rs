//! Metrics of routes, as the kernel reports them.

use std::net::{IpAddr, SocketAddr};

use xwarp_test_kit::{eventually, needs_root};

use super::route_to;
use super::testbed::{NEAR, Testbed, ip};

fn port(addr: IpAddr) -> SocketAddr {
    SocketAddr::new(addr, 7471)
}

/// Where a route has none for IPv6, IPv6 has an MTU of its own, which a router advertises.
#[test]
fn route_says_its_metrics() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.sh(&format!(
        "echo 2000 > /proc/sys/net/ipv6/conf/{NEAR}/mtu
         ip nexthop add id 1 via 10.77.0.2 dev {NEAR}
         ip nexthop add id 2 group 1
         ip route add 192.0.2.0/26 via 10.77.0.2 mtu lock 1400 advmss 600
         ip route add 192.0.2.64/26 via 10.77.0.2 advmss 700
         ip route add 192.0.2.128/26 nhid 2 mtu 1300
         ip route add 192.0.2.192/26 mtu 68 nexthop via 10.77.0.2 nexthop via 10.77.0.3
         ip route add 2001:db8::/64 via fd77::2 mtu 2500 advmss 1000"
    ));
    for (remote, mtu, advmss) in [
        ("192.0.2.1", Some(1400), Some(600)),
        ("192.0.2.65", None, Some(700)),
        ("192.0.2.129", Some(1300), None),
        ("192.0.2.193", Some(68), None),
        ("2001:db8::1", Some(2500), Some(1000)),
        ("fd77::2", Some(2000), None),
    ] {
        let route = bed.near.run(|| route_to(port(ip(remote)), None)).unwrap();
        assert_eq!((route.mtu, route.advmss), (mtu, advmss), "{remote}");
    }
}

/// A router has said so, and the kernel remembers it for ten minutes.
#[test]
fn path_mtu_that_the_kernel_has_learnt_is_the_routes() {
    needs_root!();
    let bed = Testbed::new();
    bed.far.sh("echo 1 > /proc/sys/net/ipv4/ip_forward
         ip route add 192.0.2.0/24 dev lo mtu 1000");
    bed.near.sh("ip route add 192.0.2.0/24 via 10.77.0.2");
    let mtu = || {
        bed.near
            .run(|| route_to(port(ip("192.0.2.7")), None))
            .unwrap()
            .mtu
    };
    assert_eq!(mtu(), None);
    eventually("the router has said it", || {
        bed.near
            .sh("ping -c 1 -W 1 -M do -s 1400 192.0.2.7 || true");
        mtu() == Some(1000)
    });
}

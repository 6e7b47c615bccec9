//! Two hosts with a router between them, whose link to host B takes only small packets.
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::impair::host::{mac, text_of};
use crate::impair::{DEV, HostThread};

/// The networks of A and B, and the router's number in both.
const NETWORKS: [u8; 2] = [79, 80];
const ROUTER: u8 = 254;

/// The hosts.
pub struct Routed {
    /// `10.79.0.1` and `fd79::1`.
    pub a: HostThread,
    /// `10.80.0.2` and `fd80::2`. Its own interface takes packets of 1500 bytes, so that it
    /// announces that.
    pub b: HostThread,
    router: HostThread,
}

impl Routed {
    /// Host A's address.
    pub const A: [IpAddr; 2] = addresses(0, 1);
    /// Host B's address.
    pub const B: [IpAddr; 2] = addresses(1, 2);

    /// Makes the two hosts and the router. The router drops IPv4 and IPv6 packets of more than
    /// `mtu` bytes from A to B, and reports this to A.
    #[must_use]
    pub fn new(mtu: usize) -> Self {
        let routed = Self {
            a: HostThread::new(),
            b: HostThread::new(),
            router: HostThread::new(),
        };
        routed.router.call(|| {
            for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{switch}"), "1").expect("root may");
            }
        });
        routed.plug_in(&routed.a, 0, 1);
        routed.plug_in(&routed.b, 1, 2);
        routed.router.ip(&format!("link set port1 mtu {mtu}"));
        routed
    }

    /// The Ethernet address of the router on A's side.
    #[must_use]
    pub fn router_mac() -> [u8; 6] {
        mac(NETWORKS[0], ROUTER)
    }

    fn plug_in(&self, host: &HostThread, network: usize, number: u8) {
        let (thread, id, other) = (host.thread, NETWORKS[network], NETWORKS[1 - network]);
        let [inner, outer] = [ROUTER, number].map(|number| text_of(mac(id, number)));
        self.router.ip(&format!(
            "link add port{network} address {inner} type veth peer name {DEV} address {outer} netns {thread}"
        ));
        let port = format!("port{network}");
        for (at, dev, number) in [(&self.router, port.as_str(), ROUTER), (host, DEV, number)] {
            at.ip(&format!("address add 10.{id}.0.{number}/24 dev {dev}"));
            at.ip(&format!(
                "address add fd{id}::{number:x}/64 dev {dev} nodad"
            ));
            at.ip(&format!("link set {dev} up"));
        }
        host.ip(&format!(
            "route add 10.{other}.0.0/24 via 10.{id}.0.{ROUTER}"
        ));
        host.ip(&format!("route add fd{other}::/64 via fd{id}::{ROUTER:x}"));
        host.switch_offloads_off();
    }
}

/// The addresses of a host by its network and its number there.
const fn addresses(network: usize, number: u8) -> [IpAddr; 2] {
    let id = NETWORKS[network];
    // fd79, not 0xfd00 + 79.
    let prefix = 0xfd00 + (id as u16 / 10) * 16 + id as u16 % 10;
    [
        IpAddr::V4(Ipv4Addr::new(10, id, 0, number)),
        IpAddr::V6(Ipv6Addr::new(prefix, 0, 0, 0, 0, 0, 0, number as u16)),
    ]
}

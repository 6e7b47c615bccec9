//! Next hops change under connections: a peer, a gateway or a route is another one from now on.

use std::time::Duration;

use serde_json::Value;
use xwarp_system_tests::{DEV, Finished, Hosts, Running, Shape, eventually};
use xwarp_test_kit::needs_root;

/// A transfer that outlasts what happens. The user timeout of `perf` is 10 s.
const RUN: &str = "--duration 9s";
/// How long a run may take to end by itself, on a busy machine.
const END: Duration = Duration::from_secs(40);
/// The server's address behind the router.
pub(crate) const FAR: &str = "10.78.0.2";

/// Begins a transfer to the server at this address.
pub(crate) fn begin(hosts: &Hosts, server: &str) -> (Running, Running) {
    let serving = hosts.b.serve("write-bw --verify");
    let mut client = hosts
        .a
        .start(&format!("perf write-bw {server} --verify {RUN}"));
    client.line("write-bw ");
    (serving, client)
}

pub(crate) fn verified((server, client): (Running, Running)) -> Finished {
    let client = client.finish_within(END).succeeded();
    assert!(client.stdout.contains("verified"), "{client}");
    server.finish_within(END).succeeded();
    client
}

/// Twice, because an RNIC also accepts frames for its previous Ethernet address. Sooner or later
/// the server's kernel sends from the new address, and the client's kernel learns it.
#[test]
fn transfer_survives_that_the_peer_gets_another_ethernet_address() {
    needs_root!();
    for server in ["10.77.0.2", "fd77::2"] {
        let hosts = Hosts::new();
        let running = begin(&hosts, server);
        for last in [1, 2] {
            hosts
                .b
                .ip(&format!("link set {DEV} address 02:00:00:00:09:0{last}"));
        }
        verified(running);
    }
}

/// Two routers between the hosts, at 10.77.0.254 and 10.77.0.253: the switch itself, and `gate`.
/// The server is in another network.
pub(crate) fn routed() -> Hosts {
    let hosts = Hosts::shaped(Shape {
        switched: true,
        ..Shape::default()
    });
    hosts.switch().sh("cd /proc/sys/net/ipv4
         echo 1 > ip_forward
         echo 0 > conf/all/send_redirects
         echo 0 > conf/default/send_redirects
         echo 1 > conf/all/arp_ignore
         ip link add gate link bridge type macvlan mode bridge
         ip link set gate up
         ip addr add 10.77.0.254/24 dev bridge
         ip addr add 10.78.0.254/24 dev bridge
         ip addr add 10.77.0.253/32 dev gate");
    hosts.a.ip("route add default via 10.77.0.254");
    hosts.b.ip(&format!("addr del 10.77.0.2/24 dev {DEV}"));
    hosts.b.ip(&format!("addr add {FAR}/24 dev {DEV}"));
    hosts.b.ip("route add default via 10.78.0.254");
    hosts
}

/// Another router takes over the IP address without announcing it.
#[test]
fn transfer_survives_that_the_gateway_gets_another_ethernet_address() {
    needs_root!();
    let hosts = routed();
    let running = begin(&hosts, FAR);
    hosts
        .switch()
        .ip("link set bridge address 02:00:00:00:09:09");
    verified(running);
}

/// Frames that have come to the second router.
fn frames_at_gate(hosts: &Hosts) -> u64 {
    let listed = hosts.switch().ip("-json -statistics link show dev gate");
    let links: Value = serde_json::from_str(&listed).expect("JSON");
    let count = &links[0]["stats64"]["rx"]["packets"];
    count.as_u64().expect("a number")
}

#[test]
fn transfer_follows_a_route_that_is_replaced() {
    needs_root!();
    let hosts = routed();
    let running = begin(&hosts, FAR);
    let before = frames_at_gate(&hosts);
    hosts.a.ip("route replace default via 10.77.0.253");
    eventually("frames come to the other router", || {
        frames_at_gate(&hosts) > before + 100
    });
    verified(running);
}

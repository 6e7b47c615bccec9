//! Metrics of routes: segments keep to `mtu` and `advmss`, as those of the kernel's TCP do.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use nix::sys::socket::{getsockopt, sockopt::TcpMaxSeg};
use xwarp_system_tests::{Capture, DEV, Hosts, PERF_PORT, eventually};
use xwarp_test_kit::needs_root;

use crate::paths::{FAR, begin, routed, verified};

/// The port of the kernel's connection.
const PORT: u16 = 9000;

/// Bytes of the largest segments from host A to host B and back.
type Largest = [usize; 2];

/// Those of the kernel's TCP.
fn of_kernel(hosts: &Hosts, server: IpAddr) -> Largest {
    let server = SocketAddr::new(server, PORT);
    let listener = hosts.b.run(|| TcpListener::bind(server).expect("free"));
    let client = hosts.a.run(|| TcpStream::connect(server).expect("listens"));
    let (accepted, _) = listener.accept().expect("a client");
    [client, accepted].map(|it| getsockopt(&it, TcpMaxSeg).expect("TCP") as usize)
}

/// Those of an RNIC.
fn of_rnics(hosts: &Hosts, server: IpAddr) -> Largest {
    let file = hosts.work.file("capture");
    ["write-bw", "read-bw"].map(|test| {
        let serving = hosts.b.serve(test);
        let options = format!("--iterations 20 --capture {}", file.display());
        let client = format!("perf {test} {server} {options}");
        hosts.a.xwarp(&client).succeeded();
        serving.finish().succeeded();
        let to_server = |port: &String| *port == PERF_PORT.to_string();
        let captured = Capture::dissect(&file);
        let towards = captured
            .with("tcp.len")
            .filter(|frame| frame.all("tcp.dstport").iter().any(to_server) == (test == "write-bw"));
        let len = |text: &String| text.parse::<usize>().expect("a length");
        let lens = towards.flat_map(|frame| frame.all("tcp.len").iter().map(len));
        lens.max().expect("segments")
    })
}

/// Either host has the route: the one that connects, or the one that listens.
#[test]
fn segments_keep_to_the_metrics_of_the_route_as_the_kernels_do() {
    needs_root!();
    let hosts = Hosts::new();
    for (ends, metrics, [up, down]) in [
        (["10.77.0.1", "10.77.0.2"], "mtu 900", [848, 848]),
        (
            ["10.77.0.1", "10.77.0.2"],
            "mtu lock 900 advmss 600",
            [848, 588],
        ),
        (["fd77::1", "fd77::2"], "mtu 1300 advmss 1000", [1228, 988]),
    ] {
        let [a, b] = ends.map(|end| end.parse::<IpAddr>().expect("an address"));
        for (host, peer, largest) in [(&hosts.a, b, [up, down]), (&hosts.b, a, [down, up])] {
            let route = format!("{peer} dev {DEV} metric 1");
            host.ip(&format!("route add {route} {metrics}"));
            assert_eq!(of_kernel(&hosts, b), largest, "{metrics}");
            assert_eq!(of_rnics(&hosts, b), largest, "{metrics}");
            host.ip(&format!("route del {route}"));
        }
    }
}

/// A policy chooses the route by the source, by the protocol or by the server's port.
#[test]
fn segments_keep_to_the_route_that_a_policy_chooses() {
    needs_root!();
    let hosts = Hosts::new();
    let ends = ["10.77.0.1", "10.77.0.2"];
    let [a, b] = ends.map(|end| end.parse::<IpAddr>().expect("an address"));
    hosts.a.sh(&format!(
        "ip route add {b} dev {DEV} table 90 mtu 900
         ip route add {b} dev {DEV} metric 1 mtu 1300"
    ));
    let by_port = |port: u16| format!("ipproto tcp dport {port}");
    for rules in [
        vec![format!("from {a}")],
        vec!["ipproto tcp".to_owned()],
        vec![by_port(PORT), by_port(PERF_PORT)],
    ] {
        let each = |verb: &str| {
            for rule in &rules {
                hosts.a.ip(&format!("rule {verb} {rule} table 90"));
            }
        };
        each("add");
        assert_eq!(of_kernel(&hosts, b), [848; 2], "{rules:?}");
        assert_eq!(of_rnics(&hosts, b), [848; 2], "{rules:?}");
        each("del");
    }
    assert_eq!(of_kernel(&hosts, b), [1248; 2]);
    assert_eq!(of_rnics(&hosts, b), [1248; 2]);
}

/// Between the hosts, packets of more than 1400 bytes are lost without a word, as behind tunnels of
/// clouds. The hosts' routes say so.
#[test]
fn message_arrives_where_only_the_route_knows_how_narrow_the_way_is() {
    needs_root!();
    let hosts = routed();
    hosts.switch().sh("ip rule add iif lo ipproto icmp blackhole
         ip route replace 10.77.0.0/24 dev bridge mtu 1400
         ip route replace 10.78.0.0/24 dev bridge mtu 1400");
    let ping = format!("ping -c 1 -W 1 -M do {FAR} -s");
    hosts.a.sh(&format!("{ping} 1372; ! {ping} 1373"));
    hosts.a.ip("route replace default via 10.77.0.254 mtu 1400");
    hosts.b.ip("route replace default via 10.78.0.254 mtu 1400");
    let serving = hosts.b.start(&format!("ping --dev {DEV} --persistent"));
    eventually("it listens", || serving.printed().contains("waiting"));
    (hosts.a)
        .xwarp(&format!("ping {FAR} --size 8K --count 3"))
        .succeeded();
}

/// As narrow as the kernel's TCP believes that a path can be (`min_pmtu`). A router says so.
#[test]
fn message_arrives_behind_the_narrowest_router_that_the_kernel_believes_in() {
    needs_root!();
    let hosts = routed();
    hosts.switch().sh(&format!(
        "ip route add {FAR} dev bridge mtu lock 552
         ip route add 10.77.0.1 dev bridge mtu lock 552"
    ));
    let ping = format!("ping -c 1 -W 1 -M do {FAR} -s");
    hosts.a.sh(&format!("{ping} 524; ! {ping} 525"));
    let serving = hosts.b.start(&format!("ping --dev {DEV} --persistent"));
    eventually("it listens", || serving.printed().contains("waiting"));
    // The kernel has learnt it by now, and it forgets.
    hosts.a.ip("route flush cache");
    (hosts.a)
        .xwarp(&format!("ping {FAR} --size 8K --count 3"))
        .succeeded();
}

/// Segments in flight are sent again in pieces.
#[test]
fn transfer_keeps_to_the_mtu_of_a_route_that_is_replaced() {
    needs_root!();
    let hosts = Hosts::new();
    let running = begin(&hosts, "10.77.0.2");
    hosts
        .a
        .ip(&format!("route add 10.77.0.2 dev {DEV} mtu 900"));
    eventually("frames are small", || {
        let before = hosts.b.received();
        eventually("frames come", || hosts.b.received().0 > before.0 + 1000);
        let (frames, bytes) = hosts.b.received();
        (bytes - before.1) / (frames - before.0) <= 914
    });
    verified(running);
}

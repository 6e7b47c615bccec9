//! `xwarp ping`, both of whose ends speak rping's protocol; against rping itself it is tested
//! elsewhere.

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Hosts, Running, eventually};
use xwarp_test_kit::needs_root;

fn serve(hosts: &Hosts, options: &str) -> Running {
    let mut server = hosts.b.start(&format!("ping --dev {DEV} {options}"));
    let line = server.line("waiting for a client at ");
    assert!(line.contains("10.77.0.2:7174"), "{line}");
    server
}

#[test]
fn pings_are_verified_and_both_sides_print_them() {
    needs_root!();
    let hosts = Hosts::new();
    let server = serve(&hosts, "");
    let client = hosts.a.xwarp("ping 10.77.0.2 --count 3").succeeded();
    let verified = client
        .stdout
        .lines()
        .filter(|line| line.contains("  verified  "));
    assert_eq!(verified.count(), 3, "{client}");
    assert!(
        client.stdout.contains("3 pings, all verified, min "),
        "{client}"
    );
    let server = server.finish().succeeded();
    for number in 0..3 {
        let text = format!("  rdma-ping-{number}: ");
        assert!(server.stdout.contains(&text), "{text} in {server}");
    }
    assert!(server.stdout.contains(": 3 pings\n"), "{server}");
    assert_eq!(hosts.a.program(), None);
    assert_eq!(hosts.b.program(), None);
}

#[test]
fn persistent_server_serves_one_client_after_another_also_after_a_wrong_one() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = serve(&hosts, "--persistent --quiet");
    for size in [26, 64, 1500, 65535] {
        hosts
            .a
            .xwarp(&format!("ping 10.77.0.2 --count 4 --size {size} --quiet"))
            .succeeded();
    }
    hosts
        .a
        .xwarp("perf write-bw 10.77.0.2 --port 7174")
        .refused(&["the listener at 10.77.0.2:7174 is no xwarp perf server"]);
    let mut endless = hosts.a.start("ping 10.77.0.2 --count 1000000");
    endless.line("ping     9  verified ");
    endless.signal(Signal::SIGINT);
    endless.finish().interrupted_by(Signal::SIGINT);
    hosts
        .a
        .xwarp("ping 10.77.0.2 --count 1 --quiet")
        .succeeded();
    server.still_runs();
    server.signal(Signal::SIGTERM);
    let server = server.finish().exited(143);
    assert_eq!(server.stdout.matches(": 4 pings\n").count(), 4, "{server}");
    assert!(server.stderr.ends_with("xwarp: interrupted\n"), "{server}");
    assert_eq!(hosts.b.program(), None);
}

#[test]
fn ping_that_cannot_be_is_refused() {
    needs_root!();
    let hosts = Hosts::new();
    for (arguments, words) in [
        ("--size 25", "a message has 26 to 65535 bytes"),
        ("--size 64K", "a message has 26 to 65535 bytes"),
        ("--count 0", "--count must be at least 1"),
        ("", "no program listens at 10.77.0.2:7174"),
    ] {
        let ping = format!("ping 10.77.0.2 {arguments}");
        hosts.a.xwarp(&ping).refused(&[words]);
        assert_eq!(hosts.a.program(), None);
    }
    hosts.a.xwarp("ping 10.77.0.2 --persistent").exited(2);
}

/// The link-local address of host B's interface, which it has by itself.
fn link_local(hosts: &Hosts) -> String {
    let mut found = None;
    eventually("an address is in use", || {
        let listed = hosts
            .b
            .ip(&format!("-6 -o addr show dev {DEV} scope link -tentative"));
        let words = listed
            .split_whitespace()
            .skip_while(|word| *word != "inet6");
        found = words.map(str::to_owned).nth(1);
        found.is_some()
    });
    let address = found.unwrap();
    address.split('/').next().unwrap().to_owned()
}

#[test]
fn link_local_host_is_named_with_its_interface() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.a.ip("link add eth2 type veth peer name eth3");
    hosts.a.ip("link set eth2 up");
    let host = link_local(&hosts);
    let index = hosts.a.ip(&format!("-o link show dev {DEV}"));
    let index = index.split(':').next().unwrap();
    let mut server = serve(&hosts, "--persistent --quiet");
    for way in [
        format!("{host}%{DEV}"),
        format!("{host}%{index}"),
        format!("--dev {DEV} {host}"),
        format!("--dev {DEV} {host}%{DEV}"),
    ] {
        let client = hosts.a.xwarp(&format!("ping --count 1 {way}"));
        assert!(
            client.succeeded().stdout.contains("1 pings, all verified"),
            "{way}"
        );
    }
    hosts.a.xwarp(&format!("ping {host}")).refused(&[
        &host,
        "may be on any of several interfaces",
        "eth1, eth2",
        &format!("{host}%eth1"),
    ]);
    let two = format!("ping --dev eth2 {host}%{DEV}");
    hosts.a.xwarp(&two).refused(&["name two interfaces"]);
    let none = hosts.a.xwarp("ping fe80::1%nope");
    none.refused(&["no interface is named \"nope\""]);
    let wrong = hosts.a.xwarp("ping 10.77.0.2%eth1").exited(2);
    assert!(
        wrong.stderr.contains("no link-local IPv6 address"),
        "{wrong}"
    );
    server.still_runs();
}

/// The kernel's rules are asked with the protocol and the port, by the command for its interface
/// and by the RNIC for its next hop.
#[test]
fn ping_goes_the_way_that_a_rule_has_for_its_port() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.ip(&format!("addr add 10.99.0.2/32 dev {DEV}"));
    hosts.a.ip("route add unreachable 10.99.0.2");
    hosts.a.ip("route add 10.99.0.2 via 10.77.0.2 table 12");
    hosts
        .a
        .ip("rule add ipproto tcp dport 7174 lookup 12 pref 12");
    let mut server = serve(&hosts, "--persistent --quiet");
    let ping = |more: &str| hosts.a.xwarp(&format!("ping 10.99.0.2 --count 2 {more}"));
    for dev in ["", "--dev eth1"] {
        let client = ping(dev).succeeded();
        assert!(client.stdout.contains("2 pings, all verified"), "{client}");
        ping(&format!("{dev} --port 7175")).refused(&["there is no route to 10.99.0.2"]);
    }
    server.still_runs();
}

/// What the server prints is what the client takes.
#[test]
fn address_that_the_server_prints_is_taken_with_its_port() {
    needs_root!();
    let hosts = Hosts::new();
    for host in [&hosts.a, &hosts.b] {
        eventually("addresses can be used", || {
            !host.ip("addr show").contains("tentative")
        });
    }
    for command in ["ping", "perf write-lat"] {
        let short = if command == "ping" {
            "--count"
        } else {
            "--iterations"
        };
        let mut server = hosts.b.start(&format!("{command} --port 0 --dev {DEV}"));
        let line = server.line("waiting for a client at ");
        let (_, addresses) = line.split_once(" at ").expect("addresses");
        let link_local = addresses.split(", ").find(|it| it.contains("fe80"));
        let link_local = link_local.expect("a link-local address");
        // The interface has the same name on both hosts, and not always the same number.
        assert!(link_local.contains(&format!("%{DEV}]:")), "{line}");
        hosts
            .a
            .xwarp(&format!("{command} {short} 2 {link_local}"))
            .succeeded();
        server.finish().succeeded();
    }
    let mut server = hosts.b.start(&format!("ping --port 0 --dev {DEV}"));
    let line = server.line("waiting for a client at ");
    let (_, addresses) = line.split_once(" at ").expect("addresses");
    let first = addresses.split(", ").find(|it| it.starts_with("10.77"));
    let client = format!("ping {} --count 1", first.expect("an IPv4 address"));
    hosts.a.xwarp(&client).succeeded();
    server.finish().succeeded();
}

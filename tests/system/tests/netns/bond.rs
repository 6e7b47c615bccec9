//! RNICs on bonds: active backup over two links, the active one of which goes while data is sent.

use std::io::Write;

use serde_json::Value;
use xwarp_system_tests::{Host, Hosts, Running, eventually};
use xwarp_test_kit::needs_root;

/// Two hosts with a bond of eth1 and eth2: 10.80.0.1 and .2. `None` if this kernel has no bonds,
/// which is said.
fn hosts() -> Option<Hosts> {
    let hosts = Hosts::new();
    let mut trial = hosts.a.command("ip");
    trial.args("link add name trial type bond".split(' '));
    if !Running::start(trial).finish().succeeds() {
        let why = "this kernel has no bonds (module bonding)";
        // If standard error is closed, only this notice is lost.
        let _ = writeln!(std::io::stderr(), "skipped: a test of bonds: {why}");
        return None;
    }
    let far = hosts.b.name();
    hosts.a.ip(&format!(
        "link add name eth2 type veth peer name eth2 netns {far}"
    ));
    for (host, number) in [(&hosts.a, 1), (&hosts.b, 2)] {
        host.ip("link add name bond0 type bond mode active-backup miimon 50");
        for member in ["eth1", "eth2"] {
            host.ip(&format!("addr flush dev {member}"));
            host.ip(&format!("link set {member} down"));
            host.ip(&format!("link set {member} master bond0"));
        }
        host.ip("link set bond0 up");
        host.ip(&format!("addr add 10.80.0.{number}/24 dev bond0"));
    }
    for host in [&hosts.a, &hosts.b] {
        eventually("a member is active", || active(host).is_some());
    }
    Some(hosts)
}

/// The member that carries the bond's frames.
fn active(host: &Host) -> Option<String> {
    let listed = host.ip("-json -details link show dev bond0");
    let links: Value = serde_json::from_str(&listed).expect("JSON");
    let member = &links[0]["linkinfo"]["info_data"]["active_slave"];
    member.as_str().map(str::to_owned)
}

const TEST: &str = "write-bw --verify --size 65536 --wait blocking";

fn serve(hosts: &Hosts, options: &str) -> Running {
    let mut server = hosts.b.start(&format!("perf {TEST} --dev bond0 {options}"));
    server.line("waiting for a client at ");
    server
}

/// Its native program would run at its members, where no socket of the bond gets anything.
#[test]
fn rnic_on_a_bond_moves_data_in_generic_mode() {
    needs_root!();
    let Some(hosts) = hosts() else { return };
    for options in ["", "--mode generic"] {
        let server = serve(&hosts, options);
        let measure = format!("perf {TEST} --iterations 50 10.80.0.2 {options}");
        let client = hosts.a.xwarp(&measure).succeeded();
        for line in [
            "bond0  XDP generic (attached by us)  AF_XDP copy",
            "every byte as sent",
        ] {
            assert!(client.stdout.contains(line), "{client}");
        }
        let warned = client.stderr.contains("bond0 is a bond: ");
        assert_eq!(warned, options.is_empty(), "{client}");
        server.finish().succeeded();
        assert!(!hosts.b.ip("link show").contains("xdp"));
    }
    let native = hosts.b.xwarp("perf write-bw --dev bond0 --mode native");
    native.refused(&["bond0 is a bond: ", "ask for generic mode"]);
}

/// Both hosts' bonds change to the other member. What was lost on the way is sent again.
#[test]
fn connection_survives_the_active_member() {
    needs_root!();
    let Some(hosts) = hosts() else { return };
    let mode = "--mode generic";
    let server = serve(&hosts, mode);
    let measure = format!("perf {TEST} --depth 2 --duration 15s 10.80.0.2 {mode}");
    let mut client = hosts.a.start(&measure);
    client.line("write-bw");
    for _ in 0..2 {
        let member = active(&hosts.a).expect("an active member");
        let before = frames_sent(&hosts.a);
        eventually("data moves", || frames_sent(&hosts.a) > before + 100);
        hosts.a.ip(&format!("link set {member} down"));
        for host in [&hosts.a, &hosts.b] {
            let other = || active(host).is_some_and(|now| now != member);
            eventually("the other member is active", other);
        }
        let before = frames_sent(&hosts.a);
        eventually("data moves again", || frames_sent(&hosts.a) > before + 100);
        client.still_runs();
        hosts.a.ip(&format!("link set {member} up"));
    }
    let client = client.finish().succeeded();
    assert!(client.stdout.contains("every byte as sent"), "{client}");
    server.finish().succeeded();
}

/// Frames that the bond has sent by any member.
fn frames_sent(host: &Host) -> u64 {
    let listed = host.ip("-json -stats link show dev bond0");
    let links: Value = serde_json::from_str(&listed).expect("JSON");
    let sent = links[0]["stats64"]["tx"]["packets"].as_u64();
    sent.expect("a count")
}

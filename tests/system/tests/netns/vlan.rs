//! RNICs on VLAN interfaces: alone, beside others, and when the interface beneath changes.

use std::io::Write;
use std::time::Duration;

use xwarp_system_tests::{DEV, Finished, Hosts, Running, eventually};
use xwarp_test_kit::needs_root;

/// Two hosts with interfaces in VLANs 10 and 20: 10.78.0.1 and .2, 10.79.0.1 and .2. `None` if this
/// kernel has no VLANs, which is said.
fn hosts() -> Option<Hosts> {
    let hosts = Hosts::new();
    let mut trial = hosts.a.command("ip");
    trial.args("link add link eth1 name trial type vlan id 9".split(' '));
    if !Running::start(trial).finish().succeeds() {
        let why = "this kernel has no VLAN interfaces (module 8021q)";
        // If standard error is closed, only this notice is lost.
        let _ = writeln!(std::io::stderr(), "skipped: a test of VLANs: {why}");
        return None;
    }
    for (id, net) in [(10, 78), (20, 79)] {
        for (host, number) in [(&hosts.a, 1), (&hosts.b, 2)] {
            let name = format!("{DEV}.{id}");
            host.ip(&format!(
                "link add link {DEV} name {name} type vlan id {id}"
            ));
            host.ip(&format!("addr add 10.{net}.0.{number}/24 dev {name}"));
            host.ip(&format!("link set {name} up"));
        }
    }
    Some(hosts)
}

/// Six of them at once run on the few processors of a guest.
const TEST: &str = "write-bw --verify --size 65536 --wait blocking";
/// How long each may take there.
const END: Duration = Duration::from_mins(2);

fn serve(hosts: &Hosts, dev: &str, options: &str) -> Running {
    let mut server = hosts.b.start(&format!("perf {TEST} --dev {dev} {options}"));
    server.line("waiting for a client at ");
    server
}

fn begin(hosts: &Hosts, host: &str, options: &str) -> Running {
    let measure = format!("perf {TEST} --iterations 50 {host} {options}");
    hosts.a.start(&measure)
}

fn verified(client: Running) -> Finished {
    let client = client.finish_within(END).succeeded();
    assert!(client.stdout.contains("every byte as sent"), "{client}");
    client
}

/// The kernel takes the tag off and puts it on, so the program runs behind it, in generic mode.
#[test]
fn rnic_on_a_vlan_interface_moves_data() {
    needs_root!();
    let Some(hosts) = hosts() else { return };
    for options in ["", "--mode generic"] {
        let server = serve(&hosts, "eth1.10", options);
        let client = verified(begin(&hosts, "10.78.0.2", options));
        let line = "eth1.10  XDP generic (attached by us)  AF_XDP copy";
        assert!(client.stdout.contains(line), "{client}");
        let warned = client.stderr.contains("eth1.10 refuses native XDP");
        assert_eq!(warned, options.is_empty(), "{client}");
        server.finish().succeeded();
        assert!(!hosts.b.ip("link show").contains("xdp"));
    }
    let native = hosts.b.xwarp("perf write-bw --dev eth1.10 --mode native");
    native.refused(&[
        "eth1.10 refuses native XDP",
        "VLANs",
        "ask for generic mode",
    ]);
}

/// Each has the frames of its own VLAN, whatever the mode of the program beneath. The kernel takes
/// that one only before those above it.
#[test]
fn rnics_on_two_vlans_and_on_the_interface_beneath_serve_at_once() {
    needs_root!();
    let Some(hosts) = hosts() else { return };
    for mode in ["native", "generic"] {
        let generic = "--mode generic";
        let ways = [
            ("eth1", "10.77.0.2", format!("--mode {mode}")),
            ("eth1.10", "10.78.0.2", generic.to_owned()),
            ("eth1.20", "10.79.0.2", generic.to_owned()),
        ];
        // The same port in each VLAN: only the tag distinguishes their flows.
        let servers: Vec<_> = ways
            .iter()
            .map(|(dev, _, mode)| serve(&hosts, dev, mode))
            .collect();
        let clients: Vec<_> = ways
            .iter()
            .map(|(_, host, mode)| {
                let mut client = begin(&hosts, host, mode);
                client.line("write-bw");
                client
            })
            .collect();
        clients.into_iter().map(verified).for_each(drop);
        for server in servers {
            let server = server.finish_within(END).succeeded();
            assert_eq!(server.stderr, "");
        }
    }
}

#[test]
fn interface_beneath_an_rnic_on_its_vlan_is_refused() {
    needs_root!();
    let Some(hosts) = hosts() else { return };
    let vlan = serve(&hosts, "eth1.10", "--mode generic");
    let refused = hosts.b.xwarp("perf write-bw --dev eth1");
    refused.refused(&["eth1 takes no XDP program while an interface above it has one"]);
    verified(begin(&hosts, "10.78.0.2", "--mode generic"));
    vlan.finish_within(END).succeeded();
}

#[test]
fn rnic_on_a_vlan_interface_follows_the_interface_beneath() {
    needs_root!();
    let Some(hosts) = hosts() else { return };
    let start = "ping --dev eth1.10 --persistent --quiet --mode generic";
    let mut server = hosts.b.start(start);
    server.line("waiting for a client at ");
    let ping = || hosts.a.xwarp("ping 10.78.0.2 --count 2 --mode generic");
    ping().succeeded();
    for (change, says) in [
        ("set eth1 down", "eth1.10 is down"),
        ("set eth1 up", "eth1.10 is up again"),
        ("set eth1 mtu 1280", "eth1.10 now has an MTU of 1280"),
    ] {
        hosts.b.ip(&format!("link {change}"));
        eventually(says, || server.complained().contains(says));
    }
    ping().succeeded();
    hosts.b.ip("link delete eth1");
    let ended = server.finish().exited(1);
    assert!(
        ended
            .stderr
            .contains("the RNIC has failed: eth1.10 was deleted"),
        "{ended}"
    );
}

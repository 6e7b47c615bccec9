//! `xwarp doctor`.

use serde_json::Value;
use xwarp_system_tests::{DEV, Hosts, output_of};
use xwarp_test_kit::needs_root;

/// The finding about one thing.
fn about<'a>(told: &'a Value, thing: &str) -> &'a Value {
    let findings = told["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["about"] == thing);
    found.unwrap_or_else(|| panic!("nothing about {thing}: {told}"))
}

fn ask(hosts: &Hosts, code: i32) -> Value {
    let asked = hosts.b.xwarp(&format!("doctor {DEV} --json")).exited(code);
    serde_json::from_str(&asked.stdout).expect("JSON")
}

/// What a pair of veth has by default is not good for every peer.
#[test]
fn what_the_doctor_advises_makes_it_content() {
    needs_root!();
    let hosts = Hosts::new();
    let told = ask(&hosts, 3);
    assert_eq!(told["verdict"], "warn", "{told}");
    let checksums = about(&told, "checksums");
    assert_eq!(checksums["verdict"], "warn", "{told}");
    let mut words = checksums["remedy"].as_str().expect("a command").split(' ');
    let mut command = hosts.b.command(words.next().expect("a program"));
    command.args(words);
    output_of(command);
    assert_eq!(ask(&hosts, 0)["verdict"], "pass");
}

#[test]
fn link_that_is_down_is_named_with_its_command() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.ip("link set eth1 down");
    let told = hosts.b.xwarp(&format!("doctor {DEV}")).exited(1).stdout;
    assert!(told.contains("fail  interface    eth1 is down\n"), "{told}");
    assert!(told.contains("-> ip link set eth1 up\n"), "{told}");
    hosts
        .a
        .xwarp("doctor nope")
        .refused(&["no interface is named"]);
}

#[test]
fn program_that_runs_is_known() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.compute_checksums();
    let says = |code| about(&ask(&hosts, code), "program")["says"].to_string();
    assert!(says(0).contains("none"));
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    assert!(says(0).contains("xwarp's, native, attached to stay"));
    hosts.b.xwarp(&format!("detach {DEV}")).succeeded();
    let server = hosts.b.serve("write-bw");
    assert!(says(0).contains("of a process that has the interface now"));
    drop(server);
    let pass = hosts.pass_object();
    hosts.b.ip(&format!(
        "link set dev {DEV} xdp obj {} sec xdp",
        pass.display()
    ));
    assert!(says(1).contains("an interface has room for one"));
}

/// What `xwarp doctor` says first of an interface, with the exit code.
fn verdict(hosts: &Hosts, dev: &str, code: i32) -> [String; 2] {
    let asked = hosts.b.xwarp(&format!("doctor {dev}")).exited(code).stdout;
    ["interface", "XDP"].map(|thing| {
        let line = asked.lines().find(|line| line[6..].starts_with(thing));
        line.unwrap_or_else(|| panic!("nothing about {thing}: {asked}"))
            .to_owned()
    })
}

#[test]
fn interfaces_without_a_driver_for_xdp_are_told_apart() {
    needs_root!();
    let hosts = Hosts::new();
    let host = &hosts.b;
    host.ip("tuntap add mode tun tun9");
    host.ip("link add br9 type bridge");
    host.ip(&format!("link add mac9 link {DEV} type macvlan"));
    for dev in ["tun9", "br9", "mac9"] {
        host.ip(&format!("link set {dev} up"));
    }
    host.ip("addr add 10.79.0.2/24 dev mac9");
    host.ip("link add ifb9 type ifb");
    let generic = "warn  XDP          the driver runs no XDP programs: generic mode";
    for (dev, code, says) in [
        (
            "lo",
            1,
            "fail  interface    lo is the loopback interface, which has no frames",
        ),
        (
            "tun9",
            1,
            "fail  interface    tun9 carries no Ethernet frames",
        ),
        ("ifb9", 1, "fail  interface    ifb9 is down"),
        ("br9", 1, "fail  interface    br9 has no "),
        ("mac9", 3, "pass  interface    mac9, "),
    ] {
        let [interface, xdp] = verdict(&hosts, dev, code);
        assert!(interface.starts_with(says), "{interface}");
        assert!(xdp.starts_with(generic), "{dev}: {xdp}");
    }
    let refused = host.xwarp("ping --dev tun9");
    refused.refused(&["tun9 carries no Ethernet frames"]);
}

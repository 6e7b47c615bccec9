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
    assert!(told.contains("fail  interface  eth1 is down\n"), "{told}");
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

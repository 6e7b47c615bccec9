//! `xwarp doctor`.

use serde_json::Value;
use xwarp_system_tests::{DEV, Hosts, Running, output_of};
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

/// What a pair of veth has by default is good for two RNICs, and not for every peer.
#[test]
fn remark_about_checksums_goes_by_its_command() {
    needs_root!();
    let hosts = Hosts::new();
    let told = ask(&hosts, 0);
    assert_eq!(told["verdict"], "pass", "{told}");
    let checksums = about(&told, "checksums");
    assert_eq!(checksums["verdict"], "pass", "{told}");
    let mut words = checksums["remedy"].as_str().expect("a command").split(' ');
    let mut command = hosts.b.command(words.next().expect("a program"));
    command.args(words);
    output_of(command);
    let told = ask(&hosts, 0);
    assert!(about(&told, "checksums")["remedy"].is_null(), "{told}");
}

#[test]
fn exit_codes_and_the_firewall_are_reported() {
    needs_root!();
    let hosts = Hosts::new();
    let help = hosts.b.xwarp("doctor --help").succeeded().stdout;
    for code in ["0  an RNIC runs", "1  no RNIC", "2  the arg", "3  an RNIC"] {
        assert!(help.contains(code), "{help}");
    }
    let told = ask(&hosts, 0);
    let firewall = about(&told, "firewall")["says"].to_string();
    assert!(firewall.contains("do not apply"), "{firewall}");
}

/// Root of a user namespace, as in a rootless container, has all capabilities, and they count there
/// only.
#[test]
fn user_namespace_is_named_by_all_commands() {
    needs_root!();
    let hosts = Hosts::new();
    let inside = |commands: &str| {
        let mut command = hosts.b.command("unshare");
        let xwarp = Hosts::command_file();
        let made = "ip link add v0 type veth peer v1; ip addr add 10.5.0.1/24 dev v0; ip link set v0 up; ip link set v1 up";
        let script = format!("{made}; {} {commands}", xwarp.display());
        command.args(["-Urn", "sh", "-c", &script]);
        Running::start(command).finish()
    };
    let told = inside("doctor v0").exited(1).stdout;
    for words in [
        "fail  privileges   an RNIC needs privileges in the initial user namespace",
        "fail  memory ",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let words = ["needs privileges in the initial user namespace"];
    for command in ["ping --dev v0", "perf write-bw --dev v0", "attach v0"] {
        inside(command).refused(&words);
    }
}

/// What `xwarp doctor` says after a shell's command, of a root with fewer capabilities, where
/// something has failed.
fn ask_limited(hosts: &Hosts, first: &str, bounding_set: &str) -> Value {
    let mut command = hosts.b.command("sh");
    let xwarp = Hosts::command_file();
    let script = format!(
        "{first}; exec setpriv --inh-caps -all --bounding-set {bounding_set} {} doctor {DEV} --json",
        xwarp.display()
    );
    command.args(["-c", &script]);
    let asked = Running::start(command).finish().exited(1);
    serde_json::from_str(&asked.stdout).expect("JSON")
}

#[test]
fn remedies_are_those_of_the_process_that_asks() {
    needs_root!();
    let hosts = Hosts::new();
    let told = ask_limited(&hosts, "true", "-sys_admin");
    let privileges = about(&told, "privileges");
    let says = privileges["says"].to_string();
    assert!(says.contains("lacks CAP_SYS_ADMIN"), "{says}");
    let remedy = privileges["remedy"].to_string();
    assert!(remedy.contains("--cap-add SYS_ADMIN"), "{remedy}");
    let told = ask_limited(&hosts, "ulimit -l 64", "-ipc_lock");
    let memory = about(&told, "memory");
    let says = memory["says"].to_string();
    assert!(says.contains("64 KiB may be locked"), "{says}");
    let remedy = "sudo prlimit --pid $$ --memlock=unlimited";
    assert_eq!(memory["remedy"], remedy, "{told}");
    let told = ask_limited(&hosts, "ulimit -S -n 16", "+all");
    let files = about(&told, "open files");
    assert_eq!(files["verdict"], "fail", "{told}");
    assert_eq!(files["remedy"], "ulimit -S -n 1024", "{told}");
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
    let user = format!(
        "of xwarp (process {}), which has the interface now",
        server.id()
    );
    assert!(says(0).contains(&user));
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
    let generic = "warn  XDP          the driver runs no XDP programs: only generic mode";
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

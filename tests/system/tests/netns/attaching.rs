//! `xwarp attach`, `status`, `detach` and `object`.

use serde_json::Value;
use xwarp_system_tests::{Case, DEV, Finished, Hosts, Mode, Setup, Way};
use xwarp_test_kit::needs_root;

/// What `status` prints of an interface that no other program is on.
fn status(hosts: &Hosts) -> Value {
    let asked = hosts.b.xwarp(&format!("status {DEV} --json"));
    serde_json::from_str(&asked.succeeded().stdout).expect("JSON")
}

#[test]
fn attach_status_and_detach_agree_with_ip_link() {
    needs_root!();
    let hosts = Hosts::new();
    for (asked, mode) in [
        ("", Mode::Native),
        ("--mode native", Mode::Native),
        ("--mode generic", Mode::Generic),
    ] {
        let attached = hosts.b.xwarp(&format!("attach {DEV} {asked}")).succeeded();
        assert_eq!(attached.stdout, format!("eth1: attached, XDP {mode}\n"));
        let program = hosts.b.program().expect("attached");
        assert_eq!((program.mode, program.flows()), (mode, 0));
        let asked = format!("status {DEV} --attached");
        let text = hosts.b.xwarp(&asked).succeeded().stdout;
        let first = format!("eth1: XDP {mode}, program {} (xwarp)\n", program.id);
        assert!(text.starts_with(&first), "{text}");
        // Nothing of an RNIC's has come, and what has not come is not listed.
        assert!(!text.contains("redirected"), "{text}");
        let json = status(&hosts);
        assert_eq!(json["attached"], true, "{json}");
        assert_eq!(json["ours"], true, "{json}");
        assert_eq!(json["mode"], mode.to_string(), "{json}");
        assert_eq!(json["program_id"], program.id, "{json}");
        assert_eq!(json["counters"]["redirected"], 0, "{json}");
        hosts
            .b
            .xwarp(&format!("attach {DEV}"))
            .refused(&["eth1 runs xwarp's XDP program already", &mode.to_string()]);
        assert_eq!(
            hosts.b.program(),
            Some(program),
            "attaching twice changes nothing"
        );
        let printed = hosts.b.xwarp(&format!("detach {DEV}")).succeeded().stdout;
        assert_eq!(printed, "eth1: detached\n");
        assert_eq!(hosts.b.program(), None);
    }
}

/// The kernel takes no program beneath an interface that has one: a bridge here, as every kernel
/// has those.
#[test]
fn interface_beneath_one_with_a_program_is_refused() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.ip("link add name above type bridge");
    hosts.b.ip(&format!("link set {DEV} master above"));
    let above = "attach above --mode generic";
    hosts.b.xwarp(above).succeeded();
    for mode in ["native", "generic"] {
        let attach = format!("attach {DEV} --mode {mode}");
        let why = "eth1 takes no XDP program while an interface above it has one";
        hosts.b.xwarp(&attach).refused(&[why]);
    }
    hosts.b.xwarp("detach above").succeeded();
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    hosts.b.xwarp(above).succeeded();
}

/// The NIC strips the tags of VLAN frames, so the program takes them for untagged. `xwarp status`
/// reports it.
#[test]
fn status_tells_that_vlan_tags_are_stripped() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    let told = || hosts.b.xwarp(&format!("status {DEV}")).succeeded().stdout;
    assert!(told().contains("eth1 strips VLAN tags before XDP"));
    assert_eq!(status(&hosts)["vlan_tags_stripped"], true);
    hosts.b.switch_off(DEV, &["rxvlan"]);
    assert!(!told().contains("VLAN tags"));
    assert_eq!(status(&hosts)["vlan_tags_stripped"], false);
    hosts.b.xwarp(&format!("detach {DEV}")).succeeded();
}

#[test]
fn nothing_attached_is_told() {
    needs_root!();
    let hosts = Hosts::new();
    hosts
        .b
        .xwarp(&format!("detach {DEV}"))
        .refused(&["eth1 runs no XDP program"]);
    let asked = format!("status {DEV}");
    let answers = [
        hosts.b.xwarp(&asked).succeeded(),
        hosts.b.xwarp(&format!("{asked} --attached")).exited(3),
    ];
    for Finished { stdout, .. } in answers {
        assert_eq!(stdout, "eth1: no XDP program\n");
    }
    let json = status(&hosts);
    assert_eq!(
        (&json["attached"], &json["dev"]),
        (&false.into(), &DEV.into()),
        "{json}"
    );
}

#[test]
fn object_is_loaded_by_ip_link_in_both_modes_and_xwarp_detaches_it() {
    needs_root!();
    let hosts = Hosts::new();
    let file = hosts.work.file("written.o");
    let printed = hosts
        .a
        .xwarp(&format!("object {}", file.display()))
        .succeeded()
        .stdout;
    let bytes = std::fs::metadata(&file).expect("the object").len();
    assert!(
        printed.contains(&format!("written.o: {bytes} bytes")),
        "{printed}"
    );
    for mode in [Mode::Native, Mode::Generic] {
        hosts.b.ip_link_attach(&file, mode);
        assert_eq!(status(&hosts)["mode"], mode.to_string());
        hosts.b.xwarp(&format!("detach {DEV}")).succeeded();
        assert_eq!(hosts.b.program(), None);
    }
}

/// `xwarp attach` is the third way: the command finds its own program and leaves it.
#[test]
fn run_uses_what_xwarp_has_attached_and_counts_its_packets() {
    const MESSAGES: u64 = 100;
    needs_root!();
    let hosts = Hosts::new();
    for host in [&hosts.a, &hosts.b] {
        host.xwarp(&format!("attach {DEV}")).succeeded();
    }
    let before = (hosts.a.program(), hosts.b.program());
    let mut server = hosts.b.serve("write-bw --verify --size 4K --depth 16");
    assert!(
        server
            .line("write-bw")
            .contains("XDP native (found attached)")
    );
    hosts
        .a
        .xwarp(&format!(
            "perf write-bw --verify --size 4K --depth 16 --iterations {MESSAGES} 10.77.0.2"
        ))
        .succeeded();
    server.finish().succeeded();
    assert_eq!((hosts.a.program(), hosts.b.program()), before);
    let json = status(&hosts);
    let counted = |name: &str| json["counters"][name].as_u64().expect("a counter");
    // A frame at least for each message, however many segments are in one.
    assert!(counted("redirected") > MESSAGES, "{json}");
    for name in [
        "pass_no_socket",
        "pass_truncated",
        "pass_malformed",
        "pass_fragment",
        "pass_extensions",
    ] {
        assert_eq!(counted(name), 0, "{name} in {json}");
    }
}

#[test]
fn status_tells_a_program_that_goes_with_its_process() {
    needs_root!();
    let hosts = Hosts::new();
    let server = hosts.b.serve("write-bw");
    let json = status(&hosts);
    assert_eq!(json["ours"], true, "{json}");
    assert_eq!(
        json["program_id"],
        hosts.b.program().expect("attached").id,
        "{json}"
    );
    drop(server);
    assert_eq!(status(&hosts)["attached"], false);
}

#[test]
fn one_side_attached_by_ip_link_and_the_other_by_itself_work_together() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    let found = hosts.b.ip_link_attach(&hosts.object(), Mode::Generic);
    let case = Case::new("send-bw");
    let server = hosts.b.serve("send-bw --verify");
    let arguments = format!(
        "perf {} --verify --iterations 50 --mode native {}",
        case.test, case.address
    );
    hosts.a.xwarp(&arguments).succeeded();
    server.finish().succeeded();
    assert_eq!((hosts.a.program(), hosts.b.program()), (None, Some(found)));
    hosts.b.ip_link_detach(Mode::Generic);
    setup.check_as_found();
}

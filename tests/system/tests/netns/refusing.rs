//! Refusals of commands that cannot work: at once, in one sentence that says what and why, and with
//! nothing left behind.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use xwarp_system_tests::{
    DEV, Finished, Host, Hosts, Mode, PERF_PORT, Running, Shape, eventually, output_of,
};
use xwarp_test_kit::needs_root;

/// Fails unless `xwarp` refused with these words and has left nothing attached.
fn refuses(host: &Host, arguments: &str, words: &[&str]) {
    let before = host.program();
    host.xwarp(arguments).refused(words);
    assert_eq!(host.program(), before, "xwarp {arguments}");
}

#[test]
fn interface_that_cannot_serve_is_refused() {
    needs_root!();
    let hosts = Hosts::new();
    let host = &hosts.a;
    for command in ["perf write-bw --dev", "attach", "detach", "status"] {
        refuses(
            host,
            &format!("{command} nope"),
            &["no interface is named \"nope\" here", "lo, eth1"],
        );
    }
    refuses(
        host,
        "perf write-bw --dev lo",
        &["lo is the loopback interface", "choose another"],
    );
    host.ip(&format!("link set {DEV} down"));
    refuses(
        host,
        &format!("perf write-bw --dev {DEV}"),
        &["eth1 is down", "ip link set eth1 up"],
    );
    refuses(
        host,
        "perf write-bw",
        &["no interface is up and has an address"],
    );
    host.ip(&format!("link set {DEV} up"));
    host.ip(&format!("addr flush dev {DEV}"));
    refuses(
        host,
        &format!("perf write-bw --dev {DEV}"),
        &["eth1 has no IP address", "ip addr add"],
    );
}

/// A client that would wait for the answer of a neighbour is refused at once.
#[test]
fn link_whose_other_end_is_down_is_refused_at_once() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.ip(&format!("link set {DEV} down"));
    for command in ["ping", "perf write-bw"] {
        let client = hosts.a.xwarp(&format!("{command} 10.77.0.2"));
        assert!(client.took < Duration::from_secs(2), "{:?}", client.took);
        client.refused(&["eth1 has no carrier", "set its peer up"]);
    }
}

/// The kernel's RST by IPv6 has no checksum of its own here.
#[test]
fn port_without_a_listener_is_refused_at_once_by_ipv4_and_ipv6() {
    needs_root!();
    let hosts = Hosts::new();
    for server in ["10.77.0.2", "fd77::2"] {
        let ended = hosts.a.xwarp(&format!("ping {server}"));
        let said = ended.refused(&["connection refused"]);
        assert!(!said.contains("checksum"), "{said}");
    }
}

/// Hosts whose address BGP announces have it on loopback. What the server advises helps.
#[test]
fn address_on_loopback_is_named_with_what_has_it_served() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.ip("addr add 10.92.9.2/32 dev lo");
    hosts.a.ip("route add 10.92.9.2 via 10.77.0.2");
    let serving = hosts.b.start(&format!("ping --dev {DEV}"));
    let advice = format!("ip addr add 10.92.9.2 dev {DEV}");
    eventually("it is said", || {
        let said = serving.complained();
        said.contains("10.92.9.2 lies on loopback and is not served") && said.contains(&advice)
    });
    drop(serving);
    hosts.b.sh(&advice);
    let _serving = hosts.b.serve("write-bw");
    let client = "perf write-bw --iterations 10 10.92.9.2";
    hosts.a.xwarp(client).succeeded();
}

#[test]
fn one_of_several_interfaces_must_be_named() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.ip("link add eth2 type veth peer name eth3");
    hosts.b.ip("link set eth2 up");
    hosts.b.ip("addr add 10.78.0.2/24 dev eth2");
    hosts
        .b
        .xwarp("perf write-bw")
        .refused(&["several interfaces are up", "eth1", "--dev"]);
}

#[test]
fn queues_that_are_not_there_are_refused() {
    needs_root!();
    let hosts = Hosts::shaped(Shape {
        queues: 4,
        ..Shape::default()
    });
    let words = [
        "queues 2 to 5 of eth1 are wanted, but it has 4 (0 to 3)",
        "ethtool -L eth1",
    ];
    refuses(
        &hosts.a,
        &format!("perf write-bw --dev {DEV} --queues 2-5"),
        &words,
    );
}

#[test]
fn foreign_program_is_named_and_left_alone() {
    needs_root!();
    let hosts = Hosts::new();
    let (source, object) = (hosts.work.file("pass.c"), hosts.work.file("pass.o"));
    fs::write(
        &source,
        "__attribute__((section(\"xdp\"), used)) int stranger(void *ctx) { return 2; }",
    )
    .unwrap();
    let mut clang = Command::new("clang");
    clang
        .args(["-target", "bpf", "-O2", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object);
    output_of(clang);
    for (mode, off) in [(Mode::Native, "xdp off"), (Mode::Generic, "xdpgeneric off")] {
        let foreign = hosts.a.ip_link_attach(&object, mode);
        let id = foreign.id.to_string();
        let words = [
            "eth1 runs the XDP program stranger",
            &id,
            "not xwarp's",
            off,
        ];
        for command in ["perf write-bw --dev", "attach", "detach"] {
            refuses(&hosts.a, &format!("{command} {DEV}"), &words);
        }
        refuses(&hosts.a, "perf write-bw 10.77.0.2", &words);
        let status = hosts.a.xwarp(&format!("status {DEV}")).exited(3).stdout;
        assert!(
            status.contains(&id) && status.contains("not xwarp's"),
            "{status}"
        );
        hosts.a.ip_link_detach(mode);
    }
}

#[test]
fn another_mode_than_the_one_attached_is_refused() {
    needs_root!();
    let hosts = Hosts::new();
    let object = hosts.object();
    for (mode, other) in [(Mode::Native, Mode::Generic), (Mode::Generic, Mode::Native)] {
        hosts.a.ip_link_attach(&object, mode);
        let found = format!("in {mode} and not in {other} mode");
        refuses(
            &hosts.a,
            &format!("perf write-bw --dev {DEV} --mode {other}"),
            &["eth1 runs xwarp's", &found],
        );
        hosts.a.ip_link_detach(mode);
    }
}

#[test]
fn port_in_use_is_refused() {
    needs_root!();
    let hosts = Hosts::new();
    let listener = hosts
        .b
        .run(|| TcpListener::bind(("0.0.0.0", PERF_PORT)))
        .unwrap();
    let words = ["TCP port 18515 of 10.77.0.2 is in use by another program"];
    refuses(&hosts.b, &format!("perf write-bw --dev {DEV}"), &words);
    let mut server = hosts.b.serve("write-bw --port 18516");
    assert!(server.line("waiting").contains("10.77.0.2:18516"));
    drop((listener, server));
}

/// veth copies, so zero copy cannot be had there in any mode.
#[test]
fn zero_copy_is_refused_where_there_is_none() {
    needs_root!();
    let hosts = Hosts::new();
    for (mode, why) in [
        ("", "Operation not supported"),
        ("--mode generic", "runs in generic mode"),
    ] {
        let demanded = format!("perf write-bw --dev {DEV} --zero-copy {mode}");
        hosts
            .b
            .xwarp(&demanded)
            .refused(&["eth1 has no zero copy", why]);
        assert_eq!(hosts.b.program(), None);
    }
    let both = hosts
        .b
        .xwarp(&format!("perf write-bw --dev {DEV} --zero-copy --copy"));
    assert!(both.exited(2).stderr.contains("cannot be used with"));
}

#[test]
fn second_xwarp_on_an_interface_is_refused_and_does_not_disturb_the_first() {
    needs_root!();
    let hosts = Hosts::new();
    let server = hosts.b.serve("write-bw --verify");
    let program = hosts.b.program();
    hosts
        .b
        .xwarp(&format!("perf write-bw --dev {DEV} --port 18516"))
        .refused(&[
            "eth1 is in use by xwarp (process ",
            "), which holds its XDP program: end that process, or use another interface",
        ]);
    let words = ["eth1 is in use by xwarp (process "];
    hosts.b.xwarp(&format!("detach {DEV}")).refused(&words);
    hosts
        .b
        .xwarp(&format!("attach {DEV}"))
        .refused(&["eth1 runs xwarp's XDP program already"]);
    assert_eq!(hosts.b.program(), program);
    hosts
        .a
        .xwarp("perf write-bw --verify --iterations 100 10.77.0.2")
        .succeeded();
    server.finish().succeeded();
    assert_eq!(hosts.b.program(), None);
}

#[test]
fn wrong_arguments_are_refused() {
    needs_root!();
    let hosts = Hosts::new();
    let usage = |arguments: &str, word: &str| {
        let finished = hosts.a.xwarp(arguments).exited(2);
        assert!(
            finished.stderr.starts_with("error: ") && finished.stderr.contains(word),
            "{finished}"
        );
    };
    usage("perf write-bw --size garbage 10.77.0.2", "garbage");
    usage("perf write-bw --size 64X 10.77.0.2", "use none, K, M or G");
    let no_duration = "not a duration longer than zero";
    usage("perf write-bw --duration 0 10.77.0.2", no_duration);
    usage("perf write-bw --duration -1s 10.77.0.2", no_duration);
    usage("perf write-bw --depth -1 10.77.0.2", "not a possible count");
    usage("ping --interval -1s 10.77.0.2", no_duration);
    usage(
        "perf write-bw --iterations 5 --duration 5s 10.77.0.2",
        "cannot be used with",
    );
    usage("perf write-bw not-an-address", "not-an-address");
    usage(
        "perf write-bw --mode zero-copy 10.77.0.2",
        "native, generic",
    );
    usage("perf write-bw --port 65536 10.77.0.2", "0 to 65535");
    usage("ping --port ssh 10.77.0.2", "\"ssh\" is no port");
    usage("perf copy-bw 10.77.0.2", "copy-bw");
    for (arguments, word) in [
        ("write-bw --iterations 0", "--iterations must be at least 1"),
        ("write-bw --depth 0", "--depth must be at least 1"),
        ("write-bw --depth 4097", "4096"),
        ("write-bw --size 2G", "too large"),
        ("write-lat --size 0", "--size of at least 1"),
    ] {
        refuses(&hosts.a, &format!("perf {arguments} 10.77.0.2"), &[word]);
        refuses(&hosts.a, &format!("perf {arguments} --dev {DEV}"), &[word]);
    }
}

#[test]
fn file_that_cannot_be_written_is_refused() {
    needs_root!();
    let hosts = Hosts::new();
    refuses(
        &hosts.a,
        "object /nowhere/steer.bpf.o",
        &["cannot write /nowhere/steer.bpf.o", "No such file"],
    );
    let arguments = format!("perf write-bw --dev {DEV} --capture /nowhere/c.pcapng");
    refuses(&hosts.a, &arguments, &["/nowhere/c.pcapng", "No such file"]);
}

/// Runs a copy of the command that everybody may run, by way of `setpriv` with these options.
fn with_less_privilege(hosts: &Hosts, options: &str, arguments: &str) -> Finished {
    let copy = hosts.work.file("xwarp");
    fs::copy(Hosts::command_file(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = hosts.b.command("setpriv");
    command
        .args(options.split_whitespace())
        .arg(copy)
        .args(arguments.split_whitespace());
    Running::start(command).finish()
}

#[test]
fn user_without_privilege_is_told_what_is_needed() {
    needs_root!();
    let hosts = Hosts::new();
    let nobody = "--reuid 65534 --regid 65534 --clear-groups";
    let root_without_capabilities = "--bounding-set -all --inh-caps -all";
    for options in [nobody, root_without_capabilities] {
        for arguments in ["perf write-bw --dev eth1", "attach eth1"] {
            with_less_privilege(&hosts, options, arguments).refused(&["needs root"]);
            assert_eq!(hosts.b.program(), None);
        }
    }
    hosts.b.ip_link_attach(&hosts.object(), Mode::Native);
    for arguments in ["perf write-bw --dev eth1", "detach eth1", "status eth1"] {
        with_less_privilege(&hosts, nobody, arguments).refused(&["needs root"]);
        assert!(hosts.b.program().is_some());
    }
}

#[test]
fn too_few_descriptors_are_named_with_what_limits_them() {
    needs_root!();
    let hosts = Hosts::new();
    for limit in [4, 5, 6, 8, 10, 12] {
        for arguments in ["perf write-bw --dev eth1", "ping --dev eth1"] {
            let command = hosts
                .b
                .xwarp_after(&format!("ulimit -n {limit}"), arguments);
            let line = Running::start(command)
                .finish()
                .refused(&["raise the limit of open files (`ulimit -n`)"]);
            assert!(!line.contains("verifier"), "{limit}: {line}");
            assert_eq!(hosts.b.program(), None);
        }
    }
    let attach = hosts.b.xwarp_after("ulimit -n 7", "attach eth1");
    let line = Running::start(attach).finish().refused(&["`ulimit -n`"]);
    assert!(!line.contains("verifier"), "{line}");
    assert_eq!(hosts.b.program(), None);
    let enough = hosts
        .b
        .xwarp_after("ulimit -n 32", "perf write-bw --dev eth1");
    Running::start(enough).line("waiting for a client at ");
}

#[test]
fn port_zero_is_a_free_one_for_a_server_and_none_for_a_client() {
    needs_root!();
    let hosts = Hosts::new();
    for (command, short) in [("perf write-bw", "--iterations 10"), ("ping", "--count 1")] {
        let client = format!("{command} --port 0 10.77.0.2");
        refuses(&hosts.a, &client, &["--port 0 is no server's port"]);
        let mut server = hosts.b.start(&format!("{command} --port 0 --dev {DEV}"));
        let line = server.line("waiting for a client at ");
        let mut ports = line.rsplit(", ").filter_map(|at| at.rsplit(':').next());
        let port = ports.next().unwrap();
        assert!(port != "0" && ports.all(|other| other == port), "{line}");
        for address in ["10.77.0.2", "fd77::2"] {
            let listens = format!("{address}:{port}");
            let listens_v6 = format!("[{address}]:{port}");
            assert!(
                line.contains(&listens) || line.contains(&listens_v6),
                "{line}"
            );
        }
        hosts
            .a
            .xwarp(&format!("{command} {short} --port {port} fd77::2"))
            .succeeded();
        server.finish().succeeded();
    }
}

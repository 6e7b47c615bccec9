//! `xwarp ping`, both of whose ends speak rping's protocol; against rping itself it is tested elsewhere.

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Hosts, Running};

fn serve(hosts: &Hosts, options: &str) -> Running {
    let mut server = hosts.b.start(&format!("ping --dev {DEV} {options}"));
    let line = server.line("waiting for a client at ");
    assert!(line.contains("10.77.0.2:7174"), "{line}");
    server
}

#[test]
fn pings_are_verified_and_both_sides_print_them() {
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
fn a_persistent_server_serves_one_client_after_another_also_after_a_wrong_one() {
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
        .refused(&["what listens at 10.77.0.2:7174 is no xwarp perf server"]);
    let mut endless = hosts.a.start("ping 10.77.0.2 --count 1000000");
    endless.line("ping     9  verified ");
    endless.signal(Signal::SIGINT);
    endless.finish().refused(&["interrupted"]);
    hosts
        .a
        .xwarp("ping 10.77.0.2 --count 1 --quiet")
        .succeeded();
    server.still_runs();
    server.signal(Signal::SIGTERM);
    let server = server.finish().exited(1);
    assert_eq!(server.stdout.matches(": 4 pings\n").count(), 4, "{server}");
    assert!(server.stderr.ends_with("xwarp: interrupted\n"), "{server}");
    assert_eq!(hosts.b.program(), None);
}

#[test]
fn a_ping_that_cannot_be_is_refused() {
    let hosts = Hosts::new();
    for (arguments, words) in [
        ("--size 25", "a message has 26 to 65535 octets"),
        ("--size 64K", "a message has 26 to 65535 octets"),
        ("--count 0", "--count must be at least 1"),
        ("", "no program listens at 10.77.0.2:7174"),
    ] {
        let ping = format!("ping 10.77.0.2 {arguments}");
        hosts.a.xwarp(&ping).refused(&[words]);
        assert_eq!(hosts.a.program(), None);
    }
    hosts.a.xwarp("ping 10.77.0.2 --persistent").exited(2);
}

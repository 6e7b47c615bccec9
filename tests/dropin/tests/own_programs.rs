//! Programs of our own, for what no installed one does: several listeners and clients in one
//! process.

use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{
    SERVER, compile, end_by, finish, finish_within, run_client, serve, start,
};
use xwarp_system_tests::{Hosts, TIMEOUT};
use xwarp_test_kit::needs_root;

/// A program of libibverbs and librdmacm.
fn compiled(hosts: &Hosts, name: &str) -> String {
    let libraries = ["-pthread", "-lrdmacm", "-libverbs"];
    compile("cc", name, &libraries, &hosts.work)
}

/// Runs a program on host A, which has to end well; what it says at the end.
fn run(hosts: &Hosts, program: &str) -> String {
    run_client(hosts, program).stdout
}

/// No packet for an own address reaches an interface.
#[test]
fn two_ends_in_one_process_connect_by_an_address_of_the_host() {
    needs_root!();
    let hosts = Hosts::new();
    let program = compiled(&hosts, "own_host");
    let sent = hosts.b.received();
    for addresses in [
        "10.77.0.1 10.77.0.1",
        "127.0.0.1 10.77.0.1",
        "0.0.0.0 0.0.0.0",
        "fd77::1 fd77::1",
        "::1 ::1",
    ] {
        let said = run(&hosts, &format!("{program} {addresses}"));
        assert_eq!(
            said, "200000 bytes came back as they should\n",
            "{addresses}"
        );
    }
    let (_, bytes) = hosts.b.received();
    let news = bytes - sent.1;
    assert!(news < 10_000, "{news} bytes have left the host");
}

/// As UCX has one for messages of a process to itself.
#[test]
fn queue_pair_is_its_own_peer() {
    needs_root!();
    let hosts = Hosts::new();
    let program = compiled(&hosts, "own_peer");
    let sent = hosts.b.received();
    assert_eq!(run(&hosts, &program), "all compared\n");
    let (_, bytes) = hosts.b.received();
    let news = bytes - sent.1;
    assert!(news < 10_000, "{news} bytes have left the host");
}

#[test]
fn another_process_of_the_host_is_refused_in_one_sentence() {
    needs_root!();
    let hosts = Hosts::new();
    let server = serve(&hosts.a, "rping -s");
    for own in ["10.77.0.1", "127.0.0.1"] {
        let client = start(&hosts.a, &format!("rping -c -a {own} -C 1"));
        let refused = client.finish().exited(16);
        let said = "cannot open an RNIC on eth1: eth1 is in use by rping (process ";
        assert!(refused.stderr.contains(said), "{refused}");
    }
    end_by(Signal::SIGTERM, &hosts.a, "rping", server);
}

#[test]
fn as_many_peers_wait_as_the_backlog_says() {
    needs_root!();
    let hosts = Hosts::new();
    let program = compiled(&hosts, "backlog");
    for address in ["10.77.0.1", "fd77::1"] {
        let said = run(&hosts, &format!("{program} {address}"));
        assert_eq!(said, "accepted and rejected as the backlog says\n");
    }
}

#[test]
fn timewait_ends_a_second_after_the_connection_over_infiniband() {
    needs_root!();
    let hosts = Hosts::new();
    let program = compiled(&hosts, "timewait");
    let said = run(
        &hosts,
        &format!("env XWARP_TRANSPORT=ib {program} 10.77.0.1"),
    );
    assert_eq!(said, "every timewait state has ended\n");
}

#[test]
fn client_that_is_earlier_than_its_server_is_heard() {
    needs_root!();
    let hosts = Hosts::new();
    let program = compiled(&hosts, "late");
    let said = run(&hosts, &format!("{program} 10.77.0.1"));
    assert_eq!(said, "heard though it was early\n");
}

#[test]
fn connection_leaves_from_the_source_port_that_is_named() {
    needs_root!();
    let hosts = Hosts::new();
    let program = compiled(&hosts, "source_port");
    for address in ["10.77.0.1", "fd77::1"] {
        let said = run(&hosts, &format!("{program} {address}"));
        assert_eq!(said, "from the ports that were named\n");
    }
}

/// tgtd listens so.
#[test]
fn wildcards_of_both_families_are_listened_on_side_by_side() {
    needs_root!();
    let hosts = Hosts::new();
    let program = compiled(&hosts, "side_by_side");
    let mut server = serve(&hosts.b, &format!("{program} listen"));
    for round in ["round 0", "round 1"] {
        server.line(round);
        for address in ["10.77.0.2", "fd77::2"] {
            let said = run(&hosts, &format!("{program} connect {address}"));
            assert_eq!(said, "as it should be\n");
        }
    }
    finish(&hosts.b, &program, server);
}

/// Runs `connections` from host A to host B, one after another. None may be refused, or get an
/// event of another one.
fn churn(connections: u64) {
    let hosts = Hosts::new();
    let program = compiled(&hosts, "churn");
    let limit = TIMEOUT + Duration::from_millis(30) * u32::try_from(connections).expect("a number");
    let serving = format!("{program} serve {connections}");
    let server = serve(&hosts.b, &serving);
    let client = format!("{program} connect {SERVER} {connections}");
    let said = finish_within(&hosts.a, &client, start(&hosts.a, &client), limit).stdout;
    let none = format!("{connections} connections, none refused, none got an event of another");
    assert!(said.starts_with(&none), "{said}");
    println!("{said}");
    let said = finish(&hosts.b, &serving, server).stdout;
    assert_eq!(said, format!("{connections} connections have ended\n"));
}

#[test]
fn connections_that_come_and_go_get_no_end_but_their_own() {
    needs_root!();
    churn(600);
}

#[test]
#[ignore = "takes many minutes; tools/test --long runs it"]
fn million_connections_come_and_go() {
    needs_root!();
    let wanted = std::env::var("XWARP_CHURN_CONNECTIONS").ok();
    let wanted = wanted.map(|it| it.parse().expect("a number in XWARP_CHURN_CONNECTIONS"));
    churn(wanted.unwrap_or(1_000_000));
}

//! `xwarp run`: which device it names, what it passes on, and how it refuses.

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{finish, start};
use xwarp_system_tests::{Hosts, eventually};
use xwarp_test_kit::needs_root;

#[test]
fn exit_code_and_output_are_those_of_the_program() {
    needs_root!();
    let hosts = Hosts::new();
    let ended = start(&hosts.a, "false").finish().exited(1);
    let device = "xwarp: RDMA device eth1 (10.77.0.1";
    assert!(ended.stderr.starts_with(device), "{ended}");
    let said = start(&hosts.a, "echo it is here").finish().succeeded();
    assert_eq!(said.stdout, "it is here\n");
}

#[test]
fn signals_reach_the_program() {
    needs_root!();
    let hosts = Hosts::new();
    let mut sleeper = start(&hosts.a, "sleep 1000");
    eventually("the program has begun", || {
        sleeper.waits_in().contains("nanosleep")
    });
    sleeper.signal(Signal::SIGUSR1);
    sleeper.finish().killed_by(Signal::SIGUSR1);
}

/// tgtd sends itself SIGUSR2 and reads it from a signalfd: it ends if one of our threads takes it.
#[test]
fn threads_of_the_library_leave_signals_to_the_program() {
    needs_root!();
    let hosts = Hosts::new();
    let server = xwarp_dropin_tests::serve(&hosts.b, "rping -s -P");
    let ours = || {
        let mut threads = server.threads_holding_back(Signal::SIGUSR2);
        threads.retain(|(name, _)| name.starts_with("xwarp-"));
        threads.sort();
        threads
    };
    let wanted = ["xwarp-cm", "xwarp-engine", "xwarp-watch"].map(|name| (name.to_owned(), true));
    eventually("all threads hold back the signal", || ours() == wanted);
}

/// The program takes the place of the process that is guarded.
#[test]
fn offloads_are_fixed_until_the_program_ends() {
    needs_root!();
    let hosts = Hosts::new();
    let before = hosts.a.offloads();
    let mut sleeper = hosts.a.start("run --dev eth1 --fix-offloads -- sleep 1000");
    eventually("the program has begun", || {
        sleeper.waits_in().contains("nanosleep")
    });
    let during = hosts.a.offloads();
    let checksums = "tx-checksum-ip-generic";
    assert!(before.iter().any(|it| it == checksums), "{before:?}");
    assert!(!during.iter().any(|it| it == checksums), "{during:?}");
    sleeper.signal(Signal::SIGKILL);
    sleeper.finish().killed_by(Signal::SIGKILL);
    eventually("the offloads are back", || hosts.a.offloads() == before);
    let unnamed = hosts.a.xwarp("run --fix-offloads -- true");
    assert!(unnamed.exited(1).stderr.contains("name them with --dev"));
}

#[test]
fn what_cannot_be_run_is_refused_in_one_sentence() {
    needs_root!();
    let hosts = Hosts::new();
    let refused = |arguments: &str, parts: &[&str]| {
        hosts.a.xwarp(arguments).refused(parts);
    };
    refused("run --dev nope -- true", &["no interface is named", "nope"]);
    let missing = hosts.a.xwarp("run --dev eth1 -- no-such-program").exited(1);
    let said = "no program is named \"no-such-program\" here; install it";
    assert!(missing.stderr.contains(said), "{missing}");
    hosts.a.ip("link set eth1 down");
    refused(
        "run --dev eth1 -- true",
        &["eth1 is down", "ip link set eth1 up"],
    );
    refused("run -- true", &["no interface is up and has an address"]);
}

#[test]
fn counters_are_printed_when_the_program_is_done() {
    needs_root!();
    let hosts = Hosts::new();
    let server = xwarp_dropin_tests::serve(&hosts.b, "rping -s -C 5 -V");
    let client = "run --dev eth1 --stats -- rping -c -a 10.77.0.2 -C 5 -V";
    let told = hosts.a.xwarp(client).succeeded();
    for name in ["fpdus_in", "fpdus_out", "placed_bytes"] {
        assert!(told.stderr.contains(name), "{told}");
    }
    finish(&hosts.b, "rping", server);
}

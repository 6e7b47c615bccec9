//! Programs that are ended in the middle: the other end learns of it, and nothing is left behind.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{SERVER, compile, left_nothing, serve, start};
use xwarp_system_tests::{Hosts, eventually};
use xwarp_test_kit::needs_root;

/// Ends one end of a pair of programs that would go on for longer than a test may last. Before,
/// both have seen a message that came back whole.
fn end_one(hosts: &Hosts, server: &str, client: &str, signal: Signal, server_first: bool) {
    let mut server_end = serve(&hosts.b, server);
    let mut client_end = start(&hosts.a, client);
    server_end.line("server ping data: rdma-ping-0");
    client_end.line("ping data: rdma-ping-0");
    let (first, second) = if server_first {
        (&mut server_end, &mut client_end)
    } else {
        (&mut client_end, &mut server_end)
    };
    assert!(!second.has_ended(), "{client} is still running");
    first.signal(signal);
    eventually("the other end has ended", || second.has_ended());
    drop((server_end, client_end));
    left_nothing(&hosts.a, client);
    left_nothing(&hosts.b, server);
}

/// The moment matters: a server whose client goes before it has asked waits for the next, as it
/// should. A shell has what it starts in the background ignore SIGINT, and these tests' programs
/// would inherit that.
#[test]
fn rping_ends_when_its_peer_is_ended() {
    needs_root!();
    let rping = "env --default-signal=INT,TERM rping";
    let server = format!("{rping} -s -V -v");
    let client = format!("{rping} -c -V -v -a {SERVER}");
    let hosts = Hosts::new();
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
        for server_first in [true, false] {
            end_one(&hosts, &server, &client, signal, server_first);
        }
    }
}

/// A peer that is silent for 3 s is asked whether it lives. The rest is time for a busy machine.
const TOLD_WITHIN: Duration = Duration::from_secs(6);

/// A child that was forked without executing a program has no use for what it inherits.
#[test]
fn peer_and_next_program_learn_of_an_end_that_a_child_outlives() {
    needs_root!();
    let hosts = Hosts::new();
    let libraries = ["-lrdmacm", "-libverbs"];
    let program = compile("cc", "orphan", &libraries, &hosts.work);
    for how in ["exit", "kill"] {
        let child_may_end = hosts.work.file(how);
        let mut server = serve(&hosts.b, &format!("{program} serve"));
        let arguments = format!("connect {SERVER} {how} {}", child_may_end.display());
        let mut client = start(&hosts.a, &format!("{program} {arguments}"));
        eventually("the client has ended", || client.has_ended());
        let ended = Instant::now();
        eventually("the peer has ended", || server.has_ended());
        let told = ended.elapsed();
        server.finish().succeeded();
        assert!(told < TOLD_WITHIN, "{how}: {told:?}");
        // Its child has the processor alone, and not the interface.
        assert_eq!(hosts.a.processes(), 1, "{how}");
        let mut next = serve(&hosts.a, "rping -s");
        next.signal(Signal::SIGTERM);
        next.finish().killed_by(Signal::SIGTERM);
        fs::write(child_may_end, "").expect("a file");
        left_nothing(&hosts.a, &program);
    }
}

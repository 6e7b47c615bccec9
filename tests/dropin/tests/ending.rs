//! Programs that are ended in the middle: the other end learns of it, and nothing is left behind.

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{SERVER, left_nothing, serve, start};
use xwarp_system_tests::{Hosts, eventually};
use xwarp_test_kit::needs_root;

/// Ends one end of a pair of programs that would go on for longer than a test may last. Before, both have seen a message that came back whole.
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

/// The moment matters: a server whose client goes before it has asked waits for the next, as it should. A shell has what it starts in the background
/// ignore SIGINT, and these tests' programs would inherit that.
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

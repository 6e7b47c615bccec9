//! Programs that are ended in the middle: the other end learns of it, and nothing is left behind.

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{SERVER, left_nothing, serve, start};
use xwarp_system_tests::{Hosts, eventually};
use xwarp_test_kit::needs_root;

/// Ends one end of a pair of programs that would go on for longer than a test may last.
fn end_one(hosts: &Hosts, server: &str, client: &str, signal: Signal, server_first: bool) {
    let mut server_end = serve(&hosts.b, server);
    let mut client_end = start(&hosts.a, client);
    let before = hosts.b.frames_received();
    eventually("frames go to and fro", || {
        hosts.b.frames_received() > before + 50
    });
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

#[test]
#[ignore = "one of some 140 ends did not come within 20 s, and nobody knows why yet; tools/test --long runs it"]
fn rping_ends_when_its_peer_is_ended() {
    needs_root!();
    let (server, client) = ("rping -s -V", format!("rping -c -V -a {SERVER}"));
    let hosts = Hosts::new();
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
        for server_first in [true, false] {
            end_one(&hosts, server, &client, signal, server_first);
        }
    }
}

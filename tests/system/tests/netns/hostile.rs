//! A hostile peer ends no server, makes no client wait for ever, and gets no control characters
//! onto a terminal.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use xwarp_system_tests::{DEV, Hosts, PERF_PORT, Running, TIMEOUT, eventually};
use xwarp_test_kit::needs_root;

use crate::start_up::{acceptance, connect, is_rejection, read_frame, rejection, serve};

const PING_PORT: u16 = 7174;
/// A test with one message of 64 bytes at a time, unverified; the client's memory is at Tagged
/// Offset 0.
const HELLO: [u8; 44] = [
    b'X', b'W', b'P', b'F', 1, 0, 0, 0, // version 1, write-bw, not verified
    0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 1, // size, slots, depth
    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, // buffer: STag, TO
    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, // control: STag, TO
];
/// What a server answers: its memory, as in the second half of a hello.
const PLACES: &[u8] = &[
    0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, //
    0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// The hello with some bytes changed.
fn hello(changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = HELLO.to_vec();
    for (at, change) in changes {
        bytes[*at..at + change.len()].copy_from_slice(change);
    }
    bytes
}

/// Closes with a reset.
fn reset(peer: TcpStream) {
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&peer, sockopt::Linger, &linger).unwrap();
    drop(peer);
}

fn start(hosts: &Hosts, arguments: &str) -> Running {
    hosts.a.compute_checksums();
    let mut server = hosts.b.start(&format!("{arguments} --dev {DEV}"));
    server.line("waiting for a client at ");
    server
}

/// The server still serves an honest client.
fn serves_a_test(hosts: &Hosts, mut server: Running) {
    server.still_runs();
    let client = hosts.a.xwarp("perf write-bw --iterations 10 10.77.0.2");
    client.succeeded();
    server.finish().succeeded();
    assert_eq!(hosts.b.program(), None);
}

#[test]
fn clients_that_go_before_they_have_begun_do_not_end_a_server() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = start(&hosts, "perf write-bw");
    for private_data in [&b"garbage"[..], b"", &HELLO] {
        for _ in 0..5 {
            reset(connect(&hosts, PERF_PORT, private_data));
        }
    }
    // The last one is accepted before it goes.
    let mut peer = connect(&hosts, PERF_PORT, &HELLO);
    let (flags, _) = read_frame(&mut peer);
    assert!(!is_rejection(flags));
    reset(peer);
    server.line("client 10.77.0.1");
    eventually("it is said", || {
        server.complained().contains("has not begun its test")
    });
    serves_a_test(&hosts, server);
}

#[test]
fn client_that_accepts_and_closes_in_order_does_not_end_a_server_either() {
    needs_root!();
    let hosts = Hosts::new();
    let server = start(&hosts, "perf write-bw");
    let mut peer = connect(&hosts, PERF_PORT, &HELLO);
    read_frame(&mut peer);
    peer.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    // It ends, in whatever way.
    let _ = peer.read_to_end(&mut rest);
    serves_a_test(&hosts, server);
}

#[test]
fn what_cannot_be_meant_is_rejected_at_once_and_in_plain_text() {
    needs_root!();
    let hosts = Hosts::new();
    let server = start(&hosts, "perf write-bw --size 1M --depth 64 --verify");
    for (what, changes) in [
        (
            "write-lat without a byte",
            &[(5, &[0x10][..]), (8, &[0; 4])][..],
        ),
        ("2^32 - 1 slots", &[(8, &[0; 4]), (12, &[0xff; 4])]),
        ("a record that leaves 2^64", &[(36, &[0xff; 8])]),
        ("a depth of 2^32 - 1", &[(16, &[0xff; 4])]),
    ] {
        let mut peer = connect(&hosts, PERF_PORT, &hello(changes));
        let (flags, said) = read_frame(&mut peer);
        assert!(is_rejection(flags), "{what}");
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("an impossible test"), "{what}: {said}");
    }
    serves_a_test(&hosts, server);
}

#[test]
fn client_that_says_nothing_makes_room_for_the_next_one() {
    needs_root!();
    let hosts = Hosts::new();
    // The next one waits for 5 s at most.
    let server = start(&hosts, "perf write-bw");
    let mut silent = connect(&hosts, PERF_PORT, &HELLO);
    read_frame(&mut silent);
    serves_a_test(&hosts, server);
    let mut server = start(&hosts, "ping --persistent --quiet");
    for _ in 0..2 {
        let mut silent = connect(&hosts, PING_PORT, b"");
        read_frame(&mut silent);
        let ping = hosts.a.xwarp("ping 10.77.0.2 --count 2");
        ping.succeeded();
    }
    server.still_runs();
    let told = server.complained();
    let said = "silent for 3 s, while another client waits";
    assert_eq!(told.matches(said).count(), 2, "{told}");
}

/// No other client waits, so this one may be silent for longer than a turn.
#[test]
fn slow_client_keeps_its_server_while_it_is_the_only_one() {
    needs_root!();
    let hosts = Hosts::new();
    let server = start(&hosts, "ping");
    let client = hosts.a.xwarp("ping 10.77.0.2 --count 2 --interval 4s");
    client.succeeded();
    server.finish().succeeded();
}

#[test]
fn client_that_closes_without_a_ping_leaves_the_server_to_the_next_one() {
    needs_root!();
    let hosts = Hosts::new();
    let server = start(&hosts, "ping");
    let mut peer = connect(&hosts, PING_PORT, b"");
    read_frame(&mut peer);
    reset(peer);
    hosts.a.xwarp("ping 10.77.0.2 --count 1").succeeded();
    server.finish().succeeded();
}

const ESCAPES: &[u8] =
    b"\x1b]0;OWNED\x07\x1b[2J\x1b[31mYour account\xe2\x80\xae was locked\x9b0m\r\n";

#[test]
fn what_a_hostile_server_says_draws_nothing_on_the_terminal() {
    needs_root!();
    let hosts = Hosts::new();
    for command in ["perf write-bw", "ping"] {
        let server = serve(&hosts, 4791, rejection(ESCAPES), drop);
        let client = hosts.a.xwarp(&format!("{command} --port 4791 10.77.0.2"));
        server.join().unwrap();
        let line = client.refused(&["10.77.0.2:4791"]);
        let is_plain = |c: char| matches!(c, ' '..='~' | '\u{fffd}');
        assert!(line.chars().all(is_plain), "{line:?}");
        assert_eq!(line.contains("Your account"), command == "perf write-bw");
    }
}

#[test]
fn places_that_leave_2_to_the_64_are_no_perf_servers() {
    needs_root!();
    let hosts = Hosts::new();
    let near_the_end = [&[0, 0, 0, 7][..], &[0xff; 8], &[0, 0, 0, 9], &[0xff; 8]].concat();
    for places in [near_the_end, vec![7]] {
        let server = serve(&hosts, PERF_PORT, acceptance(&places), drop);
        let client = hosts.a.xwarp("perf write-bw --verify 10.77.0.2");
        client.refused(&["the listener at 10.77.0.2:18515 is no xwarp perf server"]);
        server.join().unwrap();
    }
}

/// A server that takes what comes and answers nothing, until the client has gone.
fn swallow(mut peer: TcpStream) {
    // A reset is an end as well.
    let _ = std::io::copy(&mut peer, &mut std::io::sink());
}

/// A server that takes nothing: its window closes. It ends with the test that drops the other end.
fn ignore(peer: TcpStream) -> TcpStream {
    peer
}

#[test]
fn duration_is_kept_whatever_the_server_does() {
    needs_root!();
    let hosts = Hosts::new();
    for (test, size) in [
        ("write-bw", "64K"),
        ("read-bw", "64K"),
        ("send-lat", "64"),
        ("write-lat", "64"),
    ] {
        let run = format!("perf {test} --size {size} --duration 1s 10.77.0.2");
        let words = ["--duration is over by 5 s", "has not answered all"];
        let began = Instant::now();
        let server = serve(&hosts, PERF_PORT, acceptance(PLACES), swallow);
        hosts.a.xwarp(&run).refused(&words);
        server.join().unwrap();
        // The answers are waited for. A run that did not keep its duration would have no end, and
        // fail after `TIMEOUT`.
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(5), "{test}: {took:?}");
    }
    let server = serve(&hosts, PERF_PORT, acceptance(PLACES), ignore);
    let client = hosts.a.start("perf write-bw --duration 1s 10.77.0.2");
    let peer = server.join().unwrap();
    client
        .finish_within(TIMEOUT)
        .refused(&["--duration is over by 5 s"]);
    drop(peer);
    assert_eq!(hosts.a.program(), None);
}

#[test]
fn server_that_answers_nothing_is_given_up() {
    needs_root!();
    let hosts = Hosts::new();
    for run in ["ping --count 1", "perf write-lat --iterations 5"] {
        let server = serve(&hosts, 4791, acceptance(PLACES), swallow);
        let client = hosts.a.xwarp(&format!("{run} --port 4791 10.77.0.2"));
        client.refused(&["has neither sent nor accepted data for 10 s"]);
        server.join().unwrap();
    }
}

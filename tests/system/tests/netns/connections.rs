//! A test of `xwarp perf` over several connections: all are one client's, and come in time.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use xwarp_system_tests::{Case, DEV, Hosts, Mode, PERF_PORT, Setup, TIMEOUT, Way, eventually};
use xwarp_test_kit::needs_root;

use crate::start_up::{connect, is_rejection, read_frame, request};

/// A write-bw over 8 connections, of a run with a number of its own; the client's memory is at
/// Tagged Offset 0.
const PROMISE: [u8; 52] = [
    b'X', b'W', b'P', b'F', 2, 0, 0,
    7, // version 2, write-bw, not verified, 7 beside the first
    0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 1, // size, slots, depth
    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, // buffer: STag, TO
    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, // control: STag, TO
    1, 2, 3, 4, 5, 6, 7, 8, // run
];

#[test]
fn data_of_all_connections_arrives() {
    needs_root!();
    let hosts = Hosts::new();
    for (way, mode) in [
        (Way::Itself, Mode::Native),
        (Way::Itself, Mode::Generic),
        (Way::IpLink, Mode::Native),
    ] {
        let setup = Setup::new(&hosts, way, mode);
        for test in ["write-bw", "read-bw", "send-bw"] {
            for (qps, size, messages, depth) in [
                (2, 64 << 10, 30, 4),
                (8, 16 << 10, 37, 2),
                (8, 64, 1000, 1),
                (64, 64, 100, 16),
            ] {
                setup.measure(&Case {
                    qps,
                    size,
                    messages,
                    depth,
                    ..Case::new(test)
                });
            }
        }
    }
}

#[test]
fn connections_end_with_the_duration() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for test in ["write-bw", "read-bw", "send-bw"] {
        let (server, client) = setup.begin(&Case {
            qps: 8,
            client: "--duration 200ms".to_owned(),
            ..Case::new(test)
        });
        let printed = client.finish().succeeded().stdout;
        assert!(printed.contains(&format!("{test}  RC  8 QPs  depth 16")));
        assert!(printed.contains("every byte as sent"), "{printed}");
        let said = server.finish().succeeded().stdout;
        assert!(said.contains("  8 QPs  "), "{said}");
        setup.check_as_found();
    }
}

#[test]
fn server_with_too_little_room_says_what_to_change() {
    needs_root!();
    let hosts = Hosts::new();
    let server = hosts.b.serve("write-bw --size 4K --depth 8");
    let client = "perf write-bw --size 4K --depth 8 --verify --qps 8 10.77.0.2";
    hosts.a.xwarp(client).refused(&[
        "room for buffers of 32768 bytes, not 262144",
        "the same --size, --depth and --qps",
    ]);
    drop(server);
}

/// Makes `count` of the promised connections. The server accepts each.
fn connect_some(hosts: &Hosts, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut peer = connect(hosts, PERF_PORT, &PROMISE);
        let (flags, _) = read_frame(&mut peer);
        assert!(!is_rejection(flags));
        peer
    };
    (0..count).map(connect).collect()
}

/// Reason that a server which waits for further connections gives when it rejects another client.
const BUSY: &str = "this server is busy with another client";

#[test]
fn client_that_connects_fewer_than_promised_makes_room_for_the_next_one() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.a.compute_checksums();
    let mut server = hosts.b.start(&format!("perf write-bw --dev {DEV}"));
    server.line("waiting for a client at ");
    let peers = connect_some(&hosts, 3);
    let since = Instant::now();
    let client = "perf write-bw --iterations 10 --qps 3 10.77.0.2";
    hosts.a.xwarp(client).refused(&["refused the test", BUSY]);
    eventually("it is said", || {
        let said = "it wants 8 QPs, but after 3 of them it has not connected another one for 3 s";
        server.complained().contains(said)
    });
    assert!(since.elapsed() < TIMEOUT);
    server.still_runs();
    hosts.a.xwarp(client).succeeded();
    server.finish().succeeded();
    assert_eq!(hosts.b.program(), None);
    drop(peers);
}

/// The run's number is no secret to those who guess it, but the address is the client's.
#[test]
fn further_connection_of_another_host_is_turned_away() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.a.compute_checksums();
    let mut server = hosts.b.start(&format!("perf write-bw --dev {DEV}"));
    server.line("waiting for a client at ");
    let peers = connect_some(&hosts, 1);
    let other = SocketAddr::new("fd77::2".parse().unwrap(), PERF_PORT);
    let connected = hosts.a.run(|| TcpStream::connect_timeout(&other, TIMEOUT));
    let mut other = connected.expect("the RNIC answers");
    other.write_all(&request(&PROMISE)).unwrap();
    let (flags, said) = read_frame(&mut other);
    assert!(is_rejection(flags));
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(BUSY), "{said}");
    server.still_runs();
    drop((peers, other));
}

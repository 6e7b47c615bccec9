//! A connection that cannot be made, or not to what was expected, says so in one sentence and in
//! time.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{Hosts, PERF_PORT, TIMEOUT};
use xwarp_test_kit::needs_root;

/// What `xwarp perf` allows for a connection, and a little for its start and end.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(7);

/// The client on host A must fail with these words, within the time for a connection, and leave
/// nothing attached.
fn client_fails(hosts: &Hosts, arguments: &str, words: &[&str]) -> String {
    let client = hosts
        .a
        .start(&format!("perf {arguments}"))
        .finish_within(CONNECT_TIMEOUT);
    let line = client.refused(words);
    assert_eq!(hosts.a.program(), None);
    line
}

#[test]
fn address_without_a_host_is_told() {
    needs_root!();
    let hosts = Hosts::new();
    client_fails(
        &hosts,
        "write-bw 10.77.0.9",
        &["no host answers at 10.77.0.9 on eth1 (ARP)"],
    );
    client_fails(
        &hosts,
        "write-bw fd77::9",
        &["no host answers at fd77::9 on eth1 (NDP)"],
    );
    client_fails(&hosts, "write-bw 192.0.2.1", &["no route to 192.0.2.1"]);
    for own in ["10.77.0.1", "fd77::1", "127.0.0.1"] {
        client_fails(
            &hosts,
            &format!("write-bw {own}"),
            &[own, "an address of this host itself"],
        );
    }
    // On a named interface, it connects to itself.
    let words = ["connection refused: no program listens at 10.77.0.1:18515"];
    client_fails(&hosts, "write-bw --dev eth1 10.77.0.1", &words);
    client_fails(
        &hosts,
        "write-bw 10.77.0.255",
        &["10.77.0.255 is a broadcast address"],
    );
    client_fails(
        &hosts,
        "write-bw 224.0.0.1",
        &["224.0.0.1 is a multicast address"],
    );
    client_fails(
        &hosts,
        "write-bw 0.0.0.0",
        &["0.0.0.0 is no host's address"],
    );
}

#[test]
fn host_where_nobody_listens_is_told() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.compute_checksums();
    let words = ["connection refused: no program listens at 10.77.0.2:18515"];
    client_fails(&hosts, "write-bw 10.77.0.2", &words);
    let server = hosts.b.serve("write-bw");
    let words = ["connection refused: no program listens at 10.77.0.2:18516"];
    client_fails(&hosts, "write-bw --port 18516 10.77.0.2", &words);
    drop(server);
}

/// A kernel TCP server on host B that takes one connection, says `text` and waits until the peer
/// has gone.
fn tcp_server(hosts: &Hosts, text: &'static [u8]) -> JoinHandle<()> {
    hosts.b.compute_checksums();
    let listener = hosts
        .b
        .run(|| TcpListener::bind(("10.77.0.2", PERF_PORT)))
        .unwrap();
    thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        peer.write_all(text).unwrap();
        let mut bytes = Vec::new();
        // The client resets the connection, which is an error here, or closes it.
        let _ = peer.read_to_end(&mut bytes);
        assert!(bytes.starts_with(b"MPA ID Req Frame"), "{bytes:?}");
    })
}

#[test]
fn server_that_speaks_http_is_told() {
    needs_root!();
    let hosts = Hosts::new();
    let server = tcp_server(
        &hosts,
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    );
    let line = client_fails(
        &hosts,
        "write-bw 10.77.0.2",
        &["10.77.0.2:18515 does not speak iWARP"],
    );
    assert_eq!(line.matches("wrong key").count(), 1, "{line}");
    server.join().unwrap();
}

#[test]
fn server_that_stays_silent_is_told() {
    needs_root!();
    let hosts = Hosts::new();
    let server = tcp_server(&hosts, b"");
    let words = [
        "10.77.0.2:18515 did not complete the connection within 5",
        "no MPA Reply came",
    ];
    client_fails(&hosts, "write-bw 10.77.0.2", &words);
    server.join().unwrap();
}

#[test]
fn server_that_hangs_up_is_told() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.compute_checksums();
    let listener = hosts
        .b
        .run(|| TcpListener::bind(("10.77.0.2", PERF_PORT)))
        .unwrap();
    let server = thread::spawn(move || drop(listener.accept().unwrap()));
    client_fails(
        &hosts,
        "write-bw 10.77.0.2",
        &["10.77.0.2:18515 closed the connection", "iWARP"],
    );
    server.join().unwrap();
}

#[test]
fn server_of_another_test_turns_the_client_away_and_waits_for_the_next() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = hosts.b.serve("write-bw --size 4K --depth 8 --verify");
    let words = [
        "10.77.0.2:18515 refused the test",
        "this server runs write-bw, not read-bw",
    ];
    client_fails(&hosts, "read-bw --size 4K --depth 8 10.77.0.2", &words);
    let words = [
        "refused the test",
        "room for buffers of",
        "the same --size, --depth and --qps",
    ];
    client_fails(&hosts, "write-bw --size 1M 10.77.0.2", &words);
    server.still_runs();
    hosts
        .a
        .xwarp("perf write-bw --size 4K --depth 8 --verify --iterations 100 10.77.0.2")
        .succeeded();
    server.finish().succeeded();
}

/// A peer that is no xwarp at all does not end the server.
#[test]
fn server_survives_strangers() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.a.compute_checksums();
    let mut server = hosts.b.serve("write-bw --verify");
    for text in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0", b""] {
        let connect =
            || std::net::TcpStream::connect_timeout(&(Hosts::SERVER, PERF_PORT).into(), TIMEOUT);
        let mut stranger = hosts
            .a
            .run(connect)
            .expect("the RNIC answers, and not the kernel");
        stranger.write_all(text).unwrap();
        if text.len() > 1 {
            stranger.set_read_timeout(Some(TIMEOUT)).unwrap();
            let answer = stranger.read(&mut [0; 64]);
            assert!(
                matches!(answer, Ok(0))
                    || answer.is_err_and(|error| error.raw_os_error() == Some(104))
            );
        }
    }
    server.still_runs();
    hosts
        .a
        .xwarp("perf write-bw --verify --iterations 100 10.77.0.2")
        .succeeded();
    server.finish().succeeded();
}

#[test]
fn server_that_is_never_asked_ends_on_request() {
    needs_root!();
    let hosts = Hosts::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut server = hosts.b.serve("write-bw");
        server.signal(signal);
        server
            .finish_within(Duration::from_secs(2))
            .interrupted_by(signal);
        assert_eq!(hosts.b.program(), None);
    }
}

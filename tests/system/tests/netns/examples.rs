//! The library's examples, as their documentation says to run them.

use std::net::SocketAddr;

use nix::sys::signal::Signal;
use xwarp::error::ConnectError;
use xwarp::{CompletionQueue, ProtectionDomain, QpConfig, QpState, QueuePair, Rnic, RnicConfig};
use xwarp_system_tests::{DEV, Finished, Host, Hosts, Running, TIMEOUT, eventually};
use xwarp_test_kit::needs_root;

fn start(host: &Host, name: &str, arguments: &str) -> Running {
    let mut command = host.command(Hosts::example_file(name));
    command.args(["--dev", DEV]);
    command.args(arguments.split_whitespace());
    Running::start(command)
}

fn run(host: &Host, name: &str, arguments: &str) -> Finished {
    start(host, name, arguments).finish()
}

/// Clients of an example's server that are this process's own.
struct Clients<'a> {
    host: &'a Host,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// Last: what is built on it goes before.
    _rnic: Rnic,
}

impl<'a> Clients<'a> {
    fn new(hosts: &'a Hosts) -> Self {
        let host = &hosts.a;
        let rnic = host.run(|| Rnic::open(DEV, &RnicConfig::default()));
        let rnic = rnic.expect("an RNIC");
        Self {
            host,
            pd: rnic.allocate_pd().expect("a protection domain"),
            cq: rnic.create_cq(16).expect("a queue"),
            _rnic: rnic,
        }
    }

    fn connect(&self, port: u16) -> Result<QueuePair, ConnectError> {
        let qp = self.pd.create_qp(&QpConfig::default(), &self.cq, &self.cq);
        let mut qp = qp.expect("a queue pair");
        let at = SocketAddr::new(Hosts::SERVER, port);
        self.host.run(|| qp.connect(at, b"", TIMEOUT)).map(|_| qp)
    }
}

/// Fails unless it ended with exactly this one line of complaint.
fn refused(finished: Finished, line: &str) {
    let finished = finished.exited(1);
    assert_eq!(finished.stderr, format!("{line}\n"), "{finished}");
}

fn check_nothing_attached(hosts: &Hosts) {
    assert_eq!((hosts.a.program(), hosts.b.program()), (None, None));
}

#[test]
fn ping_pong_measures_and_compares() {
    needs_root!();
    let hosts = Hosts::new();
    for size in [1, 64, 100_000] {
        let options = format!("--size {size} --count 200");
        let mut server = start(&hosts.b, "ping_pong", &options);
        assert_eq!(
            server.line("waiting for a client at "),
            "waiting for a client at 10.77.0.2:7471"
        );
        let client = run(&hosts.a, "ping_pong", &format!("{options} 10.77.0.2")).succeeded();
        let lines: Vec<&str> = client.stdout.lines().collect();
        let said = format!("200 messages of {size} bytes, all as they were sent");
        assert!(
            lines[0].starts_with("there and back [us]: min ") && lines[1..] == [said],
            "{client}"
        );
        let server = server.finish().succeeded();
        assert!(
            server.stdout.ends_with("\n200 messages sent back\n"),
            "{server}"
        );
    }
    check_nothing_attached(&hosts);
}

#[test]
fn tokio_echo_serves_clients_in_tasks_of_one_thread() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = start(&hosts.b, "tokio_echo", "--clients 3");
    assert_eq!(
        server.line("waiting for clients at "),
        "waiting for clients at 10.77.0.2:7474"
    );
    for words in ["one two three", "four", "five six"] {
        let options = format!("--server 10.77.0.2 {words}");
        let client = run(&hosts.a, "tokio_echo", &options).succeeded();
        let answers = words.split(' ');
        let answers = answers.map(|word| format!("{word} -> {}\n", word.to_uppercase()));
        assert_eq!(client.stdout, answers.collect::<String>(), "{client}");
    }
    let server = server.finish().succeeded();
    let told: Vec<_> = server.stdout.lines().skip(1).collect();
    assert_eq!(told.last(), Some(&"3 clients served"), "{server}");
    for (line, messages) in told.iter().zip([3, 1, 2]) {
        assert!(
            line.ends_with(&format!(": {messages} messages")),
            "{server}"
        );
    }
    let refused_server = run(&hosts.a, "tokio_echo", "--server 10.77.0.2 late");
    refused(
        refused_server,
        "tokio_echo: connection refused: no program listens at 10.77.0.2:7474",
    );
    check_nothing_attached(&hosts);
}

/// What a line of the client says of its server.
fn uptime(line: &str) -> Option<u64> {
    let micros = line.strip_prefix("uptime = ")?.strip_suffix(" us")?;
    micros.parse().ok()
}

#[test]
fn key_value_finds_what_is_there_and_what_is_being_renewed() {
    needs_root!();
    let hosts = Hosts::new();
    // 400 keys in 1024 slots: many are not in the first slot that their hash says.
    let entry = |number: u32| format!("--put key{number}=value{}", number * 7);
    let entries: Vec<String> = (0..400).map(entry).collect();
    let mut server = start(&hosts.b, "key_value", &entries.join(" "));
    assert_eq!(
        server.line("serving "),
        "serving 400 keys at 10.77.0.2:7472"
    );
    let keys: Vec<String> = (0..400).map(|number| format!("key{number}")).collect();
    let look_up = format!("--server 10.77.0.2 {}", keys.join(" "));
    let client = run(&hosts.a, "key_value", &look_up).succeeded();
    let values = (0..400).map(|number| format!("key{number} = value{}\n", number * 7));
    let expected: String = values
        .chain(["0 Reads were torn and done again\n".to_owned()])
        .collect();
    assert_eq!(client.stdout, expected, "{client}");

    let often = "--server 10.77.0.2 --times 2000 uptime";
    let client = run(&hosts.a, "key_value", often).succeeded();
    let times: Vec<u64> = client.stdout.lines().filter_map(uptime).collect();
    assert_eq!(times.len(), 2000, "{client}");
    assert!(times.is_sorted() && times[0] < times[1999], "{times:?}");

    refused(
        run(&hosts.a, "key_value", "--server 10.77.0.2 nothing"),
        "key_value: the server has no key \"nothing\"",
    );
    server.still_runs();
    // Not SIGINT, which is ignored by what a shell runs in the background.
    server.signal(Signal::SIGTERM);
    server.finish().killed_by(Signal::SIGTERM);
    check_nothing_attached(&hosts);
}

#[test]
fn journal_prints_short_and_long_lines_in_order() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = start(&hosts.b, "journal", "");
    assert_eq!(
        server.line("waiting for a client at "),
        "waiting for a client at 10.77.0.2:7475"
    );
    // Inline, the longest such, the shortest list of two elements, and the longest line.
    let lines: Vec<String> = [1, 62, 63, 1022].map(|len| "x".repeat(len)).into();
    let options = format!("--server 10.77.0.2 --times 500 {}", lines.join(" "));
    let client = run(&hosts.a, "journal", &options).succeeded();
    assert_eq!(client.stdout, "2000 lines sent\n", "{client}");
    let server = server.finish().succeeded();
    let printed: Vec<&str> = server.stdout.lines().skip(1).collect();
    let (last, printed) = printed.split_last().expect("lines");
    assert_eq!(*last, "2000 lines received");
    let sent: Vec<String> = lines.iter().map(|line| format!("> {line}")).collect();
    assert_eq!(printed.len(), 2000);
    assert!(printed.iter().zip(sent.iter().cycle()).all(|(a, b)| a == b));

    let long = format!("--server 10.77.0.2 {}", "x".repeat(1023));
    refused(
        run(&hosts.a, "journal", &long),
        "journal: a line has at most 1024 bytes with its mark",
    );
    check_nothing_attached(&hosts);
}

#[test]
fn event_server_serves_clients_and_sees_how_they_go() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = start(&hosts.b, "event_server", "--clients 4");
    assert_eq!(
        server.line("waiting for clients at "),
        "waiting for clients at 10.77.0.2:7473"
    );
    for words in [&["one", "two", "three"][..], &["four"], &["five", "six"]] {
        let ask = format!("--server 10.77.0.2 {}", words.join(" "));
        let client = run(&hosts.a, "event_server", &ask).succeeded();
        let answers = words
            .iter()
            .map(|word| format!("{word} -> {}\n", word.to_uppercase()));
        assert_eq!(client.stdout, answers.collect::<String>(), "{client}");
    }
    // Longer than the server's buffers.
    refused(
        run(&hosts.a, "ping_pong", "--port 7473 --size 65 10.77.0.2"),
        "ping_pong: message 0 failed: Receive: flushed: the connection ended first",
    );
    let server = server.finish().succeeded();
    for said in [
        ": 3 messages, closed\n",
        ": 1 messages, closed\n",
        ": 2 messages, closed\n",
        ": 0 messages, Receive: a local buffer leaves its region or was too short\n",
    ] {
        assert!(server.stdout.contains(said), "{said:?} in {server}");
    }
    assert!(
        server.stdout.contains("\n4 clients served, woken "),
        "{server}"
    );
    check_nothing_attached(&hosts);
}

/// A client beyond the limit is rejected. Connected clients are served as before.
#[test]
fn event_server_rejects_whom_it_has_no_room_for_and_keeps_the_others() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = start(&hosts.b, "event_server", "--at-once 2 --clients 3");
    server.line("waiting for clients at ");
    let clients = Clients::new(&hosts);
    let connect = || clients.connect(7473);
    let (first, mut second) = (connect().expect("room"), connect().expect("room"));
    for _ in 0..3 {
        let refused = connect().map(|_| ()).expect_err("no room");
        assert!(
            matches!(refused, ConnectError::Rejected { .. }),
            "{refused:?}"
        );
    }
    let states = (first.state(), second.state());
    assert_eq!(states, (QpState::Rts, QpState::Rts));
    second.disconnect(TIMEOUT).expect("a close");
    // The server looks after who has gone when it next wakes up.
    eventually("it has gone", || {
        server.printed().contains(" messages, closed")
    });
    let third = connect().expect("room again");
    drop((first, third));
    let server = server.finish().succeeded();
    let refused = "could not be accepted: 2 clients are here already\n";
    assert_eq!(server.stdout.matches(refused).count(), 3, "{server}");
    assert!(server.stdout.contains("\n3 clients served"), "{server}");
}

/// The server waits for a closing connection's end by a descriptor. None is left for these
/// connections.
#[test]
fn event_server_without_descriptors_lets_go_of_its_clients_all_the_same() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = start(&hosts.b, "event_server", "--clients 3");
    server.line("waiting for clients at ");
    let clients = Clients::new(&hosts);
    let mut first = [(); 2].map(|()| clients.connect(7473).expect("room"));
    server.limit_files();
    for client in &mut first {
        client.disconnect(TIMEOUT).expect("a server that lives");
    }
    let mut third = clients.connect(7473).expect("a server that lives");
    third.disconnect(TIMEOUT).expect("a server that lives");
    let server = server.finish().succeeded();
    let closed = server.stdout.matches(" messages, closed").count();
    assert_eq!(closed, 3, "{server}");
}

#[test]
fn example_says_in_one_sentence_why_it_cannot() {
    needs_root!();
    let hosts = Hosts::new();
    for (name, arguments) in [
        ("ping_pong", "10.77.0.2"),
        ("key_value", "--server 10.77.0.2 color"),
        ("event_server", "--server 10.77.0.2 word"),
        ("journal", "--server 10.77.0.2 line"),
    ] {
        let finished = run(&hosts.a, name, arguments).exited(1);
        let beginning = format!("{name}: ");
        assert!(
            finished.stderr.starts_with(&beginning) && finished.stderr.lines().count() == 1,
            "{finished}"
        );
    }
    check_nothing_attached(&hosts);
}

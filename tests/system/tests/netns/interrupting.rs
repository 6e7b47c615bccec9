//! Ctrl-C and SIGTERM are heard in every phase of a run, which then says that it was interrupted and leaves nothing behind.

use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{
    DEV, Host, Hosts, Mode, PERF_PORT, Running, Setup, TIMEOUT, Way, eventually,
};
use xwarp_test_kit::needs_root;

/// How long the end may take: a few hundredths of a second on an idle machine. All that is waited for here takes longer.
const END_LIMIT: Duration = Duration::from_millis(1500);
/// The same where gigabytes have to be given back to the kernel.
const LARGE_END_LIMIT: Duration = Duration::from_secs(4);
/// An address of the network where a neighbour is known and nobody answers.
const NOBODY: &str = "10.77.0.66";

/// Each phase, for either signal: `begin` starts a run and returns when it is in that phase.
fn is_interrupted(hosts: &Hosts, host: &Host, begin: impl Fn() -> Running) {
    is_interrupted_within(END_LIMIT, hosts, host, begin);
}

fn is_interrupted_within(limit: Duration, hosts: &Hosts, host: &Host, begin: impl Fn() -> Running) {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut run = begin();
        run.signal(signal);
        run.finish_within(limit).refused(&["interrupted"]);
        assert_eq!(host.program(), None);
    }
    assert_eq!((hosts.a.program(), hosts.b.program()), (None, None));
}

/// Has packets to [`NOBODY`] leave.
fn know_nobody(hosts: &Hosts) {
    hosts.a.ip(&format!(
        "neigh replace {NOBODY} lladdr 02:00:00:00:00:66 nud permanent dev {DEV}"
    ));
}

/// Waits until a connection is being made.
fn steers(host: &Host) {
    eventually("a port is steered", || {
        host.program().is_some_and(|program| program.flows() > 0)
    });
}

#[test]
fn while_a_neighbour_is_looked_for() {
    needs_root!();
    let hosts = Hosts::new();
    for command in ["perf write-bw", "ping"] {
        is_interrupted(&hosts, &hosts.a, || {
            hosts.a.ip(&format!("neigh flush dev {DEV}"));
            let run = hosts.a.start(&format!("{command} 10.77.0.9"));
            eventually("the kernel asks", || {
                hosts.a.ip("neigh show 10.77.0.9").contains("INCOMPLETE")
            });
            run
        });
    }
}

#[test]
fn while_no_syn_is_answered() {
    needs_root!();
    let hosts = Hosts::new();
    know_nobody(&hosts);
    for engine in ["inline", "thread"] {
        is_interrupted(&hosts, &hosts.a, || {
            let run = hosts
                .a
                .start(&format!("perf write-bw --engine {engine} {NOBODY}"));
            steers(&hosts.a);
            run
        });
    }
}

#[test]
fn while_no_mpa_reply_comes() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.compute_checksums();
    for command in ["perf write-bw", "ping"] {
        is_interrupted(&hosts, &hosts.a, || {
            let listener = hosts
                .b
                .run(|| TcpListener::bind((Hosts::SERVER, PERF_PORT)));
            let listener = listener.unwrap();
            let run = hosts
                .a
                .start(&format!("{command} --port {PERF_PORT} 10.77.0.2"));
            let (mut peer, _) = listener.accept().unwrap();
            peer.set_read_timeout(Some(TIMEOUT)).unwrap();
            peer.read_exact(&mut [0; 20]).unwrap();
            thread::spawn(move || peer.read_to_end(&mut Vec::new()));
            run
        });
    }
}

#[test]
fn while_memory_is_registered() {
    needs_root!();
    let hosts = Hosts::new();
    know_nobody(&hosts);
    for role in [NOBODY, "--dev eth1"] {
        is_interrupted_within(LARGE_END_LIMIT, &hosts, &hosts.a, || {
            let run = format!("perf write-bw --verify --size 16M --depth 64 {role}");
            let run = hosts.a.start(&run);
            // The interface is opened next, which takes longest.
            eventually("signals are watched for", || {
                run.holds_back(Signal::SIGTERM)
            });
            run
        });
    }
}

/// Nobody answers afterwards, so that it is never too late.
#[test]
fn while_buffers_are_filled() {
    needs_root!();
    let hosts = Hosts::new();
    know_nobody(&hosts);
    for size in ["--size 1G --depth 1", "--size 4K --depth 4096"] {
        is_interrupted_within(LARGE_END_LIMIT, &hosts, &hosts.a, || {
            let run = hosts
                .a
                .start(&format!("perf write-bw --verify {size} {NOBODY}"));
            eventually("the RNIC is open", || hosts.a.program().is_some());
            run
        });
    }
}

/// Both sides wait for the other's verdict or for a message that never comes.
#[test]
fn while_the_other_side_stands_still() {
    needs_root!();
    let hosts = Hosts::new();
    for test in ["write-bw", "send-lat", "write-lat"] {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let mut server = hosts.b.serve(test);
            let mut client = hosts
                .a
                .start(&format!("perf {test} --duration 600s 10.77.0.2"));
            client.line(test);
            server.signal(Signal::SIGSTOP);
            client.signal(signal);
            client.finish_within(END_LIMIT).refused(&["interrupted"]);
            server.signal(Signal::SIGKILL);
        }
    }
}

#[test]
fn while_a_server_waits_for_its_client() {
    needs_root!();
    let hosts = Hosts::new();
    for server in ["ping", "ping --persistent", "perf read-lat --engine thread"] {
        is_interrupted(&hosts, &hosts.b, || {
            let mut run = hosts.b.start(&format!("{server} --dev {DEV}"));
            run.line("waiting for a client at ");
            run
        });
    }
}

/// As `timeout` does. The program was there before, so that only an orderly end takes the flows out of its map.
#[test]
fn two_signals_at_once_end_a_run_in_order() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::IpLink, Mode::Native);
    for test in ["write-bw", "read-lat"] {
        let mut server = hosts.b.serve(test);
        server.signal(Signal::SIGTERM);
        server.signal(Signal::SIGTERM);
        server.finish_within(END_LIMIT).refused(&["interrupted"]);
        setup.check_as_found();
    }
}

/// Bytes that a pipe holds.
const PIPE: usize = 1 << 16;

/// A ping whose last line does not fit into its pipe, so that it does not close before it is let.
fn ping_that_has_to_wait(hosts: &Hosts) -> (Running, BufReader<PipeReader>) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b'\n'; PIPE]).unwrap();
    let mut command = hosts.a.command(Hosts::command_file());
    command.args(["ping", "10.77.0.2", "--count", "1", "--quiet"]);
    let client = Running::start_printing_to(command, writer);
    eventually("the ping is done", || {
        client.waits_in().contains("pipe_write")
    });
    (client, BufReader::new(reader))
}

#[test]
fn while_the_other_side_does_not_close() {
    needs_root!();
    let hosts = Hosts::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut server = hosts.b.start(&format!("ping --dev {DEV}"));
        server.line("waiting for a client at ");
        let (mut client, mut printed) = ping_that_has_to_wait(&hosts);
        server.signal(Signal::SIGSTOP);
        let mut line = String::new();
        while !line.contains("1 pings, all verified") {
            line.clear();
            printed.read_line(&mut line).unwrap();
        }
        client.signal(signal);
        client.finish_within(END_LIMIT).refused(&["interrupted"]);
        assert_eq!(hosts.a.program(), None);
    }
}

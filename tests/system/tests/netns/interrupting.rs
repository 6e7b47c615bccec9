//! Ctrl-C and SIGTERM are heard in every phase of a run, which then says that it was interrupted
//! and leaves nothing behind.

use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{
    DEV, Host, Hosts, Mode, PERF_PORT, Running, Setup, TIMEOUT, Way, eventually,
};
use xwarp_test_kit::needs_root;

/// How long a signal may be unheard, by the clock of the process that it is for. What it interrupts
/// takes longer.
const HEARD_LIMIT: Duration = Duration::from_secs(2);
/// How long the end may take: a few hundredths of a second on an idle machine. All that is waited
/// for here takes longer, or ends with another status.
const END_LIMIT: Duration = Duration::from_secs(4);
/// The same where gigabytes have to be given back to the kernel. While memory is registered or
/// filled, a signal may end the process at once; none is unheard then.
const LARGE_END_LIMIT: Duration = Duration::from_secs(20);
/// An address that has a neighbour entry, but no host.
const NOBODY: &str = "10.77.0.66";

/// Starts `xwarp` with these arguments. It logs how long a signal waited to be handled.
fn start(host: &Host, arguments: &str) -> Running {
    let mut command = logging_command(host);
    command.args(arguments.split_whitespace());
    Running::start(command)
}

fn logging_command(host: &Host) -> Command {
    let mut command = host.command(Hosts::command_file());
    command.env("RUST_LOG", "off,xwarp::signals=debug");
    command
}

/// Sends a run that was begun by [`start`] a signal. It says that it was interrupted, and ends.
fn interrupt(mut run: Running, signal: Signal, timeout: Duration) -> Vec<String> {
    run.signal(signal);
    let finished = run.finish_within(timeout);
    let finished = finished.exited(128 + signal as i32);
    let mut lines: Vec<String> = finished.stderr.lines().map(str::to_owned).collect();
    let last = lines.pop();
    assert_eq!(last.as_deref(), Some("xwarp: interrupted"), "{finished}");
    lines
}

/// The same in a phase in which a signal ends nothing at once, and is heard soon.
fn interrupt_heard(run: Running, signal: Signal) {
    let lines = interrupt(run, signal, END_LIMIT);
    let [line] = lines.as_slice() else {
        panic!("one line is wanted: {lines:?}");
    };
    let (_, unheard) = line
        .split_once("a signal was noticed after ")
        .expect("a duration");
    let micros = unheard.strip_suffix(" us").map(str::parse);
    let unheard = Duration::from_micros(micros.expect("a unit").expect("a number"));
    assert!(unheard <= HEARD_LIMIT, "{unheard:?}");
}

/// Each phase, for either signal: `begin` starts a run and returns when it is in that phase.
fn is_interrupted(hosts: &Hosts, host: &Host, begin: impl Fn() -> Running) {
    check_phase(hosts, host, begin, interrupt_heard);
}

/// The same where the memory of the run is large.
fn is_interrupted_with_memory(hosts: &Hosts, host: &Host, begin: impl Fn() -> Running) {
    check_phase(hosts, host, begin, |run, signal| {
        interrupt(run, signal, LARGE_END_LIMIT);
    });
}

fn check_phase(
    hosts: &Hosts,
    host: &Host,
    begin: impl Fn() -> Running,
    interrupt: impl Fn(Running, Signal),
) {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        interrupt(begin(), signal);
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
            let run = start(&hosts.a, &format!("{command} 10.77.0.9"));
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
            let run = start(
                &hosts.a,
                &format!("perf write-bw --engine {engine} {NOBODY}"),
            );
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
            let run = start(&hosts.a, &format!("{command} --port {PERF_PORT} 10.77.0.2"));
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
        is_interrupted_with_memory(&hosts, &hosts.a, || {
            let run = format!("perf write-bw --verify --size 16M --depth 64 {role}");
            let run = start(&hosts.a, &run);
            // The interface is opened next, which takes longest.
            eventually("signals are watched for", || {
                run.holds_back(Signal::SIGTERM)
            });
            run
        });
    }
}

/// No host answers afterwards, so that the signal never comes too late.
#[test]
fn while_buffers_are_filled() {
    needs_root!();
    let hosts = Hosts::new();
    know_nobody(&hosts);
    for size in ["--size 1G --depth 1", "--size 4K --depth 4096"] {
        is_interrupted_with_memory(&hosts, &hosts.a, || {
            let run = start(&hosts.a, &format!("perf write-bw --verify {size} {NOBODY}"));
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
            let mut client = start(&hosts.a, &format!("perf {test} --duration 600s 10.77.0.2"));
            client.line(test);
            server.signal(Signal::SIGSTOP);
            interrupt_heard(client, signal);
            server.signal(Signal::SIGKILL);
        }
    }
}

#[test]
fn while_a_client_waits_for_the_time_of_its_next_ping() {
    needs_root!();
    let hosts = Hosts::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut server = hosts.b.start(&format!("ping --dev {DEV}"));
        server.line("waiting for a client at ");
        let mut client = start(&hosts.a, "ping 10.77.0.2 --interval 600s");
        client.line("ping     0  verified");
        interrupt_heard(client, signal);
        assert_eq!(hosts.a.program(), None);
        drop(server);
    }
}

#[test]
fn while_a_server_waits_for_its_client() {
    needs_root!();
    let hosts = Hosts::new();
    for server in ["ping", "ping --persistent", "perf read-lat --engine thread"] {
        is_interrupted(&hosts, &hosts.b, || {
            let mut run = start(&hosts.b, &format!("{server} --dev {DEV}"));
            run.line("waiting for a client at ");
            run
        });
    }
}

/// As `timeout` does. The program was there before, so that only an orderly end takes the flows out
/// of its map.
#[test]
fn two_signals_at_once_end_a_run_in_order() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::IpLink, Mode::Native);
    for test in ["write-bw", "read-lat"] {
        let mut server = hosts.b.serve(test);
        server.signal(Signal::SIGTERM);
        server.signal(Signal::SIGTERM);
        server
            .finish_within(END_LIMIT)
            .interrupted_by(Signal::SIGTERM);
        setup.check_as_found();
    }
}

/// Bytes that a pipe holds.
const PIPE: usize = 1 << 16;

/// A ping whose last line does not fit into its pipe, so that it does not close before it is let.
fn ping_that_has_to_wait(hosts: &Hosts) -> (Running, BufReader<PipeReader>) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b'\n'; PIPE]).unwrap();
    let mut command = logging_command(&hosts.a);
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
        let (client, mut printed) = ping_that_has_to_wait(&hosts);
        server.signal(Signal::SIGSTOP);
        let mut line = String::new();
        while !line.contains("1 pings, all verified") {
            line.clear();
            printed.read_line(&mut line).unwrap();
        }
        interrupt_heard(client, signal);
        assert_eq!(hosts.a.program(), None);
    }
}

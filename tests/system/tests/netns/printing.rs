//! Output of commands into a closed pipe, onto a full disk, over a limit: it is written, or the
//! command says that it could not.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter};
use std::process::Command;

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Finished, Host, Hosts, Running, eventually};
use xwarp_test_kit::needs_root;

const FULL: &str = "cannot write to standard output: No space left on device";

fn xwarp(host: &Host, arguments: &str) -> Command {
    let mut command = host.command(Hosts::command_file());
    command.args(arguments.split_whitespace());
    command
}

/// Runs `xwarp` where everything that is written to standard output finds the disk full.
fn on_a_full_disk(host: &Host, arguments: &str) -> Finished {
    let full = File::options().write(true).open("/dev/full").unwrap();
    Running::start_printing_to(xwarp(host, arguments), full).finish()
}

/// What prints without a peer.
fn alone(hosts: &Hosts) -> Vec<String> {
    let object = hosts.work.file("steer.o");
    vec![
        "--help".to_owned(),
        "--version".to_owned(),
        "perf write-bw --help".to_owned(),
        format!("status {DEV}"),
        format!("status {DEV} --json"),
        format!("object {}", object.display()),
        format!("attach {DEV}"),
        format!("status {DEV}"),
        format!("detach {DEV}"),
        format!("perf write-lat --dev {DEV}"),
        format!("ping --dev {DEV}"),
    ]
}

#[test]
fn full_disk_is_told_in_one_sentence() {
    needs_root!();
    let hosts = Hosts::new();
    for arguments in alone(&hosts) {
        on_a_full_disk(&hosts.a, &arguments).refused(&[FULL, "make room"]);
    }
    assert_eq!(hosts.a.program(), None);
}

#[test]
fn full_disk_ends_a_client_and_leaves_nothing_behind() {
    needs_root!();
    let hosts = Hosts::new();
    for (server, client) in [
        ("ping", "ping 10.77.0.2"),
        ("ping", "ping 10.77.0.2 --quiet"),
        ("perf write-bw", "perf write-bw 10.77.0.2 --iterations 10"),
        (
            "perf send-lat",
            "perf send-lat 10.77.0.2 --iterations 10 --json",
        ),
    ] {
        let mut server = hosts.b.start(&format!("{server} --dev {DEV}"));
        server.line("waiting for a client at ");
        on_a_full_disk(&hosts.a, client).refused(&[FULL]);
        assert_eq!(hosts.a.program(), None, "{client}");
    }
}

/// A pipe whose reading end is closed.
fn closed_pipe() -> PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

#[test]
fn closed_pipe_ends_a_command_by_sigpipe_without_a_word() {
    needs_root!();
    let hosts = Hosts::new();
    for arguments in alone(&hosts) {
        let finished =
            Running::start_printing_to(xwarp(&hosts.a, &arguments), closed_pipe()).finish();
        assert_eq!(finished.stderr, "", "{finished}");
        finished.killed_by(Signal::SIGPIPE);
    }
    assert_eq!(hosts.a.program(), None);
}

/// Starts `xwarp` with a pipe, of which this is the other end.
fn piped(host: &Host, arguments: &str) -> (Running, BufReader<PipeReader>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let running = Running::start_printing_to(xwarp(host, arguments), writer);
    (running, BufReader::new(reader))
}

#[test]
fn pipe_that_closes_in_the_middle_ends_either_side_in_order() {
    needs_root!();
    let hosts = Hosts::new();
    let (server, mut printed) = piped(&hosts.b, &format!("ping --persistent --dev {DEV}"));
    let mut line = String::new();
    while !line.starts_with("waiting") {
        line.clear();
        printed.read_line(&mut line).unwrap();
    }
    let (client, mut pings) = piped(&hosts.a, "ping 10.77.0.2 --count 1000000");
    while !line.contains("verified") {
        line.clear();
        pings.read_line(&mut line).unwrap();
    }
    drop(pings);
    let client = client.finish();
    assert_eq!(client.stderr, "", "{client}");
    client.killed_by(Signal::SIGPIPE);
    assert_eq!(hosts.a.program(), None);
    drop(printed);
    let next = hosts.a.start("ping 10.77.0.2");
    let server = server.finish();
    // It may report the client that has gone, but must not panic.
    assert!(!server.stderr.contains("panicked"), "{server}");
    server.killed_by(Signal::SIGPIPE);
    next.finish().exited(1);
    assert_eq!(hosts.b.program(), None);
}

#[test]
fn command_that_cannot_even_complain_still_fails() {
    needs_root!();
    let hosts = Hosts::new();
    for arguments in ["status nope", "perf write-bw 10.77.0.1"] {
        let command = hosts.a.xwarp_after("exec 2>/dev/full", arguments);
        Running::start(command).finish().exited(1);
    }
    let command = hosts.a.xwarp_after("exec 2>/dev/full", "perf");
    Running::start(command).finish().exited(2);
}

#[test]
fn capture_that_is_not_complete_fails_a_run_whose_results_are_printed() {
    needs_root!();
    let hosts = Hosts::new();
    let lost = "the capture /dev/full is not complete: No space left on device";
    for (server, client, printed) in [
        (
            "perf write-bw",
            "perf write-bw 10.77.0.2 --iterations 1",
            "not checked",
        ),
        (
            "perf write-bw",
            "perf write-bw 10.77.0.2 --iterations 1000",
            "not checked",
        ),
        ("ping", "ping 10.77.0.2 --count 1", "1 pings, all verified"),
    ] {
        let mut server = hosts
            .b
            .start(&format!("{server} --dev {DEV} --capture /dev/full"));
        server.line("waiting for a client at ");
        let client = hosts.a.xwarp(&format!("{client} --capture /dev/full"));
        assert!(client.stdout.contains(printed), "{client}");
        client.refused(&[lost, "make room"]);
        server.finish().refused(&[lost]);
    }
    assert_eq!((hosts.a.program(), hosts.b.program()), (None, None));
}

#[test]
fn capture_that_is_larger_than_a_file_may_be_is_not_complete_either() {
    needs_root!();
    let hosts = Hosts::new();
    let server = hosts.b.serve("write-bw");
    let file = hosts.work.file("large.pcapng");
    let run = format!(
        "perf write-bw 10.77.0.2 --iterations 100 --capture {}",
        file.display()
    );
    let client = Running::start(hosts.a.xwarp_after("ulimit -f 64", &run)).finish();
    assert!(client.stdout.contains("not checked"), "{client}");
    client.refused(&["large.pcapng is not complete: File too large"]);
    server.finish().succeeded();
}

/// A run that fails says why it has failed, and besides that its capture is lost.
#[test]
fn run_that_fails_tells_of_its_capture_as_well() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = hosts
        .b
        .start(&format!("ping --dev {DEV} --capture /dev/full"));
    server.line("waiting for a client at ");
    hosts.a.xwarp("ping 10.77.0.2 --count 1").succeeded();
    server
        .finish()
        .refused(&["the capture /dev/full is not complete"]);
    let mut server = hosts.b.start(&format!(
        "ping --persistent --dev {DEV} --capture /dev/full"
    ));
    server.line("waiting for a client at ");
    hosts.a.xwarp("ping 10.77.0.2 --count 1").succeeded();
    eventually("the ping is told", || server.printed().contains("1 pings"));
    server.signal(Signal::SIGTERM);
    let server = server.finish().exited(143);
    for words in [
        "the capture /dev/full is not complete",
        "xwarp: interrupted",
    ] {
        assert!(server.stderr.contains(words), "{server}");
    }
}

//! Frames that virtual links leave without a checksum: how they are reported, and `--fix-offloads`.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xwarp::RnicConfig;
use xwarp::config::Progress;
use xwarp_system_tests::{DEV, Host, Hosts, eventually};
use xwarp_test_kit::needs_root;

/// A port of the server's.
const PORT: u16 = 7471;
/// How long an order to end may take.
const END_LIMIT: Duration = Duration::from_secs(5);

fn are_back(host: &Host, before: &[String]) {
    eventually("the offloads are back", || host.offloads() == before);
}

fn are_fixed(host: &Host) {
    let on = host.offloads();
    assert!(
        !on.iter().any(|it| it == "tx-checksum-ip-generic"),
        "{on:?}"
    );
}

/// The peer's kernel leaves the checksum of its SYN to a device that computes none.
#[test]
fn checksum_that_a_virtual_peer_leaves_is_counted_and_not_accepted() {
    needs_root!();
    let hosts = Hosts::new();
    let rnic = hosts
        .b
        .open(RnicConfig::default().progress(Progress::Thread));
    let listen = || rnic.listen((Hosts::SERVER, PORT).into());
    let _listener = hosts.b.run(listen).expect("a port");
    let connect = |patience| {
        let server = (Hosts::SERVER, PORT).into();
        hosts
            .a
            .run(|| TcpStream::connect_timeout(&server, patience))
    };
    assert!(connect(Duration::from_millis(300)).is_err());
    let counters = rnic.counters().expect("an engine").tcp;
    assert!(counters.drop_partial_checksum > 0, "{counters:?}");
    assert_eq!((counters.drop_bad_checksum, counters.segments_in), (0, 0));
    hosts.a.compute_checksums();
    let mut stream = connect(END_LIMIT).expect("a listener");
    drop(rnic);
    let _ended = stream.read(&mut [0]);
}

#[test]
fn peer_with_fixed_offloads_is_understood_and_has_them_back_afterwards() {
    needs_root!();
    let hosts = Hosts::new();
    let before = hosts.b.offloads();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut server = hosts
            .b
            .start(&format!("perf write-bw --dev {DEV} --fix-offloads"));
        server.line("waiting for");
        let said = server.complained();
        assert!(
            said.contains("eth1: off until this process ends: "),
            "{said}"
        );
        are_fixed(&hosts.b);
        server.signal(signal);
        server.finish_within(END_LIMIT);
        are_back(&hosts.b, &before);
    }
}

/// The guard of a process, if it has one.
fn guard_of(process: u32) -> Option<Pid> {
    let wanted = format!("guard-interface\0--stays\0{process}\0");
    let all = std::fs::read_dir("/proc").expect("a /proc");
    let mut numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let number = numbers.find(|number: &i32| {
        let line = std::fs::read_to_string(format!("/proc/{number}/cmdline"));
        line.is_ok_and(|line| line.contains(&wanted))
    });
    number.map(Pid::from_raw)
}

/// The kernel's function that a process sleeps in.
fn waits_in(process: Pid) -> String {
    std::fs::read_to_string(format!("/proc/{process}/wchan")).unwrap_or_default()
}

/// The second finds the offloads off that the first's guard has not put back yet.
#[test]
fn run_behind_another_has_its_offloads_off_too() {
    needs_root!();
    let hosts = Hosts::new();
    let before = hosts.b.offloads();
    let start = || {
        let command = format!("perf write-bw --dev {DEV} --fix-offloads");
        hosts.b.start(&command)
    };
    let mut first = start();
    first.line("waiting for");
    let id = first.id();
    let guard = guard_of(id).expect("it has one");
    kill(guard, Signal::SIGSTOP).expect("our own");
    let stderr = std::fs::read_link(format!("/proc/{guard}/fd/2"));
    assert_eq!(stderr.expect("it runs"), Path::new("/dev/null"));
    first.signal(Signal::SIGKILL);
    // The guard does not hold the outputs of the first run, so a reader of them does not wait for
    // it.
    first.finish_within(END_LIMIT).killed_by(Signal::SIGKILL);
    let mut second = start();
    eventually("the second's guard waits for the first's", || {
        guard_of(second.id()).is_some_and(|it| waits_in(it).contains("nanosleep"))
    });
    kill(guard, Signal::SIGCONT).expect("our own");
    eventually("the first has none", || guard_of(id).is_none());
    second.line("waiting for");
    are_fixed(&hosts.b);
    second.signal(Signal::SIGTERM);
    second.finish_within(END_LIMIT).exited(143);
    are_back(&hosts.b, &before);
}

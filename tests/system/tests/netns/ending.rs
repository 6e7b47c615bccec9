//! However a run ends, both sides say so, nothing stays attached, and the next run works.

use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{
    Case, Hosts, Mode, Running, Setup, Shape, Way, eventually, eventually_within,
};
use xwarp_test_kit::needs_root;

/// How long a side may take to notice that the other was killed: the kernel there resets whatever
/// reaches it.
const LOSS_LIMIT: Duration = Duration::from_secs(35);
/// How long an order to end may take.
const END_LIMIT: Duration = Duration::from_secs(5);
/// What a side may say of another that ended. A signal handler's reset, the kernel's, or silence.
const GONE: [&str; 3] = [
    "the connection is lost: ",
    "the other side has closed the connection",
    "the other side terminated the connection: ",
];
/// Servers that try to take over from another, of which one comes in time.
const TAKE_OVERS: u32 = 5;
const TESTS: [&str; 6] = [
    "write-bw",
    "read-bw",
    "send-bw",
    "write-lat",
    "read-lat",
    "send-lat",
];

/// A run that goes on until it is ended.
fn endless(test: &'static str) -> Case {
    Case {
        client: "--duration 600s".to_owned(),
        size: 4096,
        depth: 16,
        ..Case::new(test)
    }
}

fn says_that_the_other_has_gone(test: &str, line: &str) {
    assert!(
        GONE.iter().any(|words| line.contains(words)),
        "{test}: {line}"
    );
}

/// A short run, which must work at once.
fn works(setup: &Setup<'_>) {
    setup.measure(&Case {
        size: 4096,
        depth: 16,
        ..Case::new("write-bw")
    });
}

#[test]
fn signal_ends_a_waiting_server_in_order() {
    needs_root!();
    let hosts = Hosts::new();
    for way in [Way::Itself, Way::IpLink] {
        let setup = Setup::new(&hosts, way, Mode::Native);
        for engine in ["inline", "thread"] {
            for signal in [Signal::SIGINT, Signal::SIGTERM] {
                let mut server = hosts.b.serve(&format!("write-bw --engine {engine}"));
                server.signal(signal);
                server.finish_within(END_LIMIT).interrupted_by(signal);
                setup.check_as_found();
            }
        }
        works(&setup);
    }
}

#[test]
fn signal_ends_a_client_in_the_middle_of_a_run() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for test in TESTS {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let (server, mut client) = setup.begin(&endless(test));
            client.signal(signal);
            client.finish_within(END_LIMIT).interrupted_by(signal);
            assert_eq!(hosts.a.program(), None);
            says_that_the_other_has_gone(test, &server.finish_within(END_LIMIT).refused(&[]));
            setup.check_as_found();
        }
    }
    works(&setup);
}

#[test]
fn signal_ends_a_server_in_the_middle_of_a_run() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::IpLink, Mode::Native);
    for test in TESTS {
        let (mut server, client) = setup.begin(&endless(test));
        server.signal(Signal::SIGTERM);
        server
            .finish_within(END_LIMIT)
            .interrupted_by(Signal::SIGTERM);
        says_that_the_other_has_gone(test, &client.finish_within(END_LIMIT).refused(&[]));
        setup.check_as_found();
    }
    works(&setup);
}

/// Which runs one side is killed in, over how many connections, and who has attached the program.
const KILLED: [(Way, &str, u64); 6] = [
    (Way::Itself, "write-bw", 1),
    (Way::Itself, "write-bw", 8),
    (Way::Itself, "read-lat", 1),
    (Way::Itself, "send-lat", 1),
    (Way::Itself, "write-lat", 1),
    (Way::IpLink, "send-bw", 8),
];

fn endless_over(test: &'static str, qps: u64) -> Case {
    Case {
        qps,
        ..endless(test)
    }
}

/// The kernel of the server's host resets what it knows nothing of, as soon as it is sent anything.
#[test]
fn client_notices_that_the_server_was_killed() {
    needs_root!();
    let hosts = Hosts::new();
    for (way, test, qps) in KILLED {
        let setup = Setup::new(&hosts, way, Mode::Native);
        let (mut server, client) = setup.begin(&endless_over(test, qps));
        server.signal(Signal::SIGKILL);
        server.finish().killed_by(Signal::SIGKILL);
        says_that_the_other_has_gone(test, &client.finish_within(LOSS_LIMIT).refused(&[]));
        // A program that was found keeps the flows of a killed process until the next one comes.
        if way == Way::Itself {
            setup.check_as_found();
        }
        works(&setup);
    }
}

#[test]
fn server_notices_that_the_client_was_killed() {
    needs_root!();
    let hosts = Hosts::new();
    for (way, test, qps) in KILLED {
        let setup = Setup::new(&hosts, way, Mode::Native);
        let (server, mut client) = setup.begin(&endless_over(test, qps));
        client.signal(Signal::SIGKILL);
        client.finish().killed_by(Signal::SIGKILL);
        says_that_the_other_has_gone(test, &server.finish_within(LOSS_LIMIT).refused(&[]));
        if way == Way::Itself {
            setup.check_as_found();
        }
        works(&setup);
    }
}

/// Frames of several buffers, of which the kernel and the killed process each have some.
#[test]
fn either_side_is_killed_with_large_frames_under_way() {
    needs_root!();
    for (mtu, mode) in [(9000, Mode::Native), (65_535, Mode::Generic)] {
        let hosts = Hosts::shaped(Shape {
            mtu,
            ..Shape::default()
        });
        let setup = Setup::new(&hosts, Way::Itself, mode);
        for server_dies in [true, false] {
            let (server, client) = setup.begin(&Case {
                size: 64 << 10,
                ..endless("write-bw")
            });
            let (mut dies, lives) = if server_dies {
                (server, client)
            } else {
                (client, server)
            };
            dies.signal(Signal::SIGKILL);
            dies.finish().killed_by(Signal::SIGKILL);
            says_that_the_other_has_gone("write-bw", &lives.finish_within(LOSS_LIMIT).refused(&[]));
            setup.check_as_found();
            works(&setup);
        }
    }
}

/// The client is stopped until the link is quiet, so that no unacknowledged segment shows the
/// server that it has ended.
#[test]
fn server_notices_that_a_silent_client_was_killed() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    let (server, mut client) = setup.begin(&endless("write-bw"));
    client.signal(Signal::SIGSTOP);
    quiet(&hosts);
    client.signal(Signal::SIGKILL);
    client.finish().killed_by(Signal::SIGKILL);
    says_that_the_other_has_gone("write-bw", &server.finish_within(LOSS_LIMIT).refused(&[]));
    setup.check_as_found();
}

/// Waits until a second passes in which host B sends no packet.
fn quiet(hosts: &Hosts) {
    let sent = || hosts.b.ip("-json -statistics link show dev eth1");
    let (mut last, mut same) = (sent(), 0);
    let quiet = eventually_within(LOSS_LIMIT, || {
        std::thread::sleep(Duration::from_millis(100));
        let now = sent();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same == 10
    });
    assert!(quiet, "host B goes on sending: {last}");
}

/// A second server, which had found the program of a first one that was killed while it tried to
/// bind the queue.
fn take_over(hosts: &Hosts) -> Running {
    for _ in 0..TAKE_OVERS {
        let mut first = hosts.b.serve("write-bw");
        let perf = "perf write-bw --verify --size 4K --depth 16 --dev eth1 --port 18516";
        let mut second = hosts.b.start(perf);
        // It tries again and again, for some seconds.
        eventually("the second tries to bind", || {
            second.waits_in().contains("nanosleep") || second.has_ended()
        });
        first.signal(Signal::SIGKILL);
        first.finish().killed_by(Signal::SIGKILL);
        let waits = |second: &Running| second.printed().contains("waiting for a client");
        eventually("the second has the queue or not", || {
            waits(&second) || second.has_ended()
        });
        if waits(&second) {
            return second;
        }
        // The second was over before the first one's end, as on a busy machine.
        second.finish().refused(&["eth1 is in use by"]);
    }
    panic!("the second server never got the queue of the first");
}

/// The second server finds the program of the first, and must not go on without it when the first
/// ends.
#[test]
fn program_that_goes_with_another_process_is_not_relied_upon() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    let second = take_over(&hosts);
    assert!(
        hosts.b.program().is_some(),
        "a server waits without a program: {}",
        second.printed()
    );
    let client = hosts.a.xwarp(
        "perf write-bw --verify --size 4K --depth 16 --iterations 100 --port 18516 10.77.0.2",
    );
    client.succeeded();
    second.finish().succeeded();
    setup.check_as_found();
}

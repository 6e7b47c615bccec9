//! A process that is killed at any moment of its start leaves nothing: no program, no port without
//! its owner, no changed offload.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Hosts, Running, eventually};
use xwarp_test_kit::needs_root;

/// How long a process may take until it has ended, and its guard with it.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Where the server listens.
const SERVER: SocketAddr = SocketAddr::new(Hosts::SERVER, xwarp_system_tests::PERF_PORT);
/// Calls of its other threads: the engine's, and the one that watches the interface.
const CALLS_OF_THREADS: [&str; 4] = ["poll", "recvfrom", "sendto", "write"];
/// System calls at whose first, second, fourth and further calls the server is killed, each before
/// the kernel does anything.
const CALLS: [&str; 5] = ["bpf", "bind", "setsockopt", "sendto", "clone3"];

/// Starts a server that is killed at a call, counted from 1. By `-D` strace is no parent of it, so
/// that signals go to the server.
fn start(hosts: &Hosts, [trace, call, options]: [&str; 3], number: u32) -> Running {
    let mut command = hosts.b.command("strace");
    command.args([trace, "-qq", "-o", "/dev/null", "-e"]);
    command.arg(format!("inject={call}:signal=KILL:when={number}"));
    command.arg(Hosts::command_file());
    command.args(["perf", "write-bw", "--dev", DEV]);
    command.args(options.split_whitespace());
    Running::start(command)
}

/// Kills servers at the first, second, fourth and further calls. What must hold after each is
/// checked.
fn kill_at_each(hosts: &Hosts, how: [&str; 3], check: impl Fn()) {
    for number in (0..8).map(|power| 1 << power) {
        let killed = was_killed(start(hosts, how, number));
        check();
        kernel_serves(hosts);
        if !killed {
            assert!(number > 1, "{how:?} is never called");
            break;
        }
    }
}

/// Whether it was killed; otherwise it was ready before, and is killed now.
fn was_killed(mut server: Running) -> bool {
    let mut killed = false;
    eventually("it ends or is ready", || {
        killed = server.has_ended();
        killed || server.printed().contains("waiting for")
    });
    if !killed {
        server.signal(Signal::SIGKILL);
    }
    server.finish_within(END_LIMIT);
    killed
}

/// The kernel's TCP has the server's port.
fn kernel_serves(hosts: &Hosts) {
    let listener = hosts
        .b
        .run(|| TcpListener::bind(SERVER))
        .expect("a free port");
    let connect = || TcpStream::connect_timeout(&SERVER, END_LIMIT);
    drop(hosts.a.run(connect).expect("the kernel answers"));
    drop(listener);
}

#[test]
fn server_that_is_killed_while_it_starts_leaves_nothing() {
    needs_root!();
    let hosts = Hosts::new();
    let before = hosts.b.offloads();
    for call in CALLS {
        kill_at_each(&hosts, ["-D", call, "--fix-offloads"], || {
            eventually("no program is left", || hosts.b.program().is_none());
            eventually("the offloads are back", || hosts.b.offloads() == before);
        });
    }
}

/// A signal that ends a thread ends its process. What matters is what the process is about then.
#[test]
fn server_whose_other_threads_are_killed_leaves_nothing() {
    needs_root!();
    let hosts = Hosts::new();
    for call in CALLS_OF_THREADS {
        kill_at_each(&hosts, ["-Df", call, "--engine thread"], || {
            eventually("no program is left", || hosts.b.program().is_none());
        });
    }
}

/// The XDP program stays. Flows of the killed server could stay with it.
#[test]
fn server_that_is_killed_under_a_lasting_program_leaves_no_port_without_its_owner() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    let program = hosts.b.program();
    for call in CALLS {
        kill_at_each(&hosts, ["-D", call, ""], || {
            assert_eq!(hosts.b.program(), program);
        });
    }
    hosts.b.xwarp(&format!("detach {DEV}")).succeeded();
}

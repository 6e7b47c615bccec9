//! A process that is killed at any moment of its start leaves nothing: no program, no port without its owner, no changed offload.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Hosts, Running, eventually};
use xwarp_test_kit::needs_root;

/// How long a process may take until it has ended, and its guard with it.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Where the server listens.
const SERVER: SocketAddr = SocketAddr::new(Hosts::SERVER, xwarp_system_tests::PERF_PORT);
/// System calls at whose first, second, fourth and further calls the server is killed, each before the kernel does anything.
const CALLS: [&str; 4] = ["bpf", "bind", "setsockopt", "sendto"];

/// Starts a server that is killed at a call, counted from 1. By `-D` strace is no parent of it, so that signals go to the server.
fn start(hosts: &Hosts, call: &str, number: u32) -> Running {
    let mut command = hosts.b.command("strace");
    command.args(["-D", "-qq", "-o", "/dev/null", "-e"]);
    command.arg(format!("inject={call}:signal=KILL:when={number}"));
    command.arg(Hosts::command_file());
    command.args(["perf", "write-bw", "--dev", DEV, "--fix-offloads"]);
    Running::start(command)
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
        let numbers = (0..8).map(|power| 1 << power);
        for number in numbers {
            let killed = was_killed(start(&hosts, call, number));
            eventually("no program is left", || hosts.b.program().is_none());
            eventually("the offloads are back", || hosts.b.offloads() == before);
            kernel_serves(&hosts);
            if !killed {
                assert!(number > 1, "{call} is never called");
                break;
            }
        }
    }
}

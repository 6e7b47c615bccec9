//! Debian's RDMA programs between two hosts, each started by `xwarp run`: what both ends say, and
//! what they leave behind.
//!
//! Needs root, the programs, the command beside the test program (`cargo build -p xwarp-tools` in
//! the same profile) and the library (`tools/dropin`, with `--dev` in a development profile).
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

mod left;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Finished, Host, Hosts, Running, TIMEOUT, eventually, output_of};
use xwarp_test_kit::{WorkDir, eventually_within, timeout};

pub use left::{left_no_object, left_nothing};

/// Where the server listens.
pub const SERVER: &str = "10.77.0.2";
/// The same by IPv6.
pub const SERVER_V6: &str = "fd77::2";

/// Starts a program of libiscsi 1.19 with memory that is zero, of which it takes a part for
/// granted: `iscsi_init_iser_transport` does not initialize the list of a connection's descriptors,
/// and [`iser_reg_mr`] follows it.
///
/// [`iser_reg_mr`]: https://github.com/sahlberg/libiscsi/blob/1.19.0/lib/iser.c
pub const LIBISCSI: &str =
    "env GLIBC_TUNABLES=glibc.malloc.perturb=255:glibc.malloc.tcache_count=0";

/// A program with its arguments at either end.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// At host B.
    pub server: &'static str,
    /// At host A.
    pub client: &'static str,
}

/// A program of perftest: the client has the server's arguments and the server's address.
#[derive(Clone, Copy, Debug)]
pub struct Perftest(pub &'static str);

/// Compiles a program of the folder `programs` with a compiler of C: the program's path.
pub fn compile(compiler: &str, name: &str, libraries: &[&str], into: &WorkDir) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/{name}.c"));
    let program = into.file(name);
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall", "-Werror", "-o"]);
    command.args([&program, &source]).args(libraries);
    output_of(command);
    program.into_os_string().into_string().expect("a path")
}

/// The folder of the library, where the command looks for it, too.
pub fn library() -> PathBuf {
    let command = Hosts::command_file();
    let beside = command.parent().expect("a folder");
    let folders = [beside.join("dropin"), beside.with_file_name("dropin")];
    let folder = folders.into_iter().find(|folder| folder.exists());
    folder.expect("tools/dropin builds it")
}

/// Starts a program on a host.
pub fn start(host: &Host, program: &str) -> Running {
    let mut command = host.command(Hosts::command_file());
    command.args(["run", "--stats", "--dev", DEV, "--"]);
    command.args(program.split_whitespace());
    // The library says when it listens.
    command.env("XWARP_LOG", "info");
    Running::start(command)
}

/// Starts a server, and waits until it listens.
pub fn serve(host: &Host, program: &str) -> Running {
    serve_within(timeout(), host, program)
}

/// The same for a server that takes longer to start.
pub fn serve_within(limit: Duration, host: &Host, program: &str) -> Running {
    let server = start(host, program);
    let listens = || server.complained().contains("listening on");
    assert!(
        eventually_within(limit, listens),
        "{program} does not listen within {limit:?}:\n{}",
        server.complained()
    );
    server
}

/// Starts a server that a client first reaches by the kernel's TCP, and waits until it listens
/// there.
pub fn serve_by_tcp(host: &Host, program: &str, port: u16) -> Running {
    let server = start(host, program);
    await_tcp(host, port);
    server
}

/// Waits until a program of a host listens by the kernel's TCP.
pub fn await_tcp(host: &Host, port: u16) {
    eventually("the server listens by the kernel's TCP", || {
        let mut command = host.command("ss");
        command.args(["-ltnH", &format!("sport = :{port}")]);
        !output_of(command).trim().is_empty()
    });
}

/// Waits for a program, which has to succeed and leave nothing.
pub fn finish(host: &Host, program: &str, running: Running) -> Finished {
    finish_within(host, program, running, TIMEOUT)
}

/// Waits up to `limit` for a program, which has to succeed and leave nothing.
pub fn finish_within(host: &Host, program: &str, running: Running, limit: Duration) -> Finished {
    let finished = running.finish_within(limit).succeeded();
    left::left_no_object(&finished, program);
    left_nothing(host, program);
    finished
}

/// One of the RNIC's counters, which a program has printed.
pub fn counter(of: &Finished, name: &str) -> u64 {
    let mut lines = of.stderr.lines().map(str::split_whitespace);
    let value =
        lines.find_map(|mut words| words.rfind(|_| true).filter(|_| words.any(|it| it == name)));
    value
        .and_then(|it| it.parse().ok())
        .unwrap_or_else(|| panic!("no {name}: {of}"))
}

/// Ends a program that goes on for ever. It must leave nothing on its host, but cannot report
/// objects.
pub fn end_by(signal: Signal, host: &Host, program: &str, mut running: Running) {
    running.signal(signal);
    running.finish().killed_by(signal);
    left_nothing(host, program);
}

/// Runs a client against a server that waits for it.
pub fn run_client(hosts: &Hosts, client: &str) -> Finished {
    finish(&hosts.a, client, start(&hosts.a, client))
}

impl Row {
    /// Runs both ends, which have to succeed and leave nothing.
    pub fn run(self, hosts: &Hosts) {
        Self::run_programs(hosts, self.server, self.client);
    }

    /// Runs two programs, given by command lines, which have to succeed and leave nothing.
    pub fn run_programs(hosts: &Hosts, server: &str, client: &str) {
        let running = serve(&hosts.b, server);
        run_client(hosts, client);
        finish(&hosts.b, server, running);
    }
}

impl Perftest {
    /// Runs a program of perftest on both hosts, which has to succeed and leave nothing.
    pub fn run(self, hosts: &Hosts) {
        let client = format!("{} {SERVER}", self.0);
        Row::run_programs(hosts, self.0, &client);
    }
}

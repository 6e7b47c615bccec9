//! Two hosts, the programs that run on them, and the processor time that they take.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::de::DeserializeOwned;
use xwarp_system_tests::{DEV, Host, Hosts, Running, Shape, output_of};

use crate::figures::Sample;
use crate::reports::{Bandwidth, Iperf, Latency, PerfReport};

/// The addresses of the hosts.
pub(crate) const CLIENT: &str = "10.77.0.1";
pub(crate) const SERVER: &str = "10.77.0.2";
/// How long a program may take.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);
/// Ticks of `/proc/PID/stat` in a second (`USER_HZ` of Linux).
const TICKS: f64 = 100.0;

/// The programs that `tools/bench` built.
#[derive(Clone)]
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Those that were built in the profile of this program.
    pub(crate) fn beside_this() -> anyhow::Result<Self> {
        let this = env::current_exe()?;
        let folder = this.parent().context("a program is in a folder")?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The measuring programs of this crate.
    pub(crate) fn link(&self) -> String {
        self.path("link")
    }

    pub(crate) fn xwarp(&self) -> String {
        self.path("xwarp")
    }
}

/// Two hosts and what is measured between them.
pub(crate) struct Lab {
    pub(crate) hosts: Hosts,
    pub(crate) programs: Programs,
    /// `native` or `generic`.
    pub(crate) mode: &'static str,
    pub(crate) mtu: u32,
}

/// What a server and its client printed, and took.
pub(crate) struct Exchange {
    pub(crate) client: String,
    pub(crate) server: String,
    /// Processor seconds of both, and of the kernel's threads that deliver packets.
    pub(crate) seconds: f64,
}

impl Exchange {
    /// A figure, and the processor time per unit of `units`.
    pub(crate) fn sample(&self, figure: f64, units: f64) -> Sample {
        Sample::with_cost(figure, self.seconds / units)
    }
}

impl Lab {
    /// Hosts without offloads.
    pub(crate) fn new(programs: &Programs, mode: &'static str, shape: Shape) -> Self {
        let lab = Self::with_offloads(programs, mode, shape);
        for host in [&lab.hosts.a, &lab.hosts.b] {
            host.switch_off(DEV, &["tx"]);
        }
        lab
    }

    /// Hosts that send nothing by themselves, such as a neighbour's solicitation: the minimal loop
    /// counts each frame, and ends when none comes.
    pub(crate) fn with_offloads(programs: &Programs, mode: &'static str, shape: Shape) -> Self {
        let hosts = Hosts::shaped(shape);
        for host in [&hosts.a, &hosts.b] {
            host.sh(&format!(
                "echo 1 >/proc/sys/net/ipv6/conf/{DEV}/disable_ipv6"
            ));
        }
        Self {
            hosts,
            programs: programs.clone(),
            mode,
            mtu: shape.mtu,
        }
    }

    /// Starts the server's command, and waits until it prints a line that begins with `ready`.
    pub(crate) fn serve(&self, ready: &str, command: &str) -> Running {
        let mut server = start(&self.hosts.b, command);
        server.line(ready);
        server
    }

    /// Runs the client's command, and returns what it prints.
    pub(crate) fn ask(&self, command: &str) -> String {
        start(&self.hosts.a, command).finish().succeeded().stdout
    }

    /// Runs a server, as `serve` does, and its client.
    pub(crate) fn exchange(&self, ready: &str, server: &str, client: &str) -> Exchange {
        self.exchange_with(|| self.serve(ready, server), client)
    }

    /// Runs a server that `serve` starts, and its client.
    pub(crate) fn exchange_with(&self, serve: impl FnOnce() -> Running, client: &str) -> Exchange {
        self.exchange_then(serve, client, |_| ())
    }

    /// Runs a server that `serve` starts, and its client. `stop` has the server end after that.
    pub(crate) fn exchange_then(
        &self,
        serve: impl FnOnce() -> Running,
        client: &str,
        stop: impl FnOnce(&mut Running),
    ) -> Exchange {
        let before = processor_seconds();
        let mut server = serve();
        let client = self.ask(client);
        stop(&mut server);
        let server = server.finish().succeeded().stdout;
        Exchange {
            client,
            server,
            seconds: processor_seconds() - before,
        }
    }

    /// A command of `link` on raw frames, at the client or at the server.
    pub(crate) fn raw(&self, command: &str, host: &Host, bytes: u32) -> String {
        let is_client = host.name() == self.hosts.a.name();
        let (local, remote, other) = if is_client {
            (CLIENT, SERVER, &self.hosts.b)
        } else {
            (SERVER, CLIENT, &self.hosts.a)
        };
        format!(
            "{} {command} --dev {DEV} --local {local} --remote {remote} --mac {} --bytes {bytes} --mode {}",
            self.programs.link(),
            mac(other),
            self.mode
        )
    }

    /// Runs `xwarp perf`, the client's report being JSON.
    fn perf(&self, xwarp: &str, test: &str) -> Exchange {
        let mode = self.mode;
        self.exchange(
            "waiting",
            &format!("{xwarp} perf {test} --mode {mode} --dev {DEV}"),
            &format!("{xwarp} perf {test} --mode {mode} --json {SERVER}"),
        )
    }

    /// A bandwidth test of `xwarp perf`.
    pub(crate) fn bandwidth_of(&self, xwarp: &str, test: &str) -> (Bandwidth, Exchange) {
        let exchange = self.perf(xwarp, test);
        (parsed::<PerfReport<_>>(&exchange.client).result, exchange)
    }

    /// A latency test of `xwarp perf`: its median in microseconds.
    pub(crate) fn median_of(&self, xwarp: &str, test: &str) -> (f64, Exchange) {
        let exchange = self.perf(xwarp, test);
        let report: PerfReport<Latency> = parsed(&exchange.client);
        (report.result.percentiles_nanoseconds.p50 / 1000.0, exchange)
    }

    /// Runs iperf3 for two seconds with writes of `bytes` bytes.
    pub(crate) fn stream_by_tcp(&self, bytes: &str) -> (Iperf, Exchange) {
        let exchange = self.exchange(
            "Server listening",
            "iperf3 --server --one-off --forceflush",
            &format!(
                "iperf3 --client {SERVER} --time 2 --congestion cubic --length {bytes} --json"
            ),
        );
        (parsed(&exchange.client), exchange)
    }
}

/// Starts a command, whose words have no spaces, on a host.
pub(crate) fn start(host: &Host, command: &str) -> Running {
    start_reading(host, command, Stdio::null())
}

/// Starts a command with this as its input.
pub(crate) fn start_reading(host: &Host, command: &str, input: impl Into<Stdio>) -> Running {
    let mut words = command.split_whitespace();
    let mut started = host.command(words.next().unwrap_or_default());
    started.args(words);
    Running::start_reading(started, input).limited_to(LIMIT)
}

/// The Ethernet address of a host.
pub(crate) fn mac(host: &Host) -> String {
    let mut command = host.command("cat");
    command.arg(format!("/sys/class/net/{DEV}/address"));
    output_of(command).trim().to_owned()
}

/// A program's report in JSON, which may have lines of text before it.
pub(crate) fn parsed<T: DeserializeOwned>(report: &str) -> T {
    let json = report.find('{').map_or(report, |at| &report[at..]);
    let parsed = serde_json::from_str(json);
    parsed.unwrap_or_else(|error| panic!("{error} in: {report}"))
}

/// The numbers of a program's last line.
pub(crate) fn numbers(output: &str) -> Vec<f64> {
    let line = output.lines().last().unwrap_or_default();
    let numbers = line.split_whitespace().map(str::parse);
    let numbers = numbers.collect::<Result<_, _>>();
    numbers.unwrap_or_else(|error| panic!("{error} in: {output}"))
}

/// Processor seconds of all children that have ended, and of the kernel's threads that deliver
/// packets if no process does.
fn processor_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("our own children");
    seconds(usage.user_time()) + seconds(usage.system_time()) + softirq_seconds()
}

#[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are years")]
fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

fn softirq_seconds() -> f64 {
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    let ticks = processes.filter_map(|process| {
        let text = fs::read_to_string(process.path().join("stat")).ok()?;
        softirq_ticks(&text)
    });
    ticks.sum::<f64>() / TICKS
}

/// The kernel time of a thread `ksoftirqd`, by its `/proc/PID/stat`.
fn softirq_ticks(stat: &str) -> Option<f64> {
    let (name, fields) = stat.split_once(") ")?;
    name.contains("(ksoftirqd/").then_some(())?;
    // Field 15 of proc(5), and the first here is the third there.
    fields.split_whitespace().nth(12)?.parse().ok()
}

/// Instructions per frame of a function in callgrind's profile, callees included.
pub(crate) fn per_frame(annotated: &str, function: &str, frames: f64) -> anyhow::Result<u64> {
    let mark = format!(":{function} [");
    let line = annotated.lines().find(|line| line.contains(&mark));
    let count = line.and_then(|line| line.split_whitespace().next());
    let count = count.and_then(|count| count.replace(',', "").parse::<f64>().ok());
    let count = count.with_context(|| format!("callgrind does not name {function}"))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rounded count"
    )]
    Ok((count / frames).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_time_of_softirq_threads_counts() {
        let stat = "14 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 3 271 0 0 20 0 1 0 20 0 0";
        assert_eq!(softirq_ticks(stat), Some(271.0));
        assert_eq!(softirq_ticks(&stat.replace("ksoftirqd/0", "bash")), None);
    }

    #[test]
    fn report_may_follow_text() {
        let value: serde_json::Value = parsed("note: both\n{\"a\": 1}\n");
        assert_eq!(value["a"], 1);
    }

    #[test]
    fn numbers_are_those_of_the_last_line() {
        assert_eq!(numbers("ready\n869000 1303 2\n"), [869_000.0, 1303.0, 2.0]);
    }

    #[test]
    fn instructions_of_a_function_are_found() {
        let text = "-- totals\n\
                    1,234,567 (98%)  ???:link::driver::xwarp_turn [/target/link]\n\
                    9 ( 1%)  ???:other [/target/link]\n";
        let counted = per_frame(text, "link::driver::xwarp_turn", 6000.0);
        assert_eq!(counted.expect("a count"), 206);
        assert!(per_frame(text, "turn", 1.0).is_err());
    }
}

//! What unmodified programs gain by RDMA: the same programs over the kernel's TCP and over xwarp,
//! and perftest over the drop-in library next to `xwarp perf`. `tools/bench --programs`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use clap::ValueEnum;
use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Running, Shape, WorkDir, eventually_within, output_of};

use crate::figures::{Sample, Samples, general, take_turns};
use crate::lab::{CLIENT, Exchange, LIMIT, Lab, Programs, SERVER, parsed, start};
use crate::link;
use crate::reports::Fio;

/// Round trips of a measure of latency, where the program has no option for its duration.
const TRIPS: f64 = 5000.0;
/// Bytes of a measure of bandwidth, where the program has no option for its duration.
const BYTES: f64 = 536_870_912.0;

/// Rows of the table
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    Perftest,
    Qperf,
    Pingpong,
    Mpi,
    Allreduce,
    Fio,
}

impl Group {
    pub(crate) const ALL: [Self; 6] = [
        Self::Perftest,
        Self::Qperf,
        Self::Pingpong,
        Self::Mpi,
        Self::Allreduce,
        Self::Fio,
    ];
}

/// What carries a program's messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Rdma,
}

use Transport::{Rdma, Tcp};

/// Which of two figures is better, and by how much the second may be worse.
#[derive(Clone, Copy)]
enum Goal {
    /// More is better; a part of the first may be missing.
    More(f64),
    /// Less is better; so much may be added.
    Less(f64),
}

impl Goal {
    fn is_met(self, first: f64, second: f64) -> bool {
        match self {
            Self::More(part) => second >= first * (1.0 - part),
            Self::Less(more) => second <= first + more,
        }
    }
}

struct Bench {
    lab: Lab,
    rounds: usize,
    work: WorkDir,
    /// The program of two MPI ranks.
    ranks: String,
}

pub(crate) fn table(
    programs: &Programs,
    rounds: usize,
    ranks: &Path,
    groups: &[Group],
) -> anyhow::Result<()> {
    let bench = Bench {
        lab: Lab::new(programs, "native", Shape::default()),
        rounds,
        work: WorkDir::new("xwarp-bench"),
        ranks: ranks.display().to_string(),
    };
    bench.write_agent().context("an agent of mpirun")?;
    println!(
        "\n== medians of {rounds} rounds in turn (least-most), MTU 1500 without offloads; \
         CPU: seconds of both ends per gigabyte, or per million round trips or operations"
    );
    if groups.first() != Some(&Group::Perftest) {
        heading("kernel TCP", "RDMA");
    }
    for group in groups {
        match group {
            Group::Perftest => bench.perftest_rows(),
            Group::Qperf => bench.qperf_rows(),
            Group::Pingpong => bench.pingpong_rows(),
            Group::Mpi => bench.mpi_rows(),
            Group::Allreduce => {
                let allreduce = |transport| bench.ranks("allreduce", 1e6, transport);
                bench.latency_row("Open MPI Allreduce 8 B", allreduce);
            }
            Group::Fio => bench.bandwidth_row("fio write: nbd, rdma", |it| bench.fio(it)),
        }
    }
    Ok(())
}

fn heading(first: &str, second: &str) {
    println!(
        "{:<36}{first:>24}{second:>24}{:>8}{:>10}{:>10}",
        "", "ratio", "CPU", "CPU"
    );
}

/// A line with the figures of two contenders and their ratio; with `verdict` if the second misses
/// the goal.
fn compare(name: &str, [first, second]: [&Samples; 2], goal: Goal, verdict: &str) {
    let [left, right] = [first, second].map(Samples::figures);
    let [cost, other] = [first, second].map(|it| general(it.costs().median()));
    let is_met = goal.is_met(left.median(), right.median());
    let ratio = right.median() / left.median();
    println!(
        "{name:<36}{left:>24}{right:>24}{ratio:>8.2}{cost:>10}{other:>10}  {}",
        if is_met { "" } else { verdict }
    );
}

impl Bench {
    fn latency_row(&self, name: &str, measure: impl Fn(Transport) -> Sample) {
        self.row(&format!("{name} [us]"), measure, Goal::Less(0.0));
    }

    fn bandwidth_row(&self, name: &str, measure: impl Fn(Transport) -> Sample) {
        self.row(&format!("{name} [Gb/s]"), measure, Goal::More(0.0));
    }

    /// A line with both transports.
    fn row(&self, name: &str, measure: impl Fn(Transport) -> Sample, goal: Goal) {
        let [tcp, rdma] = take_turns(self.rounds, [&|| measure(Tcp), &|| measure(Rdma)]);
        compare(name, [&tcp, &rdma], goal, "TCP wins");
    }

    /// What runs a program over a transport.
    fn wrapper(&self, transport: Transport) -> String {
        match transport {
            Tcp => String::new(),
            Rdma => format!(
                "env XWARP_LOG=info {} run --dev {DEV} --",
                self.lab.programs.xwarp()
            ),
        }
    }

    /// Starts a server, and waits until it listens at a port of the kernel's TCP.
    fn serve_at(&self, port: u16, command: &str) -> Running {
        let host = &self.lab.hosts.b;
        let mut server = start(host, command);
        let listens = || {
            server.still_runs();
            let mut command = host.command("ss");
            command.args(["-ltnH", &format!("sport = :{port}")]);
            !output_of(command).is_empty()
        };
        let listens = eventually_within(LIMIT, listens);
        assert!(listens, "{command} does not listen");
        server
    }

    /// Starts a server, and waits until the library reports that it listens.
    fn serve_by_library(&self, command: &str) -> Running {
        let mut server = start(&self.lab.hosts.b, command);
        let listens = eventually_within(LIMIT, || {
            server.still_runs();
            server.complained().contains("listening on")
                || server.printed().contains("listening on")
        });
        assert!(listens, "{command} does not listen");
        server
    }

    fn perftest_rows(&self) {
        const GOAL: &str = "misses the goal";
        heading("xwarp perf", "perftest");
        let bandwidths = [&|| link::bandwidth(&self.lab), &|| {
            self.bandwidth_of_perftest()
        }] as [&dyn Fn() -> Sample; 2];
        let [own, perftest] = take_turns(self.rounds, bandwidths);
        let name = "write 64 KiB [Gb/s]";
        compare(name, [&own, &perftest], Goal::More(0.03), GOAL);
        // Without inline data, which `xwarp perf` does not use.
        for (name, test, program) in [
            (
                "Send 64 B, half a round trip [us]",
                "send-lat",
                "ib_send_lat -I 0",
            ),
            ("Read 64 B, a round trip [us]", "read-lat", "ib_read_lat"),
            (
                "Write 64 B, half a round trip [us]",
                "write-lat",
                "ib_write_lat -I 0",
            ),
        ] {
            let [own, perftest] = take_turns(
                self.rounds,
                [&|| self.latency_of_perf(test), &|| {
                    self.latency_of_perftest(program)
                }],
            );
            compare(name, [&own, &perftest], Goal::Less(0.15), GOAL);
        }
        heading("kernel TCP", "RDMA");
    }

    fn perftest(&self, program: &str) -> (Vec<f64>, Exchange) {
        let command = format!("{} {program} -R -F", self.wrapper(Rdma));
        let client = format!("{command} {SERVER}");
        let exchange = self
            .lab
            .exchange_with(|| self.serve_by_library(&command), &client);
        (last_row(&exchange.client), exchange)
    }

    /// Of as many writes at a time as `xwarp perf` has.
    fn bandwidth_of_perftest(&self) -> Sample {
        let (row, exchange) = self.perftest("ib_write_bw -s 65536 -t 64 -D 2 --report_gbits");
        exchange.sample(row[3], row[1] * 65536.0 / 1e9)
    }

    fn latency_of_perftest(&self, program: &str) -> Sample {
        let (row, exchange) = self.perftest(&format!("{program} -s 64 -n {TRIPS}"));
        exchange.sample(row[4], TRIPS / 1e6)
    }

    fn latency_of_perf(&self, test: &str) -> Sample {
        let test = format!("{test} --size 64 --iterations {TRIPS} --wait busy");
        let (median, exchange) = self.lab.median_of(&self.lab.programs.xwarp(), &test);
        exchange.sample(median, TRIPS / 1e6)
    }

    fn qperf_rows(&self) {
        self.latency_row("qperf tcp_lat, rc_lat", |transport| {
            let test = if transport == Tcp {
                "tcp_lat"
            } else {
                "rc_lat"
            };
            // It reports the mean of half round trips, so that their number is known.
            let (nanoseconds, exchange) = self.qperf(test, transport);
            exchange.sample(nanoseconds / 1e3, 2e9 / (2.0 * nanoseconds) / 1e6)
        });
        self.bandwidth_row("qperf tcp_bw, rc_rdma_write_bw", |transport| {
            let test = if transport == Tcp {
                "tcp_bw"
            } else {
                "rc_rdma_write_bw"
            };
            let (bytes, exchange) = self.qperf(test, transport);
            exchange.sample(bytes / 125e6, 2.0 * bytes / 1e9)
        });
    }

    /// A test of qperf for two seconds: its latency in nanoseconds, or bytes per second.
    fn qperf(&self, test: &str, transport: Transport) -> (f64, Exchange) {
        let command = format!("{} qperf", self.wrapper(transport));
        let client = format!("{command} -uu -t 2 -cm 1 {SERVER} {test}");
        let quit = format!("qperf {SERVER} quit");
        let exchange = self.lab.exchange_then(
            || self.serve_at(19765, &command),
            &client,
            |_| drop(self.lab.ask(&quit)),
        );
        let figure = qperf_figure(&exchange.client);
        let figure = figure.unwrap_or_else(|| panic!("no figure in: {}", exchange.client));
        (figure, exchange)
    }

    fn pingpong_rows(&self) {
        self.latency_row("fi_pingpong 64 B", |transport| {
            let (row, exchange) = self.pingpong(64.0, TRIPS, transport);
            exchange.sample(row[6], TRIPS / 1e6)
        });
        // Megabytes become gigabits; both ways count.
        self.bandwidth_row("fi_pingpong 64 KiB", |transport| {
            let (size, count) = (65536.0, 4000.0);
            let (row, exchange) = self.pingpong(size, count, transport);
            exchange.sample(row[5] / 125.0, 2.0 * size * count / 1e9)
        });
    }

    fn pingpong(&self, size: f64, count: f64, transport: Transport) -> (Vec<f64>, Exchange) {
        let provider = if transport == Tcp { "tcp" } else { "verbs" };
        let command = format!(
            "{} fi_pingpong -p {provider} -e msg -S {size} -I {count}",
            self.wrapper(transport)
        );
        let client = format!("{command} {SERVER}");
        let exchange = self
            .lab
            .exchange_with(|| self.serve_at(47592, &command), &client);
        (last_row(&exchange.client), exchange)
    }

    /// Gb/s that fio writes in blocks of 64 KiB, 16 at a time; by TCP to a block device in memory.
    fn fio(&self, transport: Transport) -> Sample {
        let blocks = format!("--bs=64k --iodepth=16 --size={BYTES}");
        let written = format!("--rw=write {blocks} --output-format=json");
        let exchange = match transport {
            Tcp => {
                let server = format!("nbdkit --foreground --ipaddr={SERVER} memory {BYTES}");
                let client = format!("fio --name=s --ioengine=nbd --uri=nbd://{SERVER}/ {written}");
                self.lab.exchange_then(
                    || self.serve_at(10809, &server),
                    &client,
                    |server| server.signal(Signal::SIGTERM),
                )
            }
            Rdma => {
                let fio = format!("{} fio", self.wrapper(Rdma));
                let server =
                    format!("{fio} --name=r --ioengine=rdma --port=8899 --rw=read {blocks}");
                let client = format!(
                    "{fio} --name=s --ioengine=rdma --hostname={SERVER} --port=8899 --verb=write {written}"
                );
                self.lab
                    .exchange_with(|| self.serve_by_library(&server), &client)
            }
        };
        let report: Fio = parsed(&exchange.client);
        exchange.sample(report.jobs[0].write.bw_bytes * 8.0 / 1e9, BYTES / 1e9)
    }

    fn mpi_rows(&self) {
        self.latency_row("Open MPI 8 B", |it| self.ranks("latency", 1e6, it));
        self.bandwidth_row("Open MPI 64 KiB", |it| self.ranks("bandwidth", 1e9, it));
    }

    /// Writes what mpirun starts instead of ssh: it enters the server's host.
    fn write_agent(&self) -> std::io::Result<()> {
        let name = self.lab.hosts.b.name();
        let text = format!("#!/bin/sh\nshift\nexec ip netns exec {name} sh -c \"$*\"\n");
        let agent = self.work.file("agent");
        fs::write(&agent, text)?;
        fs::set_permissions(&agent, Permissions::from_mode(0o700))
    }

    /// A test of two ranks, which print what processor time they took for it.
    fn ranks(&self, test: &str, unit: f64, transport: Transport) -> Sample {
        let arguments = match transport {
            Tcp => "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth1".to_owned(),
            Rdma => format!(
                "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm --mca btl ^openib \
                 {} run --dev {DEV} --",
                self.lab.programs.xwarp()
            ),
        };
        let command = format!(
            "mpirun.openmpi --allow-run-as-root -np 2 --host {CLIENT},{SERVER} --mca plm_rsh_agent {} \
             {arguments} {} {test}",
            self.work.file("agent").display(),
            self.ranks
        );
        let row = last_row(&self.lab.ask(&command));
        let [figure, count, seconds] = [row[0], row[1], row[2]];
        Sample::with_cost(figure, seconds / (count / unit))
    }
}

/// The last row of a report that begins with a number; words in it are not numbers.
fn last_row(report: &str) -> Vec<f64> {
    let is_row = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let row = report.lines().rfind(is_row);
    let row = row.unwrap_or_else(|| panic!("no figures in: {report}"));
    let number = |word: &str| word.parse().unwrap_or(f64::NAN);
    row.split_whitespace().map(number).collect()
}

/// The latency or the bandwidth in what `qperf -uu` prints.
fn qperf_figure(report: &str) -> Option<f64> {
    report.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        ["latency", "bw"].contains(&name.trim()).then_some(())?;
        value.split_whitespace().next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_of_qperf_has_no_unit() {
        let report = "rc_lat:\n    latency  =  41900 ns\n";
        assert_eq!(qperf_figure(report), Some(41_900.0));
        assert_eq!(qperf_figure("tcp_bw:\n    bw  =  5 bytes/sec\n"), Some(5.0));
        assert_eq!(qperf_figure("failed\n"), None);
    }

    #[test]
    fn figures_are_in_the_last_row_of_numbers() {
        let report = " 1 2 3\n #bytes #iterations\n 64  5000  4.5\n--------\n";
        assert_eq!(last_row(report), [64.0, 5000.0, 4.5]);
        assert!(last_row("64 5k 2.5")[1].is_nan());
    }

    #[test]
    fn goal_allows_a_part_or_an_addition() {
        assert!(Goal::More(0.03).is_met(10.0, 9.7));
        assert!(!Goal::More(0.03).is_met(10.0, 9.6));
        assert!(Goal::Less(0.15).is_met(2.0, 2.15));
        assert!(!Goal::Less(0.0).is_met(2.0, 2.1));
    }
}

//! Programs of one host by a software switch, next to the kernel's TCP over `lo`, to `memcpy` and
//! to two hosts: `tools/bench --local`.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use xwarp_system_tests::{Running, Shape};

use crate::figures::{Figures, Sample, take_turns};
use crate::lab::{Lab, Programs, numbers, parsed, start};
use crate::link::rate;
use crate::reports::{Bandwidth, Iperf, Latency, PerfReport};

/// One host with a switch, and another one that is reached by an interface.
struct Bench<'a> {
    lab: &'a Lab,
    switch: Running,
    socket: String,
}

impl<'a> Bench<'a> {
    fn new(lab: &'a Lab) -> Self {
        let socket = lab.hosts.work.file("xw0.sock").display().to_string();
        let xwarp = lab.programs.xwarp();
        let serve = format!("{xwarp} serve --local xw0 --address 127.0.0.1 --socket {socket}");
        let mut switch = start(&lab.hosts.b, &serve);
        switch.line("programs find it");
        Self {
            lab,
            switch,
            socket,
        }
    }

    /// Runs a server and its client on the switch's host. Returns what the client prints.
    fn exchange(&self, ready: &str, server: &str, client: &str) -> String {
        let host = &self.lab.hosts.b;
        let mut serving = start(host, server);
        serving.line(ready);
        let told = start(host, client).finish().succeeded().stdout;
        serving.signal(Signal::SIGTERM);
        serving.finish();
        told
    }

    /// What `xwarp perf` reports.
    fn perf(&self, test: &str) -> String {
        let perf = format!(
            "{} perf {test} --service {}",
            self.lab.programs.xwarp(),
            self.socket
        );
        self.exchange("waiting", &perf, &format!("{perf} --json 127.0.0.1"))
    }

    fn bandwidth(&self, test: &str) -> Bandwidth {
        parsed::<PerfReport<_>>(&self.perf(test)).result
    }

    /// Microseconds of a round trip.
    fn round_trip(&self, test: &str) -> Sample {
        let report: PerfReport<Latency> = parsed(&self.perf(test));
        Sample::of(report.result.percentiles_nanoseconds.p50 / 500.0)
    }

    fn round_trip_by_tcp(&self, how: &str) -> Sample {
        let link = self.lab.programs.link();
        let told = self.exchange(
            "ready",
            &format!("{link} tcp-pong 127.0.0.1:7001 64 {how}"),
            &format!("{link} tcp-ping 127.0.0.1:7001 64 {how}"),
        );
        Sample::of(numbers(&told)[0])
    }

    /// Gb/s by the kernel's TCP with writes of 64 KiB.
    fn bandwidth_by_tcp(&self) -> Sample {
        let told = self.exchange(
            "Server listening",
            "iperf3 --server --one-off --forceflush",
            "iperf3 --client 127.0.0.1 --time 2 --length 64K --json",
        );
        Sample::of(parsed::<Iperf>(&told).received().bits_per_second / 1e9)
    }

    /// Gb/s of one thread that copies.
    fn memcpy(&self) -> Sample {
        let copy = format!("{} copy", self.lab.programs.link());
        let told = start(&self.lab.hosts.b, &copy).finish().succeeded().stdout;
        Sample::of(numbers(&told)[0])
    }

    /// Milliseconds from the beginning to the end of a program with a switch of its own.
    fn whole_run(&self) -> Sample {
        let command = format!("{} run --local -- true", self.lab.programs.xwarp());
        let began = Instant::now();
        start(&self.lab.hosts.b, &command).finish().succeeded();
        Sample::of(milliseconds(began.elapsed()))
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn table(programs: &Programs, rounds: usize) {
    let lab = Lab::with_offloads(programs, "native", Shape::default());
    let bench = Bench::new(&lab);
    println!(
        "\n== medians of {rounds} rounds in turn (least-most): two processes of one user by a switch, next to what is named"
    );
    println!("{:<48}{:>22}{:>22}{:>8}", "", "other", "RDMA", "ratio");
    let writes = || {
        Sample::of(
            bench
                .bandwidth("write-bw --size 64K --duration 2s")
                .gigabits_per_second,
        )
    };
    let [tcp, copies, rdma] = take_turns(
        rounds,
        [&|| bench.bandwidth_by_tcp(), &|| bench.memcpy(), &writes],
    );
    row(
        "64 KiB Writes, TCP over lo [Gb/s]",
        &tcp.figures(),
        &rdma.figures(),
    );
    row(
        "64 KiB Writes, memcpy of a thread [Gb/s]",
        &copies.figures(),
        &rdma.figures(),
    );
    let spinning = "write-lat --size 64 --iterations 20000 --wait busy";
    let sleeping = "send-lat --size 64 --iterations 20000 --wait blocking";
    let [tcp, rdma, asleep_tcp, asleep] = take_turns(
        rounds,
        [
            &|| bench.round_trip_by_tcp(""),
            &|| bench.round_trip(spinning),
            &|| bench.round_trip_by_tcp("--blocking"),
            &|| bench.round_trip(sleeping),
        ],
    );
    row(
        "round trip 64 B spinning, TCP over lo [us]",
        &tcp.figures(),
        &rdma.figures(),
    );
    row(
        "round trip 64 B sleeping, TCP over lo [us]",
        &asleep_tcp.figures(),
        &asleep.figures(),
    );
    let messages = "write-bw --size 64 --duration 2s";
    let [direct, rdma] = take_turns(
        rounds,
        [&|| rate(&lab, "write-bw", 64), &|| {
            Sample::of(bench.bandwidth(messages).million_messages_per_second)
        }],
    );
    row(
        "64 B Writes, two hosts over veth [M/s]",
        &direct.figures(),
        &rdma.figures(),
    );
    let [whole] = take_turns(rounds, [&|| bench.whole_run()]);
    println!(
        "{:<48}{:>22}{:>22}",
        "xwarp run --local -- true [ms]",
        "-",
        whole.figures()
    );
    let Bench { mut switch, .. } = bench;
    switch.signal(Signal::SIGTERM);
    switch.finish();
}

fn row(name: &str, other: &Figures, rdma: &Figures) {
    let ratio = rdma.median() / other.median();
    println!("{name:<48}{other:>22}{rdma:>22}{ratio:>8.2}");
}

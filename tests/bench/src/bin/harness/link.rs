//! What RDMA makes of a link, next to raw `AF_XDP` and to the kernel's TCP: `tools/bench --link`.

use anyhow::ensure;
use xwarp_system_tests::Shape;

use crate::figures::{Figures, Sample, Samples, take_turns};
use crate::lab::{Lab, Programs, numbers};

/// Frames on their way from a raw source; the best of these windows counts.
const WINDOWS: [u32; 3] = [16, 64, 256];
/// Sizes of messages whose rates are measured.
const SIZES: [u32; 3] = [8, 64, 512];

/// One kind of link, and how often each contender is measured on it.
struct Bench<'a> {
    lab: Lab,
    rounds: usize,
    /// Measurements in which raw frames were no ceiling.
    passed: &'a mut Vec<String>,
}

pub(crate) fn table(programs: &Programs, rounds: usize, mtus: &[u32]) -> anyhow::Result<()> {
    println!(
        "\n== medians of {rounds} rounds in turn (least-most), all spinning; raw AF_XDP with the best of three windows; \
         kernel TCP without offloads, but with all of them at MTU 65535"
    );
    println!(
        "{:<22}{:>6} {:<8}{:>22}{:>22}{:>22}{:>8}{:>8}",
        "", "MTU", "mode", "raw AF_XDP", "kernel TCP", "RDMA", "/ raw", "/ TCP"
    );
    let mut passed = Vec::new();
    for &mtu in mtus {
        for mode in ["native", "generic"] {
            let shape = Shape {
                mtu,
                ..Shape::default()
            };
            let new = if mtu == 65535 {
                Lab::with_offloads
            } else {
                Lab::new
            };
            let mut bench = Bench {
                lab: new(programs, mode, shape),
                rounds,
                passed: &mut passed,
            };
            bench.streams();
            if mtu == 1500 {
                bench.latency();
                for size in SIZES {
                    bench.rates(size);
                }
            }
        }
    }
    ensure!(
        passed.is_empty(),
        "raw AF_XDP is no ceiling here: {}; measure again on a quiet machine",
        passed.join("; ")
    );
    Ok(())
}

impl Bench<'_> {
    /// Bandwidth, and the processor time that a gigabyte takes.
    fn streams(&mut self) {
        let lab = &self.lab;
        let [raw, tcp, xwarp] = take_turns(
            self.rounds,
            [&|| raw_bandwidth(lab), &|| tcp_bandwidth(lab), &|| {
                bandwidth(lab)
            }],
        );
        self.row(
            "bandwidth [Gb/s]",
            Some(&raw.figures()),
            &tcp.figures(),
            &xwarp.figures(),
        );
        self.row("CPU time [s/GB]", None, &tcp.costs(), &xwarp.costs());
        let is_passed = xwarp.figures().least() > raw.figures().most();
        self.note("bandwidth", is_passed);
        report_drops(&raw, self.lab.mtu + 14);
    }

    /// Message rates of one size, and the processor time that a million takes.
    fn rates(&mut self, size: u32) {
        let lab = &self.lab;
        let of = |test: &'static str| move || rate(lab, test, size);
        let [raw, tcp, write, send, read] = take_turns(
            self.rounds,
            [
                &|| raw_rate(lab, size),
                &|| tcp_rate(lab, size),
                &of("write-bw"),
                &of("send-bw"),
                &of("read-bw"),
            ],
        );
        for (verb, samples) in [("write", write), ("send", send), ("read", read)] {
            let name = format!("{verb} {size} B [M/s]");
            self.row(
                &name,
                Some(&raw.figures()),
                &tcp.figures(),
                &samples.figures(),
            );
            self.row("CPU time [s/M]", None, &tcp.costs(), &samples.costs());
        }
        report_drops(&raw, size);
    }

    fn latency(&mut self) {
        let lab = &self.lab;
        let [raw, tcp, xwarp] = take_turns(
            self.rounds,
            [&|| raw_latency(lab), &|| tcp_latency(lab), &|| {
                latency(lab, &lab.programs.xwarp())
            }],
        );
        let [raw, tcp, xwarp] = [raw, tcp, xwarp].map(|it| it.figures());
        self.row("round trip 64 B [us]", Some(&raw), &tcp, &xwarp);
        self.note("latency", raw.least() > xwarp.most());
    }

    /// Notes that a contender was better than raw frames in every round.
    fn note(&mut self, what: &str, is_passed: bool) {
        if is_passed {
            let Lab { mtu, mode, .. } = self.lab;
            self.passed.push(format!("{what} at MTU {mtu}, {mode}"));
        }
    }

    /// A line with medians and spreads, and the ratios of the medians.
    fn row(&self, name: &str, raw: Option<&Figures>, tcp: &Figures, xwarp: &Figures) {
        let Lab { mtu, mode, .. } = self.lab;
        let (cell, ratio) = raw.map_or(("-".to_owned(), "-".to_owned()), |raw| {
            let ratio = xwarp.median() / raw.median();
            (raw.to_string(), format!("{ratio:.2}"))
        });
        let to_tcp = xwarp.median() / tcp.median();
        println!(
            "{name:<22}{mtu:>6} {mode:<8}{cell:>22}{tcp:>22}{xwarp:>22}{ratio:>8}{to_tcp:>8.2}"
        );
    }
}

/// Prints raw frames that were dropped on the way, which a ceiling must not have paid for.
fn report_drops(raw: &Samples, bytes: u32) {
    let most = raw.dropped();
    if most > 0.0 {
        println!("  of the raw frames of {bytes} bytes up to {most} were dropped in a round");
    }
}

/// Frames per second with the best window, as what carries most depends on the frame's size.
fn raw_frames(lab: &Lab, bytes: u32) -> Sample {
    let samples = WINDOWS.map(|window| {
        let sink = lab.raw("raw-sink", &lab.hosts.b, bytes);
        let source = lab.raw("raw-source", &lab.hosts.a, bytes);
        let exchange = lab.exchange(
            "ready",
            &format!("{sink} --window {window}"),
            &format!("{source} --window {window} --milliseconds 1000"),
        );
        let said = numbers(&exchange.server);
        Sample {
            figure: said[0],
            cost: None,
            dropped: Some(said[2]),
        }
    });
    let best = samples
        .into_iter()
        .max_by(|a, b| a.figure.total_cmp(&b.figure));
    best.unwrap_or_default()
}

/// Gb/s of whole frames.
fn raw_bandwidth(lab: &Lab) -> Sample {
    let bytes = lab.mtu + 14;
    let sample = raw_frames(lab, bytes);
    Sample {
        figure: sample.figure * f64::from(bytes) * 8.0 / 1e9,
        ..sample
    }
}

/// Gb/s of TCP payload.
pub(crate) fn tcp_bandwidth(lab: &Lab) -> Sample {
    let (report, exchange) = lab.stream_by_tcp("128K");
    let received = report.received();
    exchange.sample(received.bits_per_second / 1e9, received.bytes / 1e9)
}

/// Gb/s of messages of 64 KiB.
pub(crate) fn bandwidth(lab: &Lab) -> Sample {
    let test = "write-bw --size 64K --duration 2s";
    let (report, exchange) = lab.bandwidth_of(&lab.programs.xwarp(), test);
    exchange.sample(report.gigabits_per_second, report.messages * 65536.0 / 1e9)
}

/// Millions of frames per second, of a message's bytes and an Ethernet header. None is shorter than
/// its number allows.
fn raw_rate(lab: &Lab, size: u32) -> Sample {
    let sample = raw_frames(lab, (size + 14).max(62));
    Sample {
        figure: sample.figure / 1e6,
        ..sample
    }
}

/// Millions of writes per second.
fn tcp_rate(lab: &Lab, size: u32) -> Sample {
    let (report, exchange) = lab.stream_by_tcp(&size.to_string());
    let (received, size) = (report.received(), f64::from(size));
    exchange.sample(
        received.bits_per_second / 8.0 / size / 1e6,
        received.bytes / size / 1e6,
    )
}

/// Millions of messages per second.
pub(crate) fn rate(lab: &Lab, test: &str, size: u32) -> Sample {
    let test = format!("{test} --size {size} --duration 2s");
    let (report, exchange) = lab.bandwidth_of(&lab.programs.xwarp(), &test);
    exchange.sample(report.million_messages_per_second, report.messages / 1e6)
}

/// Microseconds of a round trip.
fn raw_latency(lab: &Lab) -> Sample {
    let server = lab.raw("raw-pong", &lab.hosts.b, 78);
    let client = lab.raw("raw-ping", &lab.hosts.a, 78);
    Sample::of(numbers(&lab.exchange("ready", &server, &client).client)[0])
}

fn tcp_latency(lab: &Lab) -> Sample {
    let link = lab.programs.link();
    let exchange = lab.exchange(
        "ready",
        &format!("{link} tcp-pong 10.77.0.2:7001 64"),
        &format!("{link} tcp-ping 10.77.0.2:7001 64"),
    );
    Sample::of(numbers(&exchange.client)[0])
}

/// Microseconds of a round trip. `xwarp perf` reports half of it.
pub(crate) fn latency(lab: &Lab, xwarp: &str) -> Sample {
    let test = "write-lat --size 64 --iterations 20000 --wait busy";
    Sample::of(lab.median_of(xwarp, test).0 * 2.0)
}

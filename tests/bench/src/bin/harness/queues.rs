//! What several queues and engines make of a link, what the driver alone takes, and what an idle
//! RNIC takes: `tools/bench --link --queues`. What engine N sends arrives at queue N.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Running, Shape, WorkDir, output_of};

use crate::figures::{Figures, Sample, take_turns};
use crate::lab::{Lab, Programs, SERVER, numbers, per_frame, start};
use crate::reports::Bandwidth;

const CONNECTIONS: u32 = 8;
const MTU: u32 = 1500;
/// How long callgrind counts frames.
const COUNTED_MILLISECONDS: u32 = 300;
/// The sleep of a loop under callgrind after a turn without frames, in microseconds.
const PAUSE: u32 = 500;
/// How long an idle process is looked at.
const IDLE: Duration = Duration::from_secs(5);

/// Something that takes frames as xwarp's driver does.
pub(crate) struct Loop<'a> {
    pub(crate) name: &'static str,
    pub(crate) program: &'a Path,
    /// Its function that callgrind counts.
    pub(crate) turn: &'static str,
}

pub(crate) fn table(programs: &Programs, rounds: usize, loops: &[Loop<'_>]) -> anyhow::Result<()> {
    println!(
        "\n== medians of {rounds} rounds in turn (least-most) of {CONNECTIONS} connections, MTU {MTU}, XDP native, copy mode, \
         two processors for both hosts"
    );
    heading("", "one engine", "an engine each");
    for queues in [1, 2, 4] {
        let lab = Lab::new(programs, "native", shape(queues));
        let row = |name, test, figure| engines_row(&lab, rounds, queues, name, test, figure);
        row("write 64 KiB [Gb/s]", "write-bw --size 64K", gigabits);
        row("write 64 B [M/s]", "write-bw --size 64", rate);
        row("send 64 B [M/s]", "send-bw --size 64", rate);
    }
    let lab = Lab::new(programs, "native", shape(1));
    for other in loops {
        heading("driver, frames of 64 bytes", other.name, "xwarp");
        driver_rows(&lab, rounds, other)?;
    }
    for engine in ["inline", "thread", "assisted"] {
        let name = format!("idle, {engine} [% of a core]");
        last_row(&name, &format!("{:.2}", idle_server(&lab, engine)));
    }
    last_row(
        "idle connection [% of a core]",
        &format!("{:.2}", idle_connection(&lab)),
    );
    let [blocking] = take_turns(rounds, [&|| wakeup(&lab)]);
    last_row(
        "Send 64 B to a sleeper [us]",
        &blocking.figures().median().to_string(),
    );
    Ok(())
}

fn shape(queues: u32) -> Shape {
    Shape {
        mtu: MTU,
        queues,
        ..Shape::default()
    }
}

fn heading(name: &str, first: &str, second: &str) {
    println!(
        "{name:<34}{:>8}{first:>24}{second:>24}{:>8}",
        "queues", "ratio"
    );
}

/// A line with the figures of two contenders and their ratio.
fn row(queues: u32, name: &str, first: &Figures, second: &Figures) {
    let ratio = second.median() / first.median();
    println!("{name:<34}{queues:>8}{first:>24}{second:>24}{ratio:>8.2}");
}

/// A line with one figure of xwarp.
fn last_row(name: &str, figure: &str) {
    println!("{name:<34}{:>8}{figure:>48}", 1);
}

fn gigabits(report: &Bandwidth) -> f64 {
    report.gigabits_per_second
}

fn rate(report: &Bandwidth) -> f64 {
    report.million_messages_per_second
}

/// A line with one engine for all queues, and with one for each.
fn engines_row(
    lab: &Lab,
    rounds: usize,
    queues: u32,
    name: &str,
    test: &str,
    figure: fn(&Bandwidth) -> f64,
) {
    let over = |engines: u32| {
        let test = format!(
            "{test} --depth 16 --duration 2s --qps {CONNECTIONS} --engine thread --engines {engines}"
        );
        Sample::of(figure(&lab.bandwidth_of(&lab.programs.xwarp(), &test).0))
    };
    let [one, each] = take_turns(rounds, [&|| over(1), &|| over(queues)]);
    row(queues, name, &one.figures(), &each.figures());
}

fn driver_rows(lab: &Lab, rounds: usize, other: &Loop<'_>) -> anyhow::Result<()> {
    let program = other.program.display();
    for work in ["receive", "forward"] {
        let other = format!("{program} {DEV} copy {work} 0");
        let driver = format!("{} {work}", lab.raw("driver", &lab.hosts.b, 64));
        let by = |command: String| move || Sample::of(taken(lab, &command, 1500)[0] / 1e6);
        let [other, driver] = take_turns(rounds, [&by(other), &by(driver)]);
        let name = format!("{work} [M frames/s]");
        row(1, &name, &other.figures(), &driver.figures());
    }
    for work in ["receive", "forward"] {
        let driver = lab.raw("driver", &lab.hosts.b, 64);
        let looping = format!("{program} {DEV} copy {work} {PAUSE}");
        let counted_there = counted(lab, other.turn, &looping)?;
        let driver = format!("{driver} {work} --pause {PAUSE}");
        let driver = counted(lab, "link::driver::xwarp_turn", &driver)?;
        let name = format!("{work} [instr/frame]");
        println!("{name:<34}{:>8}{counted_there:>24}{driver:>24}", 1);
    }
    Ok(())
}

/// Frames per second, and all frames, that a command takes from a source that sends as fast as they
/// leave.
fn taken(lab: &Lab, command: &str, milliseconds: u32) -> Vec<f64> {
    let source = lab.raw("raw-source", &lab.hosts.a, 64);
    let source = format!("{source} --window 0 --milliseconds {milliseconds}");
    numbers(&lab.exchange("ready", command, &source).server)
}

/// Instructions per frame of a function, callees included, while a command takes frames.
fn counted(lab: &Lab, function: &str, command: &str) -> anyhow::Result<u64> {
    let work = WorkDir::new("xwarp-callgrind");
    let profile = work.file("profile");
    let valgrind = format!(
        "valgrind --quiet --tool=callgrind --callgrind-out-file={}",
        profile.display()
    );
    let frames = taken(lab, &format!("{valgrind} {command}"), COUNTED_MILLISECONDS)[1];
    let mut annotate = Command::new("callgrind_annotate");
    annotate.args(["--inclusive=yes", "--threshold=100", "--auto=no"]);
    annotate.arg(&profile);
    per_frame(&output_of(annotate), function, frames)
}

/// What a process takes of a core, in percent.
fn percent(process: &Running) -> f64 {
    // What begins it is over then.
    thread::sleep(Duration::from_secs(1));
    let before = process.processor_time();
    thread::sleep(IDLE);
    let took = process.processor_time().saturating_sub(before);
    took.as_secs_f64() / IDLE.as_secs_f64() * 100.0
}

/// A server that waits for a client.
fn idle_server(lab: &Lab, engine: &str) -> f64 {
    let xwarp = lab.programs.xwarp();
    let command = format!("{xwarp} perf write-bw --dev {DEV} --engine {engine}");
    let mut server = lab.serve("waiting", &command);
    let percent = percent(&server);
    server.signal(Signal::SIGTERM);
    server.finish();
    percent
}

/// The client of a connection that carries nothing for a while.
fn idle_connection(lab: &Lab) -> f64 {
    let xwarp = lab.programs.xwarp();
    let server = lab.serve("waiting", &format!("{xwarp} ping --dev {DEV}"));
    let command = format!("{xwarp} ping --interval 9s --count 2 {SERVER}");
    let mut client = start(&lab.hosts.a, &command);
    client.line("ping     0 ");
    let percent = percent(&client);
    client.finish().succeeded();
    server.finish().succeeded();
    percent
}

/// Microseconds of half a round trip in which the receiver sleeps.
fn wakeup(lab: &Lab) -> Sample {
    let test = "send-lat --size 64 --iterations 5000 --wait blocking";
    Sample::of(lab.median_of(&lab.programs.xwarp(), test).0)
}

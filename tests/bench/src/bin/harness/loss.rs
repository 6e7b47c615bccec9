//! Bandwidth on a link that loses segments, next to the kernel's TCP: `tools/bench --loss`.

use std::io::pipe;

use xwarp_system_tests::Shape;

use crate::figures::{Sample, take_turns};
use crate::lab::{Lab, Programs, start_reading};
use crate::link;

/// The parts of the client's segments that are lost.
const PARTS: [f64; 4] = [0.0, 0.001, 0.01, 0.05];
/// The switch's interface at the client.
const PORT: &str = "port-a";

pub(crate) fn table(programs: &Programs, rounds: usize) {
    println!(
        "\n== medians of {rounds} rounds, Gb/s at MTU 1500 by the part of the sender's segments that is lost; \
         kernel TCP without offloads"
    );
    println!(
        "{:<6}{:>14}{:>14}{:>14}{:>14}{:>14}",
        "loss", "kernel CUBIC", "xwarp CUBIC", "/ kernel", "xwarp BBR", "/ loss-free"
    );
    let shape = Shape {
        switched: true,
        ..Shape::default()
    };
    let lab = Lab::new(programs, "native", shape);
    let mut alone = None;
    for part in PARTS {
        let by_tcp = || losing(&lab, part, link::tcp_bandwidth);
        let by = |congestion: &'static str| {
            let lab = &lab;
            move || losing(lab, part, |lab| bandwidth(lab, congestion))
        };
        let samples = take_turns(rounds, [&by_tcp, &by("cubic"), &by("bbr")]);
        let [tcp, cubic, bbr] = samples.map(|it| it.figures().median());
        let alone = *alone.get_or_insert(bbr);
        println!(
            "{:<6}{tcp:>14.2}{cubic:>14.2}{:>14.2}{bbr:>14.2}{:>14.2}",
            format!("{} %", part * 100.0),
            cubic / tcp,
            bbr / alone
        );
    }
}

/// Measures while a part of the client's segments is lost.
fn losing(lab: &Lab, part: f64, measure: impl Fn(&Lab) -> Sample) -> Sample {
    if part == 0.0 {
        return measure(lab);
    }
    let (input, keep) = pipe().expect("a pipe");
    let command = format!("{} impair --dev {PORT} --loss {part}", lab.programs.link());
    let mut impairment = start_reading(lab.hosts.switch(), &command, input);
    impairment.line("ready");
    let sample = measure(lab);
    drop(keep);
    impairment.finish().succeeded();
    sample
}

fn bandwidth(lab: &Lab, congestion: &str) -> Sample {
    let test = format!("write-bw --size 64K --duration 3s --congestion {congestion}");
    let (report, _) = lab.bandwidth_of(&lab.programs.xwarp(), &test);
    Sample::of(report.gigabits_per_second)
}

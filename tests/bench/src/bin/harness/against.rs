//! Bandwidth, message rates and latency next to those of another commit: `tools/bench --against`.

use std::path::Path;

use anyhow::ensure;
use xwarp_system_tests::Shape;

use crate::figures::{Sample, general, take_turns};
use crate::lab::{Lab, Programs};
use crate::link;

const VERBS: [&str; 3] = ["write", "read", "send"];

pub(crate) fn table(programs: &Programs, rounds: usize, before: &Path) -> anyhow::Result<()> {
    println!("\n== medians of {rounds} rounds in turn (least-most), before and now");
    let mut worse = Vec::new();
    for mtu in [1500, 9000] {
        let shape = Shape {
            mtu,
            ..Shape::default()
        };
        let bench = Bench {
            lab: Lab::with_offloads(programs, "native", shape),
            rounds,
            before: before.display().to_string(),
        };
        for verb in VERBS {
            worse.extend(bench.more(&format!("{verb} 64 KiB"), "Gb/s", |lab, xwarp| {
                let test = format!("{verb}-bw --size 64K --duration 1s");
                Sample::of(lab.bandwidth_of(xwarp, &test).0.gigabits_per_second)
            }));
        }
        if mtu != 1500 {
            continue;
        }
        for verb in VERBS {
            worse.extend(bench.more(&format!("{verb} 64 B"), "M/s", |lab, xwarp| {
                let test = format!("{verb}-bw --size 64 --duration 1s");
                Sample::of(lab.bandwidth_of(xwarp, &test).0.million_messages_per_second)
            }));
        }
        worse.extend(bench.less("round trip 64 B", "us", link::latency));
    }
    ensure!(
        worse.is_empty(),
        "worse than before in every round: {}",
        worse.join("; ")
    );
    Ok(())
}

struct Bench {
    lab: Lab,
    rounds: usize,
    /// The command of the other commit.
    before: String,
}

impl Bench {
    /// A line where more is better. Returns what is worse in every round.
    fn more(&self, name: &str, unit: &str, test: impl Fn(&Lab, &str) -> Sample) -> Option<String> {
        self.line(name, unit, test, |[_, least], [_, most]| most < least)
    }

    /// A line where less is better.
    fn less(&self, name: &str, unit: &str, test: impl Fn(&Lab, &str) -> Sample) -> Option<String> {
        self.line(name, unit, test, |[most, _], [least, _]| least > most)
    }

    /// A line with both, and whether now's is worse: given are the most and the least before, and
    /// the least and the most now.
    fn line(
        &self,
        name: &str,
        unit: &str,
        test: impl Fn(&Lab, &str) -> Sample,
        is_worse: fn([f64; 2], [f64; 2]) -> bool,
    ) -> Option<String> {
        let (lab, now) = (&self.lab, self.lab.programs.xwarp());
        let both = take_turns(
            self.rounds,
            [&|| test(lab, &self.before), &|| test(lab, &now)],
        );
        let [before, now] = both.map(|it| it.figures());
        let cells = [&before, &now].map(|it| {
            let [median, least, most] = [it.median(), it.least(), it.most()].map(general);
            format!("{median:>14} ({least}-{most})")
        });
        let mtu = lab.mtu;
        println!(
            "{:<26}{mtu:>6}{}{:>8.2}",
            format!("{name} [{unit}]"),
            cells.concat(),
            now.median() / before.median()
        );
        let is_worse = is_worse([before.most(), before.least()], [now.least(), now.most()]);
        is_worse.then(|| format!("{name} at MTU {mtu}"))
    }
}

//! The XDP program and the TCP engine read the same headers, each for itself. Here both are given
//! the same frames, whole ones and broken ones. What the program redirects, the engine takes, or
//! drops for a cause that only it looks for. What the program passes, the engine would not take.
//!
//! The program is run by the kernel (`BPF_PROG_TEST_RUN`), which needs root. `XWARP_FUZZ_SEED`
//! gives other frames, `XWARP_FUZZ_FRAMES` more.

mod engine;
mod frames;
mod program;

use std::collections::BTreeMap;

use xwarp_bpf::Verdict;
use xwarp_test_kit::needs_root;

use engine::{Engine, Outcome};
use frames::Dice;
use program::Program;

/// Frames that are compared, unless `XWARP_FUZZ_FRAMES` says otherwise.
const FRAMES: usize = 30_000;
/// What the program does not look for.
const LEFT_TO_THE_ENGINE: [Outcome; 8] = [
    Outcome::Drop("drop_other_station"),
    Outcome::Drop("drop_bad_source"),
    Outcome::Drop("drop_source_route"),
    Outcome::Drop("drop_bad_ip_option"),
    Outcome::Drop("drop_bad_extension"),
    Outcome::Drop("drop_bad_checksum"),
    Outcome::Drop("drop_partial_checksum"),
    Outcome::Drop("drop_bad_tcp"),
];

/// May the engine do this with a frame of this verdict?
fn agree(verdict: Verdict, outcome: Outcome) -> bool {
    match verdict {
        // There is no socket: the program would have redirected it.
        Verdict::NoSocket | Verdict::Unserved | Verdict::Redirected => {
            outcome == Outcome::Taken || LEFT_TO_THE_ENGINE.contains(&outcome)
        }
        // TCP for another socket never reaches the engine, which would answer with a RST.
        Verdict::NotOurFlow => true,
        Verdict::GroupMac => outcome == Outcome::Drop("drop_not_unicast"),
        _ => outcome != Outcome::Taken,
    }
}

fn number(variable: &str, otherwise: usize) -> usize {
    let value = std::env::var(variable).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

#[test]
fn program_and_engine_agree_about_every_frame() {
    needs_root!();
    let seed = number("XWARP_FUZZ_SEED", 0x5157);
    let mut dice = Dice::new(seed as u64);
    let (program, mut engine) = (Program::load(), Engine::new());
    let mut pairs: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..number("XWARP_FUZZ_FRAMES", FRAMES) {
        let frame = frames::any(&mut dice);
        let (verdict, outcome) = (program.judge(&frame), engine.judge(&frame));
        assert!(
            agree(verdict, outcome),
            "frame {n} of seed {seed}: the program says {verdict}, the engine {outcome:?}: {frame:02x?}"
        );
        *pairs.entry(format!("{verdict} {outcome:?}")).or_default() += 1;
    }
    println!("{pairs:#?}");
    check_coverage(&pairs);
}

/// The frames were such that there was something to disagree about.
fn check_coverage(pairs: &BTreeMap<String, usize>) {
    let all = [Outcome::Taken].into_iter().chain(LEFT_TO_THE_ENGINE);
    for outcome in all {
        let name = format!("{} {outcome:?}", Verdict::NoSocket);
        assert!(pairs.get(&name).is_some_and(|count| *count >= 10), "{name}");
    }
    for verdict in Verdict::ALL {
        let name = format!("{verdict} ");
        let count: usize = pairs
            .iter()
            .filter(|(pair, _)| pair.starts_with(&name))
            .map(|(_, count)| count)
            .sum();
        // There is no socket at any queue.
        let expected = !matches!(verdict, Verdict::Redirected | Verdict::Unserved);
        assert_eq!(count >= 10, expected, "{verdict}: {count}");
    }
}

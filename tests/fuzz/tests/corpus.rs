//! The committed corpus, as it is and mutated. Each file is one input in hex; blanks, line ends and
//! lines after `#` do not count.
//!
//! | variable | meaning |
//! |---|---|
//! | `XWARP_FUZZ_SECONDS` | how long inputs are mutated; unless set, a fixed number of them |
//! | `XWARP_FUZZ_TARGET` | only this target |
//! | `XWARP_FUZZ_SEED` | other mutations |
//!
//! The program `replay` runs one input alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use xwarp_fuzz::{
    Behaviour, Mutator, Predicted, TARGETS, Target, connection, from_hex, segments, to_hex,
};

/// Mutated inputs of each target: enough for a second or two. `XWARP_FUZZ_SECONDS` sets a time
/// instead.
const INPUTS: [(&str, u64); TARGETS.len()] = [
    ("startup", 20_000),
    ("framing", 20_000),
    ("segments", 20_000),
    ("connection", 20_000),
    ("rendezvous", 20_000),
    ("control", 20_000),
    ("switch", 10_000),
    ("rnic", 200),
];

/// All inputs of a target, with their names. Miri, which takes a microsecond for an instruction,
/// has time for the shortest one.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut inputs: Vec<(String, Vec<u8>)> = folder
        .read_dir()
        .expect("each target has a corpus")
        .map(|entry| {
            let path = entry.expect("a file").path();
            let text = std::fs::read_to_string(&path).expect("hex");
            let input = from_hex(&text).expect("an even number of hex digits");
            (path.display().to_string(), input)
        })
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{target} has no corpus");
    if cfg!(miri) {
        inputs.sort_by_key(|(_, input)| input.len());
        inputs.truncate(1);
    }
    inputs
}

#[test]
fn corpus_is_survived() {
    for (name, target) in TARGETS {
        for (file, input) in corpus(name) {
            println!("{file}");
            target(&input);
        }
    }
}

/// Else mutations would hardly reach what an RNIC does with nearly all of its segments.
#[test]
#[cfg_attr(miri, ignore = "runs one input of each target only")]
fn corpus_has_segments_that_are_predicted() {
    let both: [fn(&[u8]) -> Predicted; 2] = [segments, connection];
    for (name, target) in ["segments", "connection"].into_iter().zip(both) {
        let inputs = corpus(name);
        let predicted = || inputs.iter().map(|(_, input)| target(input));
        let writes: usize = predicted().map(|it| it.writes).sum();
        let sends: usize = predicted().map(|it| it.sends).sum();
        let told = format!("{name}: {writes} Writes, {sends} Sends");
        assert!(writes > 0 && sends > 0, "{told}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs hours")]
fn every_prefix_of_the_corpus_is_survived() {
    for (name, target) in TARGETS {
        for (_, input) in corpus(name) {
            for len in 0..input.len() {
                target(&input[..len]);
            }
        }
    }
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// When a target has had enough.
#[derive(Clone, Copy)]
enum Enough {
    Inputs(u64),
    Time(Duration),
}

impl Enough {
    /// `targets` share the time.
    fn of(name: &str, targets: usize) -> Self {
        if let Some(seconds) = number("XWARP_FUZZ_SECONDS") {
            let targets = u32::try_from(targets).expect("a few");
            return Self::Time(Duration::from_secs(seconds) / targets);
        }
        let inputs = INPUTS.into_iter().find(|(target, _)| *target == name);
        Self::Inputs(inputs.expect("each target has a number").1)
    }

    fn is_reached(self, inputs: u64, time: Duration) -> bool {
        match self {
            Self::Inputs(enough) => inputs >= enough,
            Self::Time(enough) => time >= enough,
        }
    }
}

/// Inputs that cause new behaviour are mutated further, if the target reports behaviour.
#[test]
#[cfg_attr(miri, ignore = "needs hours")]
fn mutations_of_the_corpus_are_survived() {
    let seed = number("XWARP_FUZZ_SEED").unwrap_or(0x5157);
    let only = std::env::var("XWARP_FUZZ_TARGET").ok();
    let chosen = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let targets: Vec<_> = TARGETS
        .into_iter()
        .filter(|(name, _)| chosen(name))
        .collect();
    assert!(!targets.is_empty(), "XWARP_FUZZ_TARGET names no target");
    for (name, target) in &targets {
        let enough = Enough::of(name, targets.len());
        mutate(name, *target, enough, &mut Mutator::new(seed));
    }
}

fn mutate(name: &str, target: Target, enough: Enough, mutator: &mut Mutator) {
    let mut inputs: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, input)| input).collect();
    let mut known: BTreeSet<Behaviour> = inputs.iter().map(|input| target(input)).collect();
    let (began, before, mut runs) = (Instant::now(), known.len(), 0_u64);
    while !enough.is_reached(runs, began.elapsed()) {
        let input = &inputs[mutator.below(inputs.len())];
        let other = &inputs[mutator.below(inputs.len())];
        let mutated = mutator.mutate(input, other);
        let Ok(behaviour) = std::panic::catch_unwind(|| target(&mutated)) else {
            let input = to_hex(&mutated);
            panic!("it fails: cargo run --package xwarp-fuzz --bin replay -- {name} {input}");
        };
        if known.insert(behaviour) {
            inputs.push(mutated);
        }
        runs += 1;
    }
    println!("{name}: {runs} inputs, {} behaviours", known.len());
    assert!(runs > 0, "{name}: no time for a single input");
    // Targets that tell nothing have one behaviour.
    let tells = before > 1;
    assert!(!tells || known.len() > before, "{name}: nothing new");
}

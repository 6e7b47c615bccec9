//! The committed corpus, as it is and mutated. Each file is one input in hex; blanks, line ends and lines after `#` do not count.
//!
//! | variable | meaning |
//! |---|---|
//! | `XWARP_FUZZ_SECONDS` | how long inputs are mutated, 5 unless set |
//! | `XWARP_FUZZ_TARGET` | only this target |
//! | `XWARP_FUZZ_SEED` | other mutations |
//! | `XWARP_FUZZ_INPUT` | runs this input alone, in hex |

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use xwarp_fuzz::{Behaviour, Mutator, TARGETS, Target};

/// Seconds of mutation for all targets together, unless `XWARP_FUZZ_SECONDS` says otherwise.
const DEFAULT_SECONDS: u64 = 5;

/// All inputs of a target, with their names.
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
            (path.display().to_string(), octets(&text))
        })
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{target} has no corpus");
    inputs
}

fn octets(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::chars)
        .filter_map(|c| c.to_digit(16))
        .map(|digit| u8::try_from(digit).expect("below 16"))
        .collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "odd number of hex digits");
    pairs.iter().map(|[high, low]| high << 4 | low).collect()
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

#[test]
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
    std::env::var(variable).ok()?.parse().ok()
}

/// Inputs that do something new are mutated further, where a target tells.
#[test]
fn mutations_of_the_corpus_are_survived() {
    let seconds = number("XWARP_FUZZ_SECONDS").unwrap_or(DEFAULT_SECONDS);
    let seed = number("XWARP_FUZZ_SEED").unwrap_or(0x5157);
    let only = std::env::var("XWARP_FUZZ_TARGET").ok();
    let chosen = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let targets: Vec<_> = TARGETS
        .into_iter()
        .filter(|(name, _)| chosen(name))
        .collect();
    assert!(!targets.is_empty(), "XWARP_FUZZ_TARGET names no target");
    let share = Duration::from_secs(seconds) / u32::try_from(targets.len()).expect("a few");
    for (name, target) in targets {
        mutate(name, target, share, &mut Mutator::new(seed));
    }
}

fn mutate(name: &str, target: Target, time: Duration, mutator: &mut Mutator) {
    let mut inputs: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, input)| input).collect();
    let mut known: BTreeSet<Behaviour> = inputs.iter().map(|input| target(input)).collect();
    let (began, mut runs) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        let input = &inputs[mutator.below(inputs.len())];
        let other = &inputs[mutator.below(inputs.len())];
        let mutated = mutator.mutate(input, other);
        let Ok(behaviour) = std::panic::catch_unwind(|| target(&mutated)) else {
            panic!("{name} fails on {}", hex(&mutated));
        };
        if known.insert(behaviour) {
            inputs.push(mutated);
        }
        runs += 1;
    }
    println!("{name}: {runs} inputs, {} behaviours", known.len());
}

fn hex(octets: &[u8]) -> String {
    let digits = octets.iter().flat_map(|octet| [octet >> 4, octet & 15]);
    digits
        .map(|digit| char::from_digit(u32::from(digit), 16).expect("below 16"))
        .collect()
}

/// `XWARP_FUZZ_INPUT`, in hex, goes to `XWARP_FUZZ_TARGET`: what a failure of the mutations printed.
#[test]
fn one_input_from_the_environment_is_survived() {
    let (Ok(text), Ok(name)) = (
        std::env::var("XWARP_FUZZ_INPUT"),
        std::env::var("XWARP_FUZZ_TARGET"),
    ) else {
        return;
    };
    let (_, target) = TARGETS
        .into_iter()
        .find(|(target, _)| *target == name)
        .expect("a target");
    println!("{:?}", target(&octets(&text)));
}

//! The committed corpus, as it is and mutated. Each file is one input in hex; blanks, line ends and lines after `#` do not count.

use std::path::Path;
use std::time::{Duration, Instant};
use xwarp_fuzz::{Mutator, TARGETS};

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

#[test]
fn mutations_of_the_corpus_are_survived() {
    let seconds = std::env::var("XWARP_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(DEFAULT_SECONDS);
    let share = Duration::from_secs(seconds) / u32::try_from(TARGETS.len()).expect("a few");
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        let (began, mut mutator, mut runs) = (Instant::now(), Mutator::new(0x5157), 0_u64);
        while began.elapsed() < share {
            let input = &inputs[mutator.below(inputs.len())].1;
            let other = &inputs[mutator.below(inputs.len())].1;
            let mutated = mutator.mutate(input, other);
            if std::panic::catch_unwind(|| target(&mutated)).is_err() {
                let hex: String = mutated
                    .iter()
                    .flat_map(|octet| [octet >> 4, octet & 15])
                    .map(digit)
                    .collect();
                panic!("{name} fails on {hex}");
            }
            runs += 1;
        }
        println!("{name}: {runs} inputs");
    }
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).expect("below 16")
}

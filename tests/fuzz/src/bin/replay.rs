//! Gives one input to a fuzz target: what a failed run of the mutations has printed, or a file of
//! the corpus.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use xwarp_fuzz::{TARGETS, from_hex};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match replay(&arguments) {
        Ok(behaviour) => println!("{behaviour}"),
        Err(complaint) => {
            eprintln!("replay: {complaint}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn replay(arguments: &[String]) -> Result<String, String> {
    let [name, input] = arguments else {
        return Err("needs a target and an input, which is a file or hex digits".to_owned());
    };
    let target = TARGETS.into_iter().find(|(target, _)| target == name);
    let (_, target) = target.ok_or_else(|| {
        let names: Vec<_> = TARGETS.map(|(target, _)| target).into();
        format!("no target {name}; there are {}", names.join(", "))
    })?;
    let text = std::fs::read_to_string(input).unwrap_or_else(|_| input.clone());
    let strange = |c: char| !c.is_ascii_hexdigit() && !c.is_whitespace();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    if lines.any(|line| line.contains(strange)) {
        return Err(format!("{input} is neither a file nor hex digits"));
    }
    let bytes = from_hex(&text).ok_or("an odd number of hex digits")?;
    Ok(format!("{:?} of {} bytes", target(&bytes), bytes.len()))
}

//! Boots a guest, runs the shell commands of the command line in it, and prints what they print.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use xwarp_guest_tests::siw::{Guest, Image, Lab};

/// As good as no limit.
const LIMIT: Duration = Duration::from_hours(24);

fn main() -> ExitCode {
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let Some(image) = Image::find() else {
        return ExitCode::from(77);
    };
    let lab = Lab::new();
    let guest = Guest::boot(&lab, &image, 1);
    let mut job = guest.start(&format!("{{ {command}; }} </dev/null"));
    while let Some(line) = job.next_line(LIMIT) {
        println!("{line}");
    }
    let status = job.finish().status();
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}

//! xwarp to xwarp against siw to siw: the same two guests, the same link, one run.
//!
//! All times are taken outside the guests, the same way for both. The result is what more messages take, less what a few take, so that
//! start-up and tear-down cancel out. (perftest's own figures cannot be had in User-Mode Linux, where it finds no clock that it trusts.)
#![forbid(unsafe_code)]

use std::process::ExitCode;

use xwarp_interop_tests::{Guest, Image, Lab};

mod contender;
mod pace;

use contender::{Case, Contender};
use pace::Pace;

/// Of each case, and each contender in turn. Odd, for the median.
const ROUNDS: usize = 3;
/// Of Writes only: `ib_read_bw` between two siw stalls for ever now and then.
const BANDWIDTH: &str = "write";
const SIZES: [u64; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
const LATENCY: [&str; 2] = ["write", "read"];
const LATENCY_SIZE: u64 = 64;

fn main() -> ExitCode {
    let Some(image) = Image::find() else {
        return ExitCode::from(77);
    };
    let lab = Lab::new();
    let guests = [1, 2].map(|number| Guest::boot(&lab, &image, number));
    let contenders = [Contender::xwarp(&guests), Contender::siw(&guests)];
    let kernel = guests[0].run("uname -r").succeeded();
    println!(
        "Two guests with kernel {}, MTU 1500; medians of {ROUNDS} runs, taken in turn.\n",
        kernel.output
    );
    println!(
        "{:24}{:>32}{:>32}",
        "", "---------- no CRC ----------", "---------- CRC32c ----------"
    );
    heading("Gb/s");
    for size in SIZES {
        let rate = |pace: Pace| pace.gigabits_per_second(size);
        row(&contenders, BANDWIDTH, "bw", size, rate);
    }
    println!();
    heading("us");
    for verb in LATENCY {
        row(&contenders, verb, "lat", LATENCY_SIZE, |pace| {
            contender::latency(verb, pace)
        });
    }
    ExitCode::SUCCESS
}

fn heading(unit: &str) {
    let contenders = format!("{:>12}{:>10}{:>10}", "xwarp", "siw", "ratio");
    println!("{unit:12}{:>12}{contenders}{contenders}", "bytes");
}

/// Measures one line of the table, with and without CRC, and prints it.
fn row(
    contenders: &[Contender<'_>; 2],
    verb: &'static str,
    kind: &'static str,
    size: u64,
    figure: impl Fn(Pace) -> f64,
) {
    print!("{:12}{size:>12}", format!("{verb}-{kind}"));
    for crc in [false, true] {
        let case = Case {
            verb,
            kind,
            size,
            crc,
        };
        let [xwarp, siw] = medians(contenders, &case).map(&figure);
        print!("{xwarp:>12.3}{siw:>10.3}{:>10.2}", xwarp / siw);
    }
    println!();
}

/// The medians of a case: of xwarp, and of siw.
fn medians(contenders: &[Contender<'_>; 2], case: &Case) -> [Pace; 2] {
    let lengths = contenders
        .each_ref()
        .map(|contender| contender.enough(case));
    let mut paces = [vec![], vec![]];
    for _ in 0..ROUNDS {
        for (i, contender) in contenders.iter().enumerate() {
            paces[i].push(contender.pace(case, lengths[i]));
        }
    }
    paces.map(Pace::median)
}

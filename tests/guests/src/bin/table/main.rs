//! The same programs of perftest over xwarp and over siw: the same two guests, the same link, one
//! run.
//!
//! All times are taken outside the guests, the same way for all. The result is what more messages
//! take, less what a few take, so that start-up and tear-down cancel out. (perftest's own figures
//! cannot be had in User-Mode Linux, where it finds no clock that it trusts.)
#![forbid(unsafe_code)]

use std::process::ExitCode;

use xwarp_guest_tests::siw::{Guest, Image, Lab};

mod contender;
mod pace;

use contender::{Case, Contender, Stack, Stalled};
use pace::Paces;

/// Of each case, and each contender in turn. Odd, for the median.
const ROUNDS: usize = 3;
const VERBS: [&str; 3] = ["write", "read", "send"];
/// Unit, kind and bytes of a message.
const KINDS: [(&str, &str, u64); 2] = [("Gb/s", "bw", 64 << 10), ("us", "lat", 64)];
/// Client and server.
const PAIRS: [[Stack; 2]; 4] = [
    [Stack::Xwarp, Stack::Xwarp],
    [Stack::Siw, Stack::Siw],
    [Stack::Xwarp, Stack::Siw],
    [Stack::Siw, Stack::Xwarp],
];

fn main() -> ExitCode {
    let Some(image) = Image::find() else {
        return ExitCode::from(77);
    };
    let lab = Lab::new();
    let guests = [1, 2].map(|number| Guest::boot(&lab, &image, number));
    prepare(&guests);
    let contenders = PAIRS.map(|stacks| Contender::new(stacks, &guests));
    let kernel = guests[0].run("uname -r").succeeded();
    println!(
        "perftest in two guests with kernel {}, MTU 1500, CRC32c; client to server.\n\
         Medians of {ROUNDS} runs, taken in turn, and the range of the runs in percent of it.",
        kernel.output
    );
    for (unit, kind, size) in KINDS {
        heading(unit);
        for verb in VERBS {
            row(&contenders, &Case { verb, kind, size });
        }
    }
    ExitCode::SUCCESS
}

/// siw's driver as perftest and xwarp need it.
///
/// The server of `ib_write_lat` writes first, for which siw has to send an RTR.
fn prepare(guests: &[Guest<'_>; 2]) {
    guests[0].await_listeners(&[]);
    for guest in guests {
        guest.set_siw("mpa_crc_required", "Y");
        guest.set_siw("peer_to_peer", 1);
    }
}

fn heading(unit: &str) {
    print!("\n{unit:14}{:>8}", "bytes");
    for [client, server] in PAIRS {
        print!("{:>20}", format!("{client} to {server}"));
    }
    println!();
}

/// Measures one line of the table, and prints it.
fn row(contenders: &[Contender<'_>], case: &Case) {
    let Case { verb, kind, size } = case;
    print!("{:14}{size:>8}", format!("ib_{verb}_{kind}"));
    for paces in measure(contenders, case) {
        let cell = match paces {
            Ok(paces) => format!("{:.3} {:3.0}%", case.figure(paces.median()), paces.range()),
            Err(Stalled) => "stalled".to_owned(),
        };
        print!("{cell:>20}");
    }
    println!();
}

/// What each contender does in a case. One that stalls is not asked again.
fn measure(contenders: &[Contender<'_>], case: &Case) -> Vec<Result<Paces, Stalled>> {
    let mut entries: Vec<_> = contenders
        .iter()
        .map(|contender| {
            let length = contender.enough(case);
            length.map(|length| (contender, length, Paces::default()))
        })
        .collect();
    for _ in 0..ROUNDS {
        for entry in &mut entries {
            let Ok((contender, length, paces)) = entry else {
                continue;
            };
            match contender.pace(case, *length) {
                Ok(pace) => paces.push(pace),
                Err(stalled) => *entry = Err(stalled),
            }
        }
    }
    let paces = |entry: Result<(_, _, Paces), _>| entry.map(|(_, _, paces)| paces);
    entries.into_iter().map(paces).collect()
}

//! Goodput of each congestion control on a link that loses: a table beside this file, so that a
//! change shows as a diff.

use std::fmt::Write;
use std::time::Duration;

use xwarp_tcp::{CongestionControl, Instant, StackConfig};
use xwarp_test_kit::netsim::{Link, Seed};
use xwarp_test_kit::{Side, pattern_of};

use crate::kept;
use crate::pair::{StackTransfer, run};

const ALGORITHMS: [CongestionControl; 4] = [
    CongestionControl::Cubic,
    CongestionControl::NewReno,
    CongestionControl::Dctcp,
    CongestionControl::Bbr,
];
/// Fractions of frames lost.
const LOSSES: [f64; 4] = [0.0, 0.001, 0.01, 0.05];
/// Bytes of a long transfer.
const BULK: usize = 2_000_000;
/// Bytes of a short transfer.
const MESSAGE: usize = 64 << 10;
const BULK_SEEDS: u64 = 3;
const MESSAGE_SEEDS: u64 = 100;
/// Queue length in frames from which ECN-capable frames are marked.
const MARKING: usize = 20;
const SNAPSHOT: &str = "tests/link/goodput.txt";

/// A link of one rack: 1 Gb/s, a round trip of 100 us, a buffer of 1.2 ms.
fn rack(link: Link, loss: f64) -> Link {
    link.one_way_delay(Duration::from_micros(50))
        .rate(1_000_000_000, 100)
        .mark(MARKING)
        .loss(loss)
}

/// Duration of a transfer from the first SYN to the last byte. More than a second means that a SYN
/// was lost, whose timer has no round trip to use (RFC 6298 §2.1).
fn time(algorithm: CongestionControl, bytes: usize, loss: f64, seed: u64) -> Duration {
    let config = StackConfig {
        congestion: algorithm,
        ..StackConfig::default()
    };
    let (a, wire_a) = StackTransfer::new(Side::A, pattern_of(1, bytes), &config);
    let (mut b, wire_b) = StackTransfer::new(Side::B, Vec::new(), &config);
    let mut a = a.in_bulk();
    b.listen();
    a.connect(Instant::ORIGIN + Duration::from_secs(1));
    let link = |link| rack(link, loss);
    run(&mut a, &mut b, [wire_a, wire_b], Seed(seed), link).0
}

/// Sorted durations of several transfers.
fn times(algorithm: CongestionControl, bytes: usize, loss: f64, seeds: u64) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..seeds)
        .map(|seed| time(algorithm, bytes, loss, seed))
        .collect();
    times.sort_unstable();
    times
}

/// Megabits per second of a long transfer: the median of several.
fn goodput(algorithm: CongestionControl, loss: f64) -> u128 {
    let times = times(algorithm, BULK, loss, BULK_SEEDS);
    BULK as u128 * 8 * 1000 / times[times.len() / 2].as_nanos()
}

fn line(algorithm: CongestionControl, loss: f64) -> String {
    let messages = times(algorithm, MESSAGE, loss, MESSAGE_SEEDS);
    let [p50, p90, p99] = [49, 89, 98].map(|rank| messages[rank].as_micros());
    let (name, goodput) = (format!("{algorithm:?}"), goodput(algorithm, loss));
    let per_cent = loss * 100.0;
    format!("{name:10}{per_cent:>5.1} %{goodput:>10}{p50:>13}{p90:>8}{p99:>8}")
}

fn table() -> String {
    let mut table = String::from(
        "1 Gb/s, round trip 100 us, buffer of 100 frames, marks from 20 on: Mb/s of 2,000,000 bytes\n\
         (median of 3 seeds), and microseconds that 65,536 bytes take with their connection (of 100 seeds), by loss in\n\
         either direction.\n\n\
         algorithm    loss   goodput  message p50     p90     p99\n",
    );
    for algorithm in ALGORITHMS {
        for loss in LOSSES {
            writeln!(table, "{}", line(algorithm, loss)).unwrap();
        }
    }
    table
}

#[test]
fn goodput_and_completion_times_are_what_they_were() {
    kept::compare(SNAPSHOT, &table(), "losses cost something else");
}

#[test]
fn bbr_keeps_most_of_the_goodput_at_one_per_cent_of_loss() {
    let [whole, lossy] = [0.0, 0.01].map(|loss| goodput(CongestionControl::Bbr, loss));
    assert!(10 * lossy > 7 * whole, "{lossy} of {whole} Mb/s");
}

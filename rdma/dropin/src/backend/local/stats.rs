//! Counters of an RNIC on standard error, printed when it is closed if statistics are asked for,
//! and in one line at the end whether RDMA carried anything.

use std::fmt;
use std::sync::Mutex;

use xwarp::Rnic;
use xwarp::attr::EngineCounters;

use crate::entry::lock;
use crate::logging::{say, statistics_are_wanted};

/// What all RNICs of the process have carried.
static CARRIED: Mutex<Carried> = Mutex::new(Carried {
    rnics: 0,
    fpdus: [0, 0],
    placed: 0,
});

#[derive(Clone, Copy)]
struct Carried {
    rnics: u64,
    /// Received and sent.
    fpdus: [u64; 2],
    /// Bytes.
    placed: u64,
}

/// Programs that find no device fall back to TCP without an error, so this says which it was.
impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rnics,
            fpdus: [received, sent],
            placed,
        } = self;
        match (rnics, received + sent) {
            (0, _) => f.write_str("RDMA carried nothing: the program opened no RNIC"),
            (_, 0) => {
                f.write_str("RDMA carried nothing: the program has an RNIC, and sent nothing by it")
            }
            _ => write!(
                f,
                "RDMA carried {sent} FPDUs out and {received} in, and placed {placed} bytes here"
            ),
        }
    }
}

/// Says whether RDMA carried anything, once all RNICs are closed.
pub(crate) fn say_what_was_carried() {
    say(format_args!("{}", *lock(&CARRIED)));
}

/// Prints the counters that are not 0, one a line.
pub(super) fn print(rnic: &Rnic) {
    if !statistics_are_wanted() {
        return;
    }
    let Ok(counters) = rnic.counters() else {
        return;
    };
    note(&counters.rdma);
    say(format_args!("{rnic}"));
    // From the names of the counters' fields, so that a new counter is printed, too.
    let text = format!("{counters:#?}");
    for (name, count) in text.lines().filter_map(counter) {
        say(format_args!("{name:>28} {count:>14}"));
    }
}

/// Adds the counters of an RNIC that is closed.
fn note(counters: &EngineCounters) {
    let mut carried = lock(&CARRIED);
    carried.rnics += 1;
    let [received, sent] = &mut carried.fpdus;
    *received += counters.fpdus_in;
    *sent += counters.fpdus_out;
    carried.placed += counters.placed_bytes;
}

/// Name and count of a line whose counter is not 0.
fn counter(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.trim().split_once(": ")?;
    let count = value.trim_end_matches(',').parse().ok()?;
    (count > 0).then_some((name, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_carried_is_said_in_one_line() {
        let said = |rnics, fpdus, placed| {
            Carried {
                rnics,
                fpdus,
                placed,
            }
            .to_string()
        };
        assert_eq!(
            said(0, [0, 0], 0),
            "RDMA carried nothing: the program opened no RNIC"
        );
        let nothing = "RDMA carried nothing: the program has an RNIC, and sent nothing by it";
        assert_eq!(said(1, [0, 0], 0), nothing);
        let all = "RDMA carried 2 FPDUs out and 3 in, and placed 40 bytes here";
        assert_eq!(said(2, [3, 2], 40), all);
    }

    #[test]
    fn line_with_a_counter_is_told_from_others() {
        assert_eq!(counter("        fpdus_in: 12,"), Some(("fpdus_in", 12)));
        for line in ["    fpdus_in: 0,", "    rdma: EngineCounters {", "}"] {
            assert_eq!(counter(line), None, "{line}");
        }
    }
}

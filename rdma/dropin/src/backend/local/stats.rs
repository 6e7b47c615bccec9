//! Counters of an RNIC on standard error, printed when it is closed if statistics are asked for.

use xwarp::Rnic;

use crate::logging::{say, statistics_are_wanted};

/// Prints the counters that are not 0, one a line.
pub(super) fn print(rnic: &Rnic) {
    if !statistics_are_wanted() {
        return;
    }
    let Ok(counters) = rnic.counters() else {
        return;
    };
    say(format_args!("{rnic}"));
    // From the names of the counters' fields, so that a new counter is printed, too.
    let text = format!("{counters:#?}");
    for (name, count) in text.lines().filter_map(counter) {
        say(format_args!("{name:>28} {count:>14}"));
    }
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
    fn line_with_a_counter_is_told_from_others() {
        assert_eq!(counter("        fpdus_in: 12,"), Some(("fpdus_in", 12)));
        for line in ["    fpdus_in: 0,", "    rdma: EngineCounters {", "}"] {
            assert_eq!(counter(line), None, "{line}");
        }
    }
}

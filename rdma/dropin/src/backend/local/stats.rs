//! Counters of an RNIC on standard error when it is closed, for who has asked for statistics.

use xwarp::Rnic;

use crate::logging::{say, statistics_are_wanted};

/// Prints those that are not 0, one a line.
pub(super) fn print(rnic: &Rnic) {
    if !statistics_are_wanted() {
        return;
    }
    let Ok(counters) = rnic.counters() else {
        return;
    };
    say(format_args!("{rnic}"));
    // By the names that the counters have: a new one is printed, too.
    let text = format!("{counters:#?}");
    for (name, count) in text.lines().filter_map(counter) {
        say(format_args!("{name:>28} {count:>14}"));
    }
}

/// A line that has a counter which is not 0.
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

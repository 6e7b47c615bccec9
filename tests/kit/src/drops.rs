//! Drop counters: everything that an RNIC dropped or refused, by the counters' names.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// Counters of drops that are not zero, by name.
pub type Drops = BTreeMap<String, u64>;

const PREFIX: &str = "drop_";

/// Drop counters of `counters` that are not zero. Reads their `Debug` text, so that a new counter
/// cannot be forgotten.
pub fn drops_of(counters: &impl Debug) -> Drops {
    let text = format!("{counters:?}");
    text.match_indices(PREFIX)
        .filter_map(|(at, _)| field(&text[at..]))
        .filter(|(_, value)| *value > 0)
        .collect()
}

/// `name: value` at the begin of `text`.
fn field(text: &str) -> Option<(String, u64)> {
    let (name, rest) = text.split_once(": ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((name.to_owned(), digits.parse().ok()?))
}

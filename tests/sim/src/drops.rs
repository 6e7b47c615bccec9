//! What an RNIC has dropped or refused: every counter whose name begins with `drop_`, those of the future included.

use std::collections::BTreeMap;

use xwarp::RnicCounters;

/// Counters of drops that are not zero, by name.
pub type Drops = BTreeMap<String, u64>;

const PREFIX: &str = "drop_";

/// Reads the counters' `Debug` text, so that no counter can be forgotten here.
pub(crate) fn drops_of(counters: &RnicCounters) -> Drops {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_layers_are_found_by_name() {
        let mut counters = RnicCounters::default();
        assert!(drops_of(&counters).is_empty());
        counters.io.drop_rx_ring_full = 12;
        counters.tcp.drop_no_flow = 3;
        counters.rdma.drop_bad_fpdu = 1;
        counters.rdma.terminates_in = 5;
        let found: Vec<(String, u64)> = drops_of(&counters).into_iter().collect();
        let expected = [
            ("drop_bad_fpdu", 1),
            ("drop_no_flow", 3),
            ("drop_rx_ring_full", 12),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value))
        );
    }
}

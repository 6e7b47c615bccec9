//! Seeds of a sweep, and the replay of a failing one.

use std::env;

use xwarp_test_kit::netsim::Seed;

/// Seeds per scenario unless `XWARP_SEEDS` says otherwise.
const DEFAULT_SEEDS: u64 = if cfg!(miri) { 1 } else { 20 };

/// Runs a scenario with many seeds. A failing one is named together with how to replay it.
///
/// # Panics
/// If `XWARP_SEEDS` is 0, or no number.
pub fn for_each_seed(scenario: impl Fn(Seed)) {
    if let Some(seed) = number("XWARP_SEED") {
        scenario(Seed(seed));
        return;
    }
    for seed in 1..=count(number("XWARP_SEEDS")) {
        let guard = Guard(Seed(seed));
        scenario(Seed(seed));
        drop(guard);
    }
}

/// How many seeds there are.
///
/// # Panics
/// If none: that would pass without having tested anything.
fn count(asked: Option<u64>) -> u64 {
    let seeds = asked.unwrap_or(DEFAULT_SEEDS);
    assert!(seeds > 0, "XWARP_SEEDS=0 tests nothing");
    seeds
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

/// Speaks up when the scenario panics.
struct Guard(Seed);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let test = std::thread::current().name().unwrap_or("").to_owned();
            let Self(seed) = self;
            eprintln!(
                "seed {seed} fails; replay: XWARP_SEED={seed} cargo test -p xwarp-sim-tests {test}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "tests nothing")]
    fn no_seeds_are_refused() {
        count(Some(0));
    }

    #[test]
    fn as_many_seeds_are_run_as_were_asked_for() {
        assert_eq!((count(None), count(Some(1))), (DEFAULT_SEEDS, 1));
    }
}

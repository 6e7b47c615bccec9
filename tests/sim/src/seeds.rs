//! Which seeds a sweep runs, and how a failing one is replayed.

use std::env;

use xwarp_netsim::Seed;

/// Seeds per scenario unless `XWARP_SEEDS` says otherwise.
const DEFAULT_SEEDS: u64 = 20;

/// Runs a scenario with many seeds. A failing one is named together with how to replay it.
pub fn for_each_seed(scenario: impl Fn(Seed)) {
    if let Some(seed) = number("XWARP_SEED") {
        scenario(Seed(seed));
        return;
    }
    for seed in 1..=number("XWARP_SEEDS").unwrap_or(DEFAULT_SEEDS) {
        let guard = Guard(Seed(seed));
        scenario(Seed(seed));
        drop(guard);
    }
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

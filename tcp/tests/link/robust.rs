//! Links with all kinds of conditions at once, drawn by a seed, under every congestion control.
//!
//! `XWARP_SEEDS` sets the number of seeds, at least one; `XWARP_SEED` runs one alone.

use std::env;
use std::time::Duration;

use xwarp_tcp::{CongestionControl, StackConfig};
use xwarp_test_kit::netsim::{Conditions, Link, Rng, Seed};

use crate::seeds::both_ways;

/// Number of seeds unless `XWARP_SEEDS` is set.
const SEEDS: u64 = 100;
/// Stream of a seed's random numbers that draws its conditions; the link's two lanes use the first
/// ones.
const STREAM: u64 = 7;
const ALGORITHMS: [CongestionControl; 4] = [
    CongestionControl::Cubic,
    CongestionControl::NewReno,
    CongestionControl::Dctcp,
    CongestionControl::Bbr,
];

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Number of seeds.
///
/// # Panics
/// If it is zero: the test would pass without having tested anything.
fn count(asked: Option<u64>) -> u64 {
    let seeds = asked.unwrap_or(SEEDS);
    assert!(seeds > 0, "XWARP_SEEDS=0 tests nothing");
    seeds
}

#[test]
#[should_panic(expected = "tests nothing")]
fn no_seeds_are_refused() {
    count(Some(0));
}

/// Prints how to replay the seed if the test panics.
struct Guard(u64, Conditions);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, conditions) = self;
            eprintln!(
                "seed {seed} fails; replay: XWARP_SEED={seed} cargo test -p xwarp-tcp --test link robust::\n{conditions:?}"
            );
        }
    }
}

fn micros(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_micros(range.start + rng.below(range.end - range.start))
}

/// Each condition is in force for half of the seeds, so that every pair occurs.
fn draw(rng: &mut Rng) -> Conditions {
    let mut probability = |most: f64| {
        let part = f64::from(u32::try_from(rng.below(1000)).unwrap_or(0)) / 1000.0;
        if rng.chance(0.5) { most * part } else { 0.0 }
    };
    let mut conditions = Conditions {
        loss: probability(0.1),
        burst: probability(0.01),
        reorder: probability(0.1),
        duplicate: probability(0.1),
        corrupt: probability(0.05),
        ..Conditions::default()
    };
    conditions.one_way_delay = micros(rng, 5..2000);
    conditions.reorder_delay = micros(rng, 10..3000);
    conditions.burst_time = micros(rng, 10..20_000);
    if rng.chance(0.5) {
        conditions.rate = Some(5_000_000 << rng.below(9));
        conditions.queue = rng.index(100) + 4;
    }
    conditions.mark = rng.chance(0.5).then(|| rng.index(50));
    if rng.chance(0.3) {
        let period = micros(rng, 20_000..500_000);
        let down = period / [8, 16, 32, 64][rng.index(4)];
        conditions.flap = Some((period, down)).filter(|_| !is_in_step(period, down));
    }
    conditions
}

/// True if more than half of a handshake's six SYNs, whose timer doubles from 1 s on, may find the
/// link down.
fn is_in_step(period: Duration, down: Duration) -> bool {
    let (period, down) = (period.as_micros(), down.as_micros());
    let phases = [0, 1, 3, 7, 15, 31].map(|seconds| seconds * 1_000_000 % period);
    phases.iter().any(|first| {
        let meets = |phase: &&u128| (**phase + period - first) % period <= down;
        phases.iter().filter(meets).count() > 3
    })
}

fn scenario(seed: u64) {
    let mut rng = Rng::new(Seed(seed), STREAM);
    let config = StackConfig {
        congestion: ALGORITHMS[rng.index(ALGORITHMS.len())],
        timestamps: rng.chance(0.5),
        buffer: Some([4096, 20_000, 65_536, 262_144][rng.index(4)]),
        ecn: seed % 2 == 1,
        ..StackConfig::default()
    };
    let bytes = [0, 1].map(|_| rng.index(40_000));
    let conditions = draw(&mut rng);
    let _guard = Guard(seed, conditions);
    let link = |link: Link| link.with(|each| *each = conditions);
    both_ways(Seed(seed), &config, bytes, link);
}

#[test]
fn bytes_arrive_intact_whatever_links_do() {
    if let Some(seed) = number("XWARP_SEED") {
        return scenario(seed);
    }
    (0..count(number("XWARP_SEEDS"))).for_each(scenario);
}

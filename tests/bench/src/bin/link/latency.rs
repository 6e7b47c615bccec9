//! Round trips, sorted.

use std::time::Duration;

/// Rounds at the beginning that do not count.
pub(crate) const WARM_UP: usize = 1000;

/// Prints the median and the 99th percentile, in microseconds.
pub(crate) fn print(mut round_trips: Vec<Duration>) {
    round_trips.sort_unstable();
    let micros = |percent: usize| {
        let at = round_trips.len() * percent / 100;
        round_trips[at.min(round_trips.len() - 1)].as_secs_f64() * 1e6
    };
    println!("{:.2} {:.2}", micros(50), micros(99));
}

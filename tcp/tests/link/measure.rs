//! What losses cost, in virtual time.

use std::time::Duration;

use xwarp_netsim::{Link, Seed};
use xwarp_tcp::{Instant, StackConfig};

use crate::pair::{StackEnd, pattern, run};

/// Megabits per second of octets delivered, and the longest stall.
fn transfer(seed: Seed, octets: usize, conditions: impl FnOnce(Link) -> Link) -> (f64, Duration) {
    let (mut a, wire_a) = StackEnd::new(0, pattern(octets, 1), &StackConfig::default());
    let (mut b, wire_b) = StackEnd::new(1, Vec::new(), &StackConfig::default());
    b.listen();
    a.connect(Instant::ORIGIN + Duration::from_secs(1));
    let (time, stall) = run(&mut a, &mut b, [wire_a, wire_b], seed, conditions);
    #[allow(clippy::cast_precision_loss)] // a few digits will do
    let megabits = octets as f64 * 8.0 / 1e6;
    (megabits / time.as_secs_f64(), stall)
}

/// A link of one rack: 1 Gb/s, a round trip of 100 us.
fn rack(link: Link) -> Link {
    link.one_way_delay(Duration::from_micros(50))
        .rate(1_000_000_000, 1000)
}

#[test]
fn one_percent_loss_leaves_most_of_the_rate() {
    for seed in 0..5 {
        let (rate, stall) = transfer(Seed(seed), 4_000_000, |link| rack(link).loss(0.01));
        println!("1 % loss, seed {seed}: {rate:.0} Mb/s, longest stall {stall:?}");
        assert!(rate > 200.0, "seed {seed}: {rate:.0} Mb/s");
    }
}

#[test]
fn five_percent_loss_never_stalls_for_longer_than_200_ms() {
    for seed in 0..20 {
        let (rate, stall) = transfer(Seed(seed), 1_000_000, |link| rack(link).loss(0.05));
        println!("5 % loss, seed {seed}: {rate:.0} Mb/s, longest stall {stall:?}");
        assert!(stall < Duration::from_millis(200), "seed {seed}: {stall:?}");
    }
}

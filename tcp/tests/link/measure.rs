//! Cost of losses, in virtual time.

use std::time::Duration;

use xwarp_tcp::{Instant, StackConfig};
use xwarp_test_kit::netsim::{Link, Seed};
use xwarp_test_kit::{Side, pattern_of};

use crate::pair::{StackTransfer, run};

/// Timeout of a SYN, which has no round trip to use (RFC 6298 §2.1), and so the cost of a lost one.
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// Measures megabits per second of delivered bytes, repeated handshakes, and the longest stall. The
/// handshake's time does not count.
fn transfer(
    seed: Seed,
    bytes: usize,
    conditions: impl FnOnce(Link) -> Link,
) -> (f64, u64, Duration) {
    let (mut a, wire_a) =
        StackTransfer::new(Side::A, pattern_of(1, bytes), &StackConfig::default());
    let (mut b, wire_b) = StackTransfer::new(Side::B, Vec::new(), &StackConfig::default());
    b.listen();
    a.connect(Instant::ORIGIN + Duration::from_secs(1));
    let (time, stall) = run(&mut a, &mut b, [wire_a, wire_b], seed, conditions);
    #[allow(clippy::cast_precision_loss)] // a few digits will do
    let megabits = bytes as f64 * 8.0 / 1e6;
    let repeated = time.as_secs() / SYN_TIMEOUT.as_secs();
    let carried = time.as_secs_f64() - time.as_secs_f64().floor();
    (megabits / carried, repeated, stall)
}

/// A link of one rack: 1 Gb/s, a round trip of 100 us.
fn rack(link: Link) -> Link {
    link.one_way_delay(Duration::from_micros(50))
        .rate(1_000_000_000, 1000)
}

#[test]
fn one_percent_loss_leaves_most_of_the_rate() {
    for seed in 0..5 {
        let (rate, repeated, stall) = transfer(Seed(seed), 4_000_000, |link| rack(link).loss(0.01));
        println!("1 % loss, seed {seed}: {rate:.0} Mb/s, longest stall {stall:?}");
        // 812 to 870 Mb/s and 0.3 to 1.7 ms were measured.
        assert!(rate > 750.0, "seed {seed}: {rate:.0} Mb/s");
        assert!(
            stall < Duration::from_micros(2500),
            "seed {seed}: {stall:?}"
        );
        assert_eq!(repeated, 0, "seed {seed}");
    }
}

/// No retransmission has to wait for its timer, whose floor is 5 ms.
#[test]
fn five_percent_loss_never_stalls_for_longer_than_2_ms() {
    let mut handshakes = 0;
    for seed in 0..20 {
        let (rate, repeated, stall) = transfer(Seed(seed), 1_000_000, |link| rack(link).loss(0.05));
        println!(
            "5 % loss, seed {seed}: {rate:.0} Mb/s, longest stall {stall:?}, {repeated} SYNs repeated"
        );
        // 379 to 847 Mb/s and 0.2 to 0.9 ms were measured.
        assert!(rate > 350.0, "seed {seed}: {rate:.0} Mb/s");
        assert!(stall < Duration::from_millis(2), "seed {seed}: {stall:?}");
        handshakes += repeated;
    }
    assert_eq!(
        handshakes, 1,
        "of 20, as each SYN is lost one time in twenty"
    );
}

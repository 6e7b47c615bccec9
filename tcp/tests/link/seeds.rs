//! All data arrives, whatever the link does.

use std::time::Duration;

use xwarp_tcp::{CloseReason, StackConfig};
use xwarp_test_kit::netsim::{Link, Seed};
use xwarp_test_kit::{Side, pattern_of};

use crate::pair::{FRAMES, StackTransfer, run};

/// Bytes in either direction.
const BYTES: [usize; 2] = [120_000, 90_000];

/// Carries bytes both ways at once and closes. Every frame must be back in the end.
pub(crate) fn both_ways(
    seed: Seed,
    config: &StackConfig,
    bytes: [usize; 2],
    conditions: impl FnOnce(Link) -> Link,
) {
    let data = [pattern_of(1, bytes[0]), pattern_of(2, bytes[1])];
    let (mut a, wire_a) = StackTransfer::new(Side::A, data[0].clone(), config);
    let (mut b, wire_b) = StackTransfer::new(Side::B, data[1].clone(), config);
    b.listen();
    a.connect(xwarp_tcp::Instant::ORIGIN + Duration::from_secs(1));
    run(&mut a, &mut b, [wire_a, wire_b], seed, conditions);
    for (end, wanted) in [(&a, &data[1]), (&b, &data[0])] {
        use crate::pair::Transfer;
        assert!(end.received() == &wanted[..], "{seed:?}: {}", end.report());
        // The last ACK to the other side may have been lost, and its retransmission found no
        // connection.
        let ended = end.ended.unwrap();
        assert!(
            matches!(ended, CloseReason::Graceful | CloseReason::Reset),
            "{seed:?}: {}",
            end.report()
        );
        assert_eq!(
            end.tcp.stack.io().tx_free(),
            FRAMES,
            "{seed:?}: frames are lost"
        );
    }
}

fn rough(link: Link) -> Link {
    link.one_way_delay(Duration::from_micros(300))
        .loss(0.03)
        .reorder(0.03, Duration::from_millis(2))
        .duplicate(0.03)
}

#[test]
fn bytes_arrive_intact_both_ways_on_a_rough_link() {
    for seed in 0..60 {
        both_ways(Seed(seed), &StackConfig::default(), BYTES, rough);
    }
}

#[test]
fn bytes_arrive_intact_without_timestamps() {
    let config = StackConfig {
        timestamps: false,
        ..StackConfig::default()
    };
    for seed in 100..130 {
        both_ways(Seed(seed), &config, BYTES, rough);
    }
}

#[test]
fn bytes_arrive_intact_through_small_windows() {
    for (seed, buffer) in (200..).zip([1024, 1500, 3000, 4096, 9000, 20_000, 65_536]) {
        let config = StackConfig {
            buffer: Some(buffer),
            ..StackConfig::default()
        };
        both_ways(Seed(seed), &config, BYTES, rough);
    }
}

#[test]
fn bytes_arrive_intact_through_a_short_queue() {
    for seed in 300..310 {
        both_ways(Seed(seed), &StackConfig::default(), BYTES, |link| {
            link.one_way_delay(Duration::from_millis(2))
                .rate(20_000_000, 12)
        });
    }
}

#[test]
fn bytes_arrive_intact_when_a_third_is_lost() {
    for seed in 400..405 {
        both_ways(Seed(seed), &StackConfig::default(), BYTES, |link| {
            link.one_way_delay(Duration::from_micros(100)).loss(0.3)
        });
    }
}

//! ECN on a link whose queue marks: every mark counted (RFC 8257), or marks treated as losses (RFC
//! 3168).

use std::time::Duration;

use xwarp_tcp::{CongestionControl, Instant, StackConfig};
use xwarp_test_kit::netsim::{Link, Seed};
use xwarp_test_kit::{Side, pattern_of};

use crate::pair::{StackTransfer, run};

const BYTES: usize = 8_000_000;

/// Runs a transfer. Returns its duration, and the number of retransmitted segments.
fn transfer(config: &StackConfig, conditions: impl FnOnce(Link) -> Link) -> (Duration, u64) {
    let (a, wire_a) = StackTransfer::new(Side::A, pattern_of(1, BYTES), config);
    let (mut b, wire_b) = StackTransfer::new(Side::B, Vec::new(), config);
    let mut a = a.in_bulk();
    b.listen();
    a.connect(Instant::ORIGIN + Duration::from_secs(1));
    let (time, _) = run(&mut a, &mut b, [wire_a, wire_b], Seed(1), conditions);
    (time, a.tcp.stack.counters().retransmissions)
}

fn config(congestion: CongestionControl, ecn: bool) -> StackConfig {
    StackConfig {
        congestion,
        ecn,
        ..StackConfig::default()
    }
}

/// 1 Gb/s, a round trip of 100 us, and a buffer smaller than the peer's window.
fn shallow(link: Link) -> Link {
    link.one_way_delay(Duration::from_micros(50))
        .rate(1_000_000_000, 100)
}

#[test]
fn marks_keep_the_queue_from_overflowing_and_the_link_full() {
    // An algorithm that halves its window needs a queue of a bandwidth-delay product, 8 segments,
    // below the marks to keep the link full.
    for (algorithm, ecn) in [
        (CongestionControl::Dctcp, false),
        (CongestionControl::Cubic, true),
        (CongestionControl::NewReno, true),
    ] {
        let config = config(algorithm, ecn);
        let (time, repeated) = transfer(&config, |link| shallow(link).mark(20));
        assert_eq!(repeated, 0, "{algorithm:?}: the queue has overflowed");
        let megabits = BYTES as u128 * 8000 / time.as_nanos();
        assert!(megabits > 900, "{algorithm:?}: {megabits} Mb/s");
        let (_, without_marks) = transfer(&config, shallow);
        assert!(
            without_marks > 0,
            "{algorithm:?}: nothing has tried the queue"
        );
    }
}

#[test]
fn who_does_not_want_marks_gets_none() {
    for (algorithm, ecn) in [
        (CongestionControl::NewReno, false),
        (CongestionControl::Bbr, true),
    ] {
        let config = config(algorithm, ecn);
        let marking = transfer(&config, |link| shallow(link).mark(20));
        assert_eq!(marking, transfer(&config, shallow));
    }
}

//! BBR's segments leave spaced: neither in bursts that overrun a ring, nor one by one on a timer
//! each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use xwarp_tcp::{CongestionControl, Instant, StackConfig};
use xwarp_test_kit::netsim::{Direction, Link, Seed};
use xwarp_test_kit::{Side, pattern_of};

use crate::pair::{StackTransfer, run};

const BYTES: usize = 8_000_000;
/// Bytes of a frame full of data.
const FULL: usize = 1000;

/// Number of full segments sent at each instant.
type Bursts = Rc<RefCell<BTreeMap<Duration, usize>>>;

fn transfer(
    algorithm: CongestionControl,
    rate: u64,
    loss: f64,
) -> (Duration, Vec<(Duration, usize)>) {
    let config = StackConfig {
        congestion: algorithm,
        ..StackConfig::default()
    };
    let (a, wire_a) = StackTransfer::new(Side::A, pattern_of(1, BYTES), &config);
    let (mut b, wire_b) = StackTransfer::new(Side::B, Vec::new(), &config);
    let mut a = a.in_bulk();
    b.listen();
    a.connect(Instant::ORIGIN + Duration::from_secs(1));
    let bursts = Bursts::default();
    let seen = Rc::clone(&bursts);
    let conditions = |link: Link| {
        let delay = Duration::from_micros(50);
        let mut link = link.one_way_delay(delay).rate(rate, 1000).loss(loss);
        link.observe(move |sighting| {
            if sighting.direction == Direction::AToB && sighting.frame.len() > FULL {
                *seen.borrow_mut().entry(sighting.at).or_default() += 1;
            }
        });
        link
    };
    let (time, _) = run(&mut a, &mut b, [wire_a, wire_b], Seed(1), conditions);
    (time, bursts.take().into_iter().collect())
}

/// The largest number of segments sent in a turn.
fn largest(bursts: &[(Duration, usize)]) -> usize {
    bursts.iter().map(|(_, burst)| *burst).max().unwrap_or(0)
}

#[test]
fn turn_sends_a_few_segments_at_a_gigabit_whatever_is_lost() {
    for loss in [0.0, 0.01, 0.05] {
        let (_, bursts) = transfer(CongestionControl::Bbr, 1_000_000_000, loss);
        let most = largest(&bursts);
        assert!(most <= 16, "{most} segments at once with a loss of {loss}");
    }
}

#[test]
fn ten_gigabits_are_filled_by_bursts_that_a_ring_holds() {
    // Loss leaves at least 0.7 of the rate without loss (the second figure is 0.7 of 8900).
    for (loss, least) in [(0.0, 8500), (0.01, 6300)] {
        let (time, bursts) = transfer(CongestionControl::Bbr, 10_000_000_000, loss);
        let most = largest(&bursts);
        assert!(most <= 46, "{most} segments at once with a loss of {loss}");
        let megabits = BYTES as u128 * 8000 / time.as_nanos();
        println!("{megabits} Mb/s with a loss of {loss}, {most} segments at once at most");
        assert!(megabits > least, "{megabits} Mb/s with a loss of {loss}");
    }
}

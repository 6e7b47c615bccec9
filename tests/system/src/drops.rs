//! Drop counters: on a network without faults all of them stay zero.

use xwarp::Rnic;
use xwarp_test_kit::drops_of;

/// Fails if the kernel, TCP or the RDMA layers dropped anything.
pub fn check_nothing_dropped(rnic: &Rnic) {
    let counters = rnic.counters().expect("an engine");
    assert!(format!("{counters:?}").contains("drop_rx_ring_full"));
    let drops = drops_of(&counters);
    assert!(drops.is_empty(), "{drops:?} in {counters:?}");
}

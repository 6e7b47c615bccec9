//! Drop counters of an RNIC: the test kit finds those of all layers, future ones included.

use xwarp::attr::RnicCounters;
use xwarp_test_kit::drops_of;

#[test]
fn counters_of_all_layers_are_found_by_name() {
    let mut counters = RnicCounters::default();
    assert!(drops_of(&counters).is_empty());
    counters.io.drop_rx_ring_full = 12;
    counters.tcp.drop_no_flow = 3;
    counters.rdma.drop_bad_fpdu = 1;
    counters.rdma.terminates_in = 5;
    let found: Vec<(String, u64)> = drops_of(&counters).into_iter().collect();
    let expected = [
        ("drop_bad_fpdu", 1),
        ("drop_no_flow", 3),
        ("drop_rx_ring_full", 12),
    ];
    assert_eq!(
        found,
        expected.map(|(name, value)| (name.to_owned(), value))
    );
}

//! What must not happen on a network without faults.

use xwarp::Rnic;

/// Fails if anything was dropped: by the kernel, by TCP or by the RDMA layers.
pub fn check_nothing_dropped(rnic: &Rnic) {
    let counters = format!("{:?}", rnic.counters().expect("an engine"));
    assert!(counters.contains("drop_rx_ring_full"), "{counters}");
    for counter in counters.split(['{', ',', '}']).map(str::trim) {
        let dropped = counter.starts_with("drop_") && !counter.ends_with(": 0");
        assert!(!dropped, "{counter} in {counters}");
    }
}

//! Checksums that are left to the NIC, whose driver takes the request in zero copy and does nothing.

use serde_json::Value;
use xwarp_nic_tests::{End, Guest};

use crate::{begin_perf, on_each_card, verified};

/// What the client's engine has counted, once it has asked.
fn asked(guest: &Guest) -> Value {
    let mut counters = Value::Null;
    xwarp_system_tests::eventually("the peer is asked", || {
        let told = guest.run_program(End::A, "xwarp", "stat eth0 --once --json");
        let told: Value = serde_json::from_str(&told.stdout).unwrap_or_default();
        counters = told["queues"][0]["counters"].clone();
        counters["checksum_probes_out"].as_u64() > Some(0)
    });
    counters
}

#[test]
fn request_that_the_driver_ignores_is_found_out_and_costs_nothing() {
    on_each_card(1, |card, guest| {
        let options = "--engine thread --zero-copy --no-crc --tx-checksum always";
        let running = begin_perf(guest, options, "--duration 10");
        let counters = asked(guest);
        assert_eq!(counters["checksums_proven"], 0, "{card:?}: {counters}");
        let client = verified(running);
        assert!(client.stdout.contains("TX checksum tried"), "{client}");
    });
}

/// Whoever computes it there, or nobody.
#[test]
fn data_is_right_where_the_kernel_copies_frames() {
    on_each_card(1, |_, guest| {
        let options = "--engine thread --copy --no-crc --tx-checksum always";
        verified(begin_perf(guest, options, "--iterations 100"));
    });
}

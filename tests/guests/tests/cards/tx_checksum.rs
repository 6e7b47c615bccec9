//! Checksums that are left to the NIC, whose driver takes the request in zero copy and does
//! nothing.

use serde_json::Value;
use xwarp_guest_tests::nic::{End, Guest};
use xwarp_system_tests::Running;

use crate::{begin_perf, on_each_card, verified, while_data_is_sent};

/// What the client's engine has counted, once it has asked or the run is over.
fn asked(guest: &Guest, client: &mut Running) -> Value {
    let mut counters = Value::Null;
    xwarp_guest_tests::nic::eventually("the peer is asked", || {
        let told = guest.run_program(End::A, "xwarp", "stat eth0 --once --json");
        let told: Value = serde_json::from_str(&told.stdout).unwrap_or_default();
        counters = told["queues"][0]["counters"].clone();
        client.has_ended() || counters["checksum_probes_out"].as_u64() > Some(0)
    });
    counters
}

#[test]
fn request_that_the_driver_ignores_is_found_out_and_costs_nothing() {
    on_each_card(1, |card, guest| {
        let options = "--engine thread --zero-copy --no-crc --tx-checksum always";
        let mut counters = Value::Null;
        let client = while_data_is_sent(guest, options, |guest, (_, client)| {
            counters = asked(guest, client);
        });
        assert_eq!(counters["checksums_proven"], 0, "{card:?}: {counters}");
        assert!(client.stdout.contains("TX checksum tried"), "{client}");
    });
}

/// It does not matter whether the kernel, the card or neither computes the checksum.
#[test]
fn data_is_right_where_the_kernel_copies_frames() {
    on_each_card(1, |_, guest| {
        let options = "--engine thread --copy --no-crc --tx-checksum always";
        verified(begin_perf(guest, options, "--iterations 100"));
    });
}

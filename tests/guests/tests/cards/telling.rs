//! Reports of `xwarp doctor` and `xwarp stat` on cards.

use serde_json::Value;
use xwarp_guest_tests::nic::{Card, End};

use crate::{on_each_card, told, while_data_is_sent};

#[test]
fn doctor_finds_zero_copy_queues_and_the_hash() {
    on_each_card(4, |card, guest| {
        let found = told(guest, End::A, "doctor eth0");
        let text = found.to_string();
        let driver = match card {
            Card::Igb => "igb",
            Card::Virtio => "virtio_net",
        };
        for word in [driver, "zero copy", "RSS"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains("\"fail\""), "{text}");
    });
}

#[test]
fn stat_shows_each_engine() {
    on_each_card(4, |_, guest| {
        let mut queues = Vec::new();
        let options = "--engine thread --engines 4";
        while_data_is_sent(guest, options, |guest, (_, client)| {
            xwarp_guest_tests::nic::eventually("all engines are shown", || {
                let told = guest.run_program(End::B, "xwarp", "stat eth1 --once --json");
                let told: Value = serde_json::from_str(&told.stdout).unwrap_or_default();
                let shown = told["queues"].as_array().cloned().unwrap_or_default();
                queues = shown.iter().map(|it| it["queue"].clone()).collect();
                // If the run is over, it begins anew.
                client.has_ended() || queues.len() == 4
            });
        });
        assert_eq!(queues, [0, 1, 2, 3]);
    });
}

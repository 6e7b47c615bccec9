//! Reports of `xwarp doctor` and `xwarp stat` on cards.

use xwarp_nic_tests::{Card, End};

use crate::{begin_perf, on_each_card, told, verified};

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
        let running = begin_perf(guest, "--engine thread --engines 4", "--duration 10");
        let mut queues = Vec::new();
        xwarp_system_tests::eventually("all engines are shown", || {
            let told = told(guest, End::B, "stat eth1 --once");
            let shown = told["queues"].as_array().cloned().unwrap_or_default();
            queues = shown.iter().map(|it| it["queue"].clone()).collect();
            queues.len() == 4
        });
        assert_eq!(queues, [0, 1, 2, 3]);
        verified(running);
    });
}

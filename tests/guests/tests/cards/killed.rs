//! A process that is killed leaves nothing.

use xwarp_guest_tests::nic::{End, Guest, LIMIT};
use xwarp_system_tests::eventually_within;

use crate::{begin_perf, on_each_card, verified};

/// All that an RNIC may change of its interface.
fn settings(guest: &Guest, end: End) -> String {
    let dev = end.dev();
    guest.run(
        end,
        &format!(
            "ip link show {dev} | grep -o 'xdp.*' ; ethtool -k {dev} ; ethtool -l {dev} ; ethtool -x {dev} ; cat /sys/class/net/{dev}/napi_defer_hard_irqs /sys/class/net/{dev}/gro_flush_timeout"
        ),
    )
}

#[test]
fn killed_process_leaves_the_interface_as_it_was() {
    on_each_card(4, |card, guest| {
        let before = End::BOTH.map(|end| settings(guest, end));
        let (server, client) =
            begin_perf(guest, "--engine thread --fix-offloads", "--duration 600");
        guest.run(End::A, "pkill -9 -o -f 'xwarp perf write-bw 10.9'");
        assert!(!client.finish().succeeds());
        assert!(!server.finish().succeeds());
        guest.await_link();
        let mut changed = Vec::new();
        let is_as_before = || {
            let now = End::BOTH.map(|end| settings(guest, end));
            let lines = before.iter().flat_map(|text| text.lines());
            let pairs = lines.zip(now.iter().flat_map(|text| text.lines()));
            let differ = pairs.filter(|(was, is)| was != is);
            changed = differ.map(|(was, is)| format!("{was} -> {is}")).collect();
            now == before
        };
        let restored = eventually_within(LIMIT, is_as_before);
        assert!(restored, "{card:?}: {changed:?}");
        verified(begin_perf(guest, "--engine thread", "--iterations 100"));
    });
}

//! Preferred busy polling: where the driver has it, what it changes, and that all of that is put
//! back.

use xwarp_guest_tests::nic::{Card, End, Guest, Image, LIMIT, eventually};
use xwarp_system_tests::eventually_within;

use crate::{begin_perf, on_each_card, verified, while_data_is_sent};

/// With more than 4 queues, igb has one interrupt and one NAPI instance for both directions of
/// each.
const PAIRED: usize = 8;
const OPTIONS: &str = "--busy-poll --engine thread --engines 2";

/// How the device of an end defers its interrupts.
fn deferral(guest: &Guest, end: End) -> String {
    let directory = format!("/sys/class/net/{}", end.dev());
    guest.run(
        end,
        &format!("cat {directory}/napi_defer_hard_irqs {directory}/gro_flush_timeout"),
    )
}

fn deferrals(guest: &Guest) -> [String; 2] {
    End::BOTH.map(|end| deferral(guest, end))
}

fn are_polled(guest: &Guest) -> bool {
    deferrals(guest).iter().all(|set| set == "2\n200000\n")
}

#[test]
fn igb_is_polled_and_has_its_settings_back_afterwards() {
    xwarp_test_kit::needs_root!();
    let Some(image) = Image::find() else { return };
    let guest = Guest::boot(&image, Card::Igb, PAIRED);
    let before = deferrals(&guest);
    for wait in ["busy", "adaptive"] {
        let options = format!("{OPTIONS} --wait {wait}");
        let client = while_data_is_sent(&guest, &options, |guest, (_, client)| {
            // If the run is over, it begins anew.
            eventually("both are polled", || {
                client.has_ended() || are_polled(guest)
            });
        });
        assert!(client.stdout.contains("busy polling"), "{client}");
        eventually("all is put back", || deferrals(&guest) == before);
    }
    let (server, client) = begin_perf(&guest, OPTIONS, "--duration 600");
    eventually("both are polled", || are_polled(&guest));
    guest.run(End::A, "pkill -9 -o -f 'xwarp perf write-bw 10.9'");
    assert!(!client.finish().succeeds());
    assert!(!server.finish().succeeds());
    guest.await_link();
    let put_back = eventually_within(LIMIT, || deferrals(&guest) == before);
    assert!(put_back, "{:?}", deferrals(&guest));
    verified(begin_perf(&guest, OPTIONS, "--iterations 100"));
}

/// virtio sends by an interrupt of its own, and so does igb with 4 queues.
#[test]
fn card_that_sends_by_another_instance_is_refused() {
    on_each_card(4, |card, guest| {
        let before = deferrals(guest);
        let arguments = "perf write-bw --dev eth0 --busy-poll";
        let refused = guest.run_program(End::A, "xwarp", arguments);
        let why = "busy polling needs a NAPI instance that receives and sends, and queue 0 of eth0";
        let said = refused.stderr.contains(why);
        assert!(said && !refused.succeeds(), "{card:?}: {refused}");
        assert_eq!(deferrals(guest), before, "{card:?}");
    });
}

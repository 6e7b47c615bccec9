//! A transmit path that stands still while the link is up: the cable takes nothing, so the card
//! completes nothing.

use xwarp_guest_tests::nic::{Card, End, Guest, Image, eventually};

use crate::{begin_perf, told, verified};

/// What is said of the stall, once.
const NOTICED: &str = "eth0: the driver has completed none of ";

/// Completion stalls that the RNIC at A has counted.
fn counted(guest: &Guest) -> u64 {
    let stat = told(guest, End::A, "stat eth0 --once");
    let counted = stat["queues"][0]["counters"]["completion_stalls"].as_u64();
    counted.unwrap_or_else(|| panic!("no counter: {stat}"))
}

/// igb drops what the cable does not take, `virtio_net` waits. With copies, its driver completes
/// only when it sends, so each retransmission may complete what the card took before. A stall of
/// 5 s cannot be tested: the driver then resets a queue whose frames wait for the cable. At that
/// qemu 10.0.2 ends by an assertion.
#[test]
fn stall_is_told_and_counted_and_data_goes_on_after_it() {
    xwarp_test_kit::needs_root!();
    let Some(image) = Image::find() else { return };
    let guest = Guest::boot_relayed(&image, Card::Virtio);
    let options = "--engine thread --zero-copy";
    let (server, client) = begin_perf(&guest, options, "--duration 15");
    assert_eq!(counted(&guest), 0);
    guest.hold(End::A);
    eventually(NOTICED, || client.complained().contains(NOTICED));
    guest.release(End::A);
    assert_eq!(counted(&guest), 1);
    let client = verified((server, client));
    assert_eq!(client.stderr.matches(NOTICED).count(), 1, "{client}");
}

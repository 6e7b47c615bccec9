//! Data arrives as it was sent, with any number of queues, with zero copy and with copies.

use crate::{begin_perf, on_each_card, verified};

#[test]
fn data_is_verified_with_each_number_of_queues_and_either_kind_of_copies() {
    on_each_card(4, |card, guest| {
        for queues in [1, 2, 4] {
            guest.set_queues(queues);
            for (copies, told) in [
                ("--zero-copy", "AF_XDP zero copy"),
                ("--copy", "AF_XDP copy"),
            ] {
                let options = format!("--engine thread --engines {queues} {copies}");
                let client = verified(begin_perf(guest, &options, "--iterations 100"));
                let says = |what: &str| assert!(client.stdout.contains(what), "{card:?}: {client}");
                says(told);
                if queues > 1 {
                    says(&format!("{queues} queues, {queues} engines"));
                }
            }
        }
    });
}

#[test]
fn one_engine_serves_all_queues_for_a_thread_of_the_application() {
    on_each_card(4, |_, guest| {
        let client = verified(begin_perf(guest, "--engine inline", "--iterations 100"));
        assert!(client.stdout.contains("4 queues, 1 engine"), "{client}");
        verified(begin_perf(guest, "--mode generic", "--iterations 100"));
    });
}

/// As many bytes as a minute has, in one connection after the other.
#[test]
fn nothing_is_lost_or_left_in_a_minute_of_connections() {
    on_each_card(4, |_, guest| {
        for _ in 0..4 {
            verified(begin_perf(guest, "--engine thread", "--duration 12"));
        }
    });
}

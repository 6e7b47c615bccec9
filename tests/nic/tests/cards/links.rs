//! Link events while data is sent.

use std::time::Duration;

use xwarp_nic_tests::{Card, End, Guest};
use xwarp_system_tests::{Running, eventually};

use crate::{LIMIT, begin_perf, on_each_card, verified};

/// How long a link is away. TCP survives it.
const AWAY: Duration = Duration::from_secs(2);
/// As long as all events together take, and some more.
const RUN: &str = "--duration 12";

/// Something that happens to the link.
type Event = fn(&Guest);

fn at_both(guest: &Guest, command: fn(&str) -> String) {
    for end in End::BOTH {
        guest.run(end, &command(end.dev()));
    }
}

/// What TCP survives.
const SURVIVED: [(&str, Event); 5] = [
    ("the cable is pulled and put back", |guest| {
        guest.set_link(End::B, false);
        std::thread::sleep(AWAY);
        guest.set_link(End::B, true);
    }),
    ("the interface is set down and up", |guest| {
        let away = AWAY.as_secs();
        let again = format!("ip link set eth0 down; sleep {away}; ip link set eth0 up");
        guest.run(End::A, &again);
    }),
    ("the MTU becomes smaller", |guest| {
        at_both(guest, |dev| format!("ip link set {dev} mtu 1400"));
    }),
    ("rings get another size", |guest| {
        at_both(guest, |dev| format!("ethtool -G {dev} rx 256"));
    }),
    ("queues are chosen anew", |guest| {
        at_both(guest, |dev| format!("ethtool -X {dev} equal 2"));
    }),
];

#[test]
fn data_arrives_whatever_becomes_of_the_link() {
    on_each_card(4, |card, guest| {
        for (event, happens) in SURVIVED {
            eprintln!("{card:?}: {event}");
            let running = begin_perf(guest, "--engine thread", RUN);
            happens(guest);
            verified(running);
            at_both(guest, |dev| format!("ip link set {dev} mtu 1500"));
        }
    });
}

/// While it has an XDP program, igb takes more queues than there are sockets, and `virtio_net` takes no other number. Neither takes fewer.
#[test]
fn queues_that_are_added_cost_only_time() {
    on_each_card(4, |card, guest| {
        guest.set_queues(2);
        let (server, client) = begin_perf(guest, "--engine thread", "--duration 20");
        let set = |queues| format!("ethtool -L {} combined {queues}", End::B.dev());
        guest.run(End::B, &format!("! {}", set(1)));
        let says = "4 receive queues now, no more of 2";
        match card {
            Card::Igb => {
                guest.run(End::B, &set(4));
                eventually(says, || server.complained().contains(says));
                std::thread::sleep(AWAY);
                guest.run(End::B, &set(2));
            }
            Card::Virtio => drop(guest.run(End::B, &format!("! {}", set(4)))),
        }
        verified((server, client));
    });
}

/// Both ends end by themselves, each with one sentence.
fn both_end((server, client): (Running, Running)) -> [String; 2] {
    [server, client].map(|running| {
        let ended = running.finish_within(LIMIT);
        assert!(!ended.succeeds(), "{ended}");
        assert!(!ended.stderr.contains("panicked"), "{ended}");
        ended.stderr.clone()
    })
}

#[test]
fn card_that_is_pulled_out_ends_its_rnic() {
    on_each_card(4, |card, guest| {
        let running = begin_perf(guest, "--engine thread", RUN);
        guest.unplug(End::A);
        let [_, client] = both_end(running);
        assert!(client.contains("eth0"), "{card:?}: {client}");
    });
}

#[test]
fn driver_that_is_unloaded_ends_its_rnics() {
    on_each_card(4, |card, guest| {
        let running = begin_perf(guest, "--engine thread", RUN);
        let driver = match card {
            Card::Igb => "igb",
            Card::Virtio => "virtio_net",
        };
        guest.run(End::A, &format!("rmmod {driver}"));
        for said in both_end(running) {
            assert!(said.contains("was deleted"), "{card:?}: {said}");
        }
    });
}

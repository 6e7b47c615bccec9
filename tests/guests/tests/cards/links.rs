//! Link events while data is sent.

use std::time::Duration;

use xwarp_guest_tests::nic::{Card, End, Guest, eventually};
use xwarp_system_tests::Running;

use crate::{begin_perf, on_each_card, while_data_is_sent};

/// How long a link is away. TCP survives it.
const AWAY: Duration = Duration::from_secs(2);
/// Longer than anything takes that ends a run.
const RUN: &str = "--duration 600";

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
            while_data_is_sent(guest, "--engine thread", |guest, _| happens(guest));
            at_both(guest, |dev| format!("ip link set {dev} mtu 1500"));
        }
    });
}

/// While it has an XDP program, igb takes more queues than there are sockets, and `virtio_net`
/// takes no other number. Neither takes fewer.
#[test]
fn queues_that_are_added_cost_only_time() {
    on_each_card(4, |card, guest| {
        guest.set_queues(2);
        let set = |queues| format!("ethtool -L {} combined {queues}", End::B.dev());
        while_data_is_sent(guest, "--engine thread", |guest, (server, client)| {
            guest.run(End::B, &format!("! {}", set(1)));
            match card {
                Card::Igb => add_queues(guest, server, client),
                Card::Virtio => drop(guest.run(End::B, &format!("! {}", set(4)))),
            }
        });
    });
}

/// Adds two queues to two, which the server reports, and takes them away again.
fn add_queues(guest: &Guest, server: &Running, client: &mut Running) {
    let set = |queues| {
        guest.run(
            End::B,
            &format!("ethtool -L {} combined {queues}", End::B.dev()),
        )
    };
    set(4);
    let says = "now has 4 receive queues instead of 2";
    // If the run is over, it begins anew.
    eventually(says, || {
        client.has_ended() || server.complained().contains(says)
    });
    std::thread::sleep(AWAY);
    set(2);
}

/// Both ends end by themselves, each with one sentence.
fn both_end((server, client): (Running, Running)) -> [String; 2] {
    [server, client].map(|running| {
        let ended = running.finish();
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

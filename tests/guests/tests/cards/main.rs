//! xwarp on network cards, in guests.

mod data;
mod killed;
mod links;
mod modules;
mod polling;
mod stall;
mod steering;
mod telling;
mod tx_checksum;

use serde_json::Value;
use xwarp_guest_tests::nic::{Card, End, Guest, Image};
use xwarp_system_tests::{Finished, Running};

/// Seconds for which data is sent until something has happened meanwhile: enough on an idle
/// machine, then on one that has other work.
const RUNS: [u32; 3] = [12, 60, 300];

/// Runs a test in a guest with each kind of card, of `queues` queues.
fn on_each_card(queues: usize, test: impl Fn(Card, &Guest)) {
    xwarp_test_kit::needs_root!();
    let Some(image) = Image::find() else { return };
    for card in Card::ALL {
        let guest = Guest::boot(&image, card, queues);
        test(card, &guest);
    }
}

/// Begins `xwarp perf write-bw`: its server at B and its client at A, which is connected.
fn begin_perf(guest: &Guest, options: &str, run: &str) -> (Running, Running) {
    let (near, far) = (End::A.dev(), End::B.dev());
    let serve = format!("perf write-bw --dev {far} {options}");
    let mut server = guest.program(End::B, "xwarp", &serve);
    server.line("waiting for a client");
    guest.await_link();
    let to = End::B.address();
    let ask = format!("perf write-bw {to} --dev {near} --verify --size 4K {options} {run}");
    let mut client = guest.program(End::A, "xwarp", &ask);
    client.line("write-bw");
    (server, client)
}

/// Has something happen while data is sent, which is verified; the client's output. On a busy
/// machine the data may be sent before that is over. Then all of it begins anew, and data is sent
/// for longer.
fn while_data_is_sent(
    guest: &Guest,
    options: &str,
    mut happens: impl FnMut(&Guest, &mut (Running, Running)),
) -> Finished {
    for seconds in RUNS {
        let mut running = begin_perf(guest, options, &format!("--duration {seconds}"));
        happens(guest, &mut running);
        let was_in_time = !running.1.has_ended();
        let client = verified(running);
        if was_in_time {
            return client;
        }
    }
    panic!("it takes longer than data is sent, which is {RUNS:?} s")
}

/// The JSON that a command of xwarp prints at an end.
fn told(guest: &Guest, end: End, command: &str) -> Value {
    let told = guest.run_program(end, "xwarp", &format!("{command} --json"));
    serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// Waits for the end of both, which have done what they should: the client's output.
fn verified((server, client): (Running, Running)) -> Finished {
    let client = client.finish();
    let server = server.finish();
    let data = client.stdout.contains("every byte as sent");
    assert!(
        data && client.succeeds() && server.succeeds(),
        "{client}\n{server}"
    );
    client
}

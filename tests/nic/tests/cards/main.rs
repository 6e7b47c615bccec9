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

use std::time::Duration;

use serde_json::Value;
use xwarp_nic_tests::{Card, End, Guest, Image};
use xwarp_system_tests::{Finished, Running};

/// How long a test of `xwarp perf` may take.
const LIMIT: Duration = Duration::from_mins(4);

/// Runs a test in a guest with each kind of card, of so many queues.
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

/// What a command of xwarp tells at an end.
fn told(guest: &Guest, end: End, command: &str) -> Value {
    let told = guest.run_program(end, "xwarp", &format!("{command} --json"));
    serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// Waits for the end of both, which have done what they should: the client's output.
fn verified((server, client): (Running, Running)) -> Finished {
    let client = client.finish_within(LIMIT);
    let server = server.finish_within(LIMIT);
    let data = client.stdout.contains("every byte as sent");
    assert!(
        data && client.succeeds() && server.succeeds(),
        "{client}\n{server}"
    );
    client
}

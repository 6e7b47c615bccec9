//! Connections and the engines of their queues.

use serde_json::Value;
use xwarp_guest_tests::nic::{End, Guest, eventually};
use xwarp_system_tests::Running;

use crate::on_each_card;

/// Connections of `flows`.
const CONNECTIONS: u64 = 16;

/// A file in the guest. While it is not there, messages are sent.
const ENOUGH: &str = "/run/enough";

/// Begins `flows` at both ends. `rounds` is the number of messages on each connection, or a file
/// that ends them.
fn begin_flows(guest: &Guest, rounds: &str, engines: usize) -> [Running; 2] {
    let begin = |end: End, role, rounds| {
        let (dev, to) = (end.dev(), End::B.address());
        let arguments = format!("{role} {dev} {to}:7471 {CONNECTIONS} {engines} {rounds}");
        guest.program(end, "flows", &arguments)
    };
    let mut server = begin(End::B, "serve", "");
    server.line("listening");
    guest.await_link();
    [begin(End::A, "ask", rounds), server]
}

/// What both ends report, which have compared all that came.
fn reports(running: [Running; 2]) -> [Value; 2] {
    // Where one fails, both say how they are.
    let [ask, serve] = running.map(Running::finish);
    assert!(ask.succeeds() && serve.succeeds(), "{ask}\n{serve}");
    [ask, serve].map(|ended| {
        let line = ended.stdout.lines().last().expect("a report");
        serde_json::from_str(line).expect("JSON")
    })
}

/// The NIC's hash is known: a port was chosen for each connection, and nothing comes to another
/// engine than its own.
#[test]
fn connections_live_where_their_frames_come() {
    on_each_card(4, |card, guest| {
        for engines in [1, 2, 4] {
            let reports = reports(begin_flows(guest, "10", engines));
            for report in &reports {
                assert_eq!(report["handed_over"], 0, "{card:?}: {report}");
            }
            let each = CONNECTIONS / engines as u64;
            let near = reports[0]["connections"].as_array().expect("a list");
            assert!(near.iter().all(|it| *it == each), "{:?}", reports[0]);
        }
    });
}

/// Waits until two more rounds are over: the second has begun after the call.
fn await_rounds(client: &Running) {
    let over = || client.printed().matches("is over").count();
    let before = over();
    eventually("two more rounds", || over() >= before + 2);
}

/// Where the NIC chooses other queues meanwhile, engines hand frames over. Connections are there
/// before, and have messages with each choice.
#[test]
fn connections_survive_other_queues() {
    on_each_card(4, |card, guest| {
        let [mut client, server] = begin_flows(guest, ENOUGH, 4);
        client.line("round 1 ");
        for queues in [1, 2, 3, 4, 1, 2] {
            for end in End::BOTH {
                let dev = end.dev();
                guest.run(end, &format!("ethtool -X {dev} equal {queues}"));
            }
            await_rounds(&client);
        }
        guest.run(End::A, &format!("touch {ENOUGH}"));
        for report in reports([client, server]) {
            let handed_over = report["handed_over"].as_u64();
            assert!(handed_over > Some(100), "{card:?}: {report}");
        }
    });
}

//! Connections and the engines of their queues.

use serde_json::Value;
use xwarp_nic_tests::{End, Guest};
use xwarp_system_tests::Running;

use crate::{LIMIT, on_each_card};

/// Connections of `flows`.
const CONNECTIONS: u64 = 16;

/// Begins `flows` at both ends.
fn begin_flows(guest: &Guest, rounds: u64, engines: usize) -> [Running; 2] {
    let begin = |end: End, role| {
        let (dev, to) = (end.dev(), End::B.address());
        let arguments = format!("{role} {dev} {to}:7471 {CONNECTIONS} {rounds} {engines}");
        guest.program(end, "flows", &arguments)
    };
    let mut server = begin(End::B, "serve");
    server.line("listening");
    guest.await_link();
    [begin(End::A, "ask"), server]
}

/// What both ends report, which have compared all that came.
fn reports(running: [Running; 2]) -> [Value; 2] {
    // Where one fails, both say how they are.
    let [ask, serve] = running.map(|running| running.finish_within(LIMIT));
    assert!(ask.succeeds() && serve.succeeds(), "{ask}\n{serve}");
    [ask, serve].map(|ended| {
        let line = ended.stdout.lines().last().expect("a report");
        serde_json::from_str(line).expect("JSON")
    })
}

/// The NIC's hash is known: a port was chosen for each connection, and nothing comes to another engine than its own.
#[test]
fn connections_live_where_their_frames_come() {
    on_each_card(4, |card, guest| {
        for engines in [1, 2, 4] {
            let reports = reports(begin_flows(guest, 10, engines));
            for report in &reports {
                assert_eq!(report["handed_over"], 0, "{card:?}: {report}");
            }
            let each = CONNECTIONS / engines as u64;
            let near = reports[0]["connections"].as_array().expect("a list");
            assert!(near.iter().all(|it| *it == each), "{:?}", reports[0]);
        }
    });
}

/// Where the NIC chooses other queues meanwhile, engines hand frames over.
#[test]
fn connections_survive_other_queues() {
    on_each_card(4, |card, guest| {
        let running = begin_flows(guest, 15, 4);
        for queues in [1, 2, 3, 4, 1, 2] {
            for end in End::BOTH {
                let dev = end.dev();
                guest.run(end, &format!("ethtool -X {dev} equal {queues}"));
            }
        }
        for report in reports(running) {
            let handed_over = report["handed_over"].as_u64();
            assert!(handed_over > Some(100), "{card:?}: {report}");
        }
    });
}

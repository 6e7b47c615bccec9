//! The tools of rdma-core and perftest between two guests, and what they look like on the wire.

use std::time::Duration;

use xwarp_guest_tests::siw::Guest;
use xwarp_system_tests::{Capture, eventually};

use crate::with_two_guests;

const LIMIT: Duration = Duration::from_secs(30);

/// Gives servers time to listen, and siw's responder to look for more after its MPA Reply: it loses
/// what reaches it before. So the client's first Send is delayed, too: to queue number 0 with MSN 1
/// (RFC 5041 §4.2), in a TCP segment with timestamps.
fn await_responders(client: &Guest<'_>) {
    client.await_listeners(&["u32 0 0xffffffff at 60 match u32 1 0xffffffff at 64"]);
}

/// Runs a server in one guest and its client in the other; both must end well.
fn run_both([client, server]: &[Guest<'_>; 2], serve: &str, ask: &str) {
    let waiting = server.start(serve);
    eventually("the server listens", || {
        let listed = server.run("rdma resource show cm_id").succeeded();
        listed.output.contains("LISTEN")
    });
    let client = client.start(ask).finish_within(LIMIT).succeeded();
    let server = waiting.finish_within(LIMIT).succeeded();
    for ended in [client, server] {
        assert!(!ended.output.contains("error"), "{ended}");
    }
}

#[test]
fn rping_verifies_its_data_and_tshark_finds_its_messages() {
    const ROUNDS: usize = 20;
    with_two_guests(|lab, guests| {
        await_responders(&guests[0]);
        let recorder = lab.record(1);
        let arguments = format!("-a {} -p 7174 -C {ROUNDS} -S 1000 -V", guests[1].address());
        let [serve, ask] = ["-s", "-c"].map(|role| format!("rping {role} {arguments}"));
        run_both(guests, &serve, &ask);
        let capture = Capture::dissect_port(&recorder.finish(), 7174);
        for frame in capture.frames() {
            assert_eq!(frame.all("tcp.checksum.status"), ["1"], "{}", frame.text());
            assert!(!frame.has("_ws.malformed"), "{}", frame.text());
        }
        assert_eq!(capture.with("iwarp_mpa.req").count(), 1);
        assert_eq!(capture.with("iwarp_mpa.rep").count(), 1);
        // The server reads the client's text, and writes it back.
        let opcodes = capture.count("iwarp_rdma.opcode");
        for opcode in ["0x00", "0x01", "0x02"] {
            assert_eq!(opcodes.get(opcode), Some(&ROUNDS), "{opcodes:?}");
        }
    });
}

#[test]
fn perftest_runs_between_two_guests() {
    with_two_guests(|_, guests| {
        await_responders(&guests[0]);
        let address = guests[1].address();
        for test in ["send", "write", "read"] {
            for (kind, size) in [("bw", 20_000), ("lat", 64)] {
                let serve = format!("ib_{test}_{kind} -R -d siw0 -F -s {size} -n 20");
                run_both(guests, &serve, &format!("{serve} {address}"));
            }
        }
    });
}

//! Captures of Linux siw, recorded between two of them: this crate reads every FPDU, however siw
//! packed and split it, and all checks pass. Another reader than ours counted what each capture
//! holds.
//!
//! | capture | program and setting |
//! |---|---|
//! | rping, rping-6.1 | rping over kernels 6.12 and 6.1: CRC off, each side's default |
//! | crc-client, crc-both | the client asks for CRC; both do |
//! | p2p-write, p2p-read | peer-to-peer mode: RTR by Write, by Read |
//! | mpav1 | revision 1 |
//! | `ib_send_lat`, `ib_read_lat` | perftest |
//! | mtu1500 | perftest's `ib_write_bw`: full segments |
//! | gso | the same with siw's large FPDUs, each over many TCP segments |
//! | rstream | rsockets: FPDUs that share a TCP segment and span two |
#![allow(
    clippy::missing_panics_doc,
    reason = "test code: every step of it panics when it fails"
)]

mod capture;
mod replay;

use std::path::Path;

use replay::{Replayed, replay};

fn connections(name: &str) -> Vec<Replayed> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/siw_captures/captures/{name}.pcap"));
    capture::connections(&file).iter().map(replay).collect()
}

/// Fails unless the capture holds these connections: revision, whether CRCs are checked, and what
/// initiator and responder sent.
#[track_caller]
fn holds(name: &str, expected: &[(u8, bool, &str, &str)]) {
    let found = connections(name);
    let found: Vec<(u8, bool, &str, &str)> = (found.iter())
        .map(|c| {
            (
                c.revision,
                c.crc,
                c.initiator.as_str(),
                c.responder.as_str(),
            )
        })
        .collect();
    assert_eq!(found, expected, "{name}");
}

const RPING_CLIENT: &str = "Send 6/6, ReadResponse 3/3";
const RPING_SERVER: &str = "ReadRequest 3/3, Send 6/6, Write 3/3";

#[test]
fn rping_by_default_has_no_crc() {
    holds("rping", &[(2, false, RPING_CLIENT, RPING_SERVER)]);
    holds("rping-6.1", &[(2, false, RPING_CLIENT, RPING_SERVER)]);
}

#[test]
fn crcs_are_right_once_one_side_asks_for_them() {
    let (client, server) = (
        "Send 4/4, ReadResponse 2/2",
        "ReadRequest 2/2, Send 4/4, Write 2/2",
    );
    holds("crc-client", &[(2, true, client, server)]);
    holds("crc-both", &[(2, true, client, server)]);
}

#[test]
fn ready_to_receive_message_comes_first() {
    let server = "ReadRequest 2/2, Send 4/4, Write 2/2";
    holds(
        "p2p-write",
        &[(2, false, "Write 1/1, Send 4/4, ReadResponse 2/2", server)],
    );
    holds(
        "p2p-read",
        &[(
            2,
            false,
            "ReadRequest 1/1, Send 4/4, ReadResponse 2/2",
            "ReadResponse 1/1, ReadRequest 2/2, Send 4/4, Write 2/2",
        )],
    );
}

#[test]
fn revision_1_is_read() {
    holds("mpav1", &[(1, false, "Send 1/1", "")]);
}

#[test]
fn perftest_opens_a_connection_for_parameters_and_one_for_the_test() {
    let parameters = (2, false, "Send 11/11", "Send 11/11");
    holds(
        "ib_send_lat",
        &[parameters, (2, false, "Send 20/20", "Send 20/20")],
    );
    holds(
        "ib_read_lat",
        &[
            parameters,
            (2, false, "ReadRequest 20/20", "ReadResponse 20/20"),
        ],
    );
}

#[test]
fn messages_of_many_segments_are_whole() {
    let parameters = (2, false, "Send 16/16", "Send 16/16");
    holds("mtu1500", &[parameters, (2, false, "Write 75/5", "")]);
}

#[test]
fn fpdu_over_many_tcp_segments_is_whole() {
    let parameters = (2, false, "Send 16/16", "Send 16/16");
    holds("gso", &[parameters, (2, false, "Write 5/5", "")]);
}

#[test]
fn fpdus_may_begin_and_end_anywhere_in_tcp_segments() {
    let found = connections("rstream");
    let [stream] = found.as_slice() else {
        panic!("one connection, not {}", found.len());
    };
    assert_eq!(stream.initiator, "Write 22/12, Send 12/12");
    assert_eq!(stream.responder, "Write 22/12, Send 13/13");
    assert!(stream.spanning > 0, "no FPDU of it spans two TCP segments");
}

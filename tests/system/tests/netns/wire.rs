//! Frames on the wire, as tshark reads them, which knows iWARP from elsewhere.
//!
//! The two tests of alignment are about this implementation only: the RFC allows FPDUs that are
//! split over segments (RFC 5044 §5.1), but says what they cost.

use std::path::PathBuf;

use xwarp_system_tests::{Capture, Case, Frame, Hosts, Mode, Setup, Shape, Verdicts, Way};
use xwarp_test_kit::needs_root;

const SIZES: [u64; 4] = [64, 1 << 10, 4 << 10, 64 << 10];
const MESSAGES: u64 = 20;
/// Opcodes (RFC 5040 §4.3), as tshark prints them.
const WRITE: &str = "0x00";
const READ_REQUEST: &str = "0x01";
const READ_RESPONSE: &str = "0x02";
const SEND: &str = "0x03";
const SEND_WITH_EVENT: &str = "0x05";

/// The captures of client and server of a run.
fn captured(
    setup: &Setup<'_>,
    hosts: &Hosts,
    test: &'static str,
    size: u64,
) -> [(PathBuf, Capture); 2] {
    let files =
        ["client", "server"].map(|who| hosts.work.file(&format!("{test}-{size}-{who}.pcapng")));
    let [client, server] = &files;
    setup.measure(&Case {
        size,
        messages: MESSAGES,
        depth: 8,
        client: format!("--capture {}", client.display()),
        server: format!("--capture {}", server.display()),
        ..Case::new(test)
    });
    files.map(|file| (file.clone(), Capture::dissect(&file)))
}

/// Nothing is malformed, sent again, or wrong in a checksum; every FPDU's CRC is what tshark
/// computes.
fn check_clean(what: &str, capture: &Capture) {
    for frame in capture.frames() {
        let text = frame.text();
        assert!(!frame.has("_ws.malformed"), "{what}: {text}");
        assert!(
            is_harmless(frame.all("_ws.expert.message")),
            "{what}: {text}"
        );
        assert_eq!(frame.all("tcp.checksum.status"), ["1"], "{what}: {text}");
        if frame.all("ip.version") == ["4"] {
            assert_eq!(frame.all("ip.checksum.status"), ["1"], "{what}: {text}");
        }
    }
    let all_good = Verdicts {
        good: capture.fpdus(),
        bad: 0,
    };
    assert_eq!(
        capture.verdicts(),
        all_good,
        "{what}: CRCs of {} FPDUs",
        capture.fpdus()
    );
}

/// tshark remarks on a connection's beginning and end, on its windows, and on our own comments. Its
/// other remarks are on losses and flaws.
fn is_harmless(remarks: &[String]) -> bool {
    let harmless = [
        "Connection establish",
        "Connection finish",
        "This frame initiates",
        "This frame undergoes",
        "NIC time",
        "no NIC time",
        "TCP window update",
        "TCP window specified by the receiver is now completely full",
    ];
    remarks
        .iter()
        .all(|remark| harmless.iter().any(|start| remark.starts_with(start)))
}

/// MPA revision 1 or 2, one Request, one Reply.
fn check_startup(what: &str, capture: &Capture) {
    assert_eq!(capture.with("iwarp_mpa.req").count(), 1, "{what}: Requests");
    assert_eq!(capture.with("iwarp_mpa.rep").count(), 1, "{what}: Replies");
    for revision in capture.count("iwarp_mpa.rev").into_keys() {
        assert!(
            ["1", "2"].contains(&revision),
            "{what}: MPA revision {revision}"
        );
    }
}

/// The last segments of as many messages as were sent, and at least as many FPDUs as their bytes
/// need.
fn check_messages(what: &str, capture: &Capture, test: &str, size: u64, mtu: u64) {
    let opcodes = capture.count("iwarp_rdma.opcode");
    let seen = |opcode| opcodes.get(opcode).copied().unwrap_or(0);
    let segments = usize::try_from(MESSAGES * size.div_ceil(mtu)).expect("a small number");
    let (carrier, others) = match test {
        "write-bw" => (WRITE, vec![READ_REQUEST, READ_RESPONSE]),
        "read-bw" => (READ_RESPONSE, vec![READ_REQUEST]),
        _ => (SEND, vec![READ_REQUEST, READ_RESPONSE]),
    };
    assert!(
        seen(carrier) >= segments,
        "{what}: {segments} segments, but {opcodes:?}"
    );
    for opcode in others.into_iter().chain([WRITE, SEND_WITH_EVENT]) {
        assert!(
            seen(opcode) > 0,
            "{what}: opcode {opcode} is missing among {opcodes:?}"
        );
    }
    for opcode in opcodes.keys() {
        let known = [WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_WITH_EVENT];
        assert!(
            known.contains(opcode),
            "{what}: opcode {opcode} among {opcodes:?}"
        );
    }
    if test == "read-bw" {
        // And one Read of no bytes, whose completion means that all data before it has been placed.
        let asked = usize::try_from(MESSAGES).expect("a small number") + 1;
        assert_eq!(seen(READ_REQUEST), asked, "{what}: {opcodes:?}");
        let sizes = capture.count("iwarp_rdma.rdmardsz");
        assert_eq!(
            sizes.get(size.to_string().as_str()),
            Some(&(asked - 1)),
            "{what}: {sizes:?}"
        );
    }
}

fn check_all(hosts: &Hosts, test: &'static str, sizes: &[u64], mtu: u64) {
    let setup = Setup::new(hosts, Way::Itself, Mode::Native);
    for &size in sizes {
        let [client, server] = captured(&setup, hosts, test, size);
        for (file, capture) in [&client, &server] {
            let what = file.display().to_string();
            check_clean(&what, capture);
            check_startup(&what, capture);
            check_messages(&what, capture, test, size, mtu);
        }
        // Nothing is lost on the cable: both saw the same frames.
        assert_eq!(
            client.1.frames().len(),
            server.1.frames().len(),
            "{test} {size}"
        );
    }
}

#[test]
fn tshark_finds_no_flaw_in_writes() {
    needs_root!();
    check_all(&Hosts::new(), "write-bw", &SIZES, 1500);
}

#[test]
fn tshark_finds_no_flaw_in_reads() {
    needs_root!();
    check_all(&Hosts::new(), "read-bw", &SIZES, 1500);
}

#[test]
fn tshark_finds_no_flaw_in_sends() {
    needs_root!();
    check_all(&Hosts::new(), "send-bw", &SIZES, 1500);
}

#[test]
fn tshark_finds_no_flaw_in_large_frames() {
    needs_root!();
    for mtu in [3500, 9000] {
        let hosts = Hosts::shaped(Shape {
            mtu,
            ..Shape::default()
        });
        for test in ["write-bw", "read-bw", "send-bw"] {
            check_all(&hosts, test, &[4 << 10, 64 << 10], mtu.into());
        }
    }
}

/// Bytes that are neither start-up nor the beginning of an FPDU.
fn continuations(capture: &Capture) -> Vec<String> {
    let frames = capture.frames().iter().filter(|frame| {
        let known = ["iwarp_mpa.req", "iwarp_mpa.rep", "iwarp_mpa.ulpdulength"];
        frame.all("tcp.len") != ["0"] && !known.iter().any(|field| frame.has(field))
    });
    frames.map(Frame::text).collect()
}

fn check_alignment(test: &'static str) {
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for (_, capture) in captured(&setup, &hosts, test, 64 << 10) {
        let split = continuations(&capture);
        assert!(
            split.is_empty(),
            "{test}: {} FPDUs are split: {split:#?}",
            split.len()
        );
    }
}

#[test]
fn no_write_is_split_over_two_segments() {
    needs_root!();
    check_alignment("write-bw");
}

#[test]
fn no_read_response_is_split_over_two_segments() {
    needs_root!();
    check_alignment("read-bw");
}

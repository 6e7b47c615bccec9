//! Checks of segments that neither vectors.md §6 nor the rows of wire.md §9 (`rows/`) show.

use crate::support::{A, B, Region, Stream, hex};
use xwarp_iwarp::{Inbound, InvalidateError, ReadRequest, SendKind, Stag};

/// A Send segment with these fields.
fn send(last: bool, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = hex("01 43 00000000 00000000");
    if last {
        ulpdu[0] |= 0x40;
    }
    ulpdu.extend(msn.to_be_bytes());
    ulpdu.extend(mo.to_be_bytes());
    ulpdu.extend(payload);
    ulpdu
}

/// A tagged segment: `control` is both control bytes.
fn tagged(control: [u8; 2], stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    [
        &control[..],
        &stag.0.to_be_bytes(),
        &to.to_be_bytes(),
        payload,
    ]
    .concat()
}

/// A Read Request for 16 bytes of the page, with this MSN.
fn read_request(msn: u8) -> Vec<u8> {
    let request = "55667788 0000000000002000 00000010 11223344 0000000000001000";
    hex(&format!(
        "41 41 00000000 00000001 000000{msn:02x} 00000000 {request}"
    ))
}

const WRITE: [u8; 2] = [0xc1, 0x40];
const RESPONSE: [u8; 2] = [0xc1, 0x42];
const RESPONSE_MORE: [u8; 2] = [0x81, 0x42];

/// Two reads outstanding: 8 bytes to B at 0x2000, none to B at 0.
fn reading() -> Stream {
    let mut stream = Stream::new().page().region(Region::new(B, 0x2000, 8));
    stream.receiver.expect_read(ReadRequest {
        sink: B,
        sink_to: 0x2000,
        len: 8,
        source: A,
        source_to: 0,
    });
    stream.receiver.expect_read(ReadRequest {
        sink: B,
        sink_to: 0,
        len: 0,
        source: A,
        source_to: 0,
    });
    stream
}

#[test]
fn send_takes_one_buffer_for_all_its_segments() {
    let mut stream = Stream::new().page().receive(8).receive(8);
    let first = send(false, 1, 0, b"abcd");
    let expected = Inbound::Send {
        kind: SendKind::default(),
        offset: 0,
        payload: b"abcd",
        message_len: None,
    };
    assert_eq!(stream.ulpdu(&first), Ok(expected));
    assert!(stream.receiver.mid_message());
    // 69: a Write between them is fine
    let write = tagged(WRITE, A, 0x1000, b"w");
    assert!(matches!(stream.ulpdu(&write), Ok(Inbound::Write { .. })));
    let rest = send(true, 1, 4, b"efgh");
    let expected = Inbound::Send {
        kind: SendKind::default(),
        offset: 4,
        payload: b"efgh",
        message_len: Some(8),
    };
    assert_eq!(stream.ulpdu(&rest), Ok(expected));
    assert!(!stream.receiver.mid_message());
    assert_eq!(stream.table.receives.len(), 1);
}

#[test]
fn empty_last_segment_ends_a_longer_send() {
    let mut stream = Stream::new().receive(4);
    assert!(stream.ulpdu(&send(false, 1, 0, b"abcd")).is_ok());
    let end = send(true, 1, 4, b"");
    let expected = Inbound::Send {
        kind: SendKind::default(),
        offset: 4,
        payload: b"",
        message_len: Some(4),
    };
    assert_eq!(stream.ulpdu(&end), Ok(expected)); // D17
}

#[test]
fn exactly_full_buffer_is_accepted() {
    assert!(
        Stream::new()
            .receive(4)
            .ulpdu(&send(true, 1, 0, b"abcd"))
            .is_ok()
    );
}

#[test]
fn opcode_on_another_queue_is_0_2_06_and_a_queue_that_is_not_there_1_2_01() {
    for (control, qn, code) in [
        (0x43, 1, "0/2/06"), // 59: Send on QN 1
        (0x43, 2, "0/2/06"),
        (0x41, 0, "0/2/06"), // Read Request on QN 0
        (0x47, 0, "0/2/06"), // Terminate on QN 0
        (0x40, 0, "0/2/06"), // 57: untagged Write
        (0x42, 0, "0/2/06"), // untagged Read Response
        (0x43, 3, "1/2/01"), // 58
        (0x4b, 3, "1/2/01"), // Atomic Response, and no such queue without atomics
        (0x43, 0xff, "1/2/01"),
        (0x4c, 0xff, "0/2/06"), // 54: the opcode is judged before the queue
    ] {
        let mut ulpdu = hex("41 00 00000000 00000000 00000001 00000000 00010203");
        (ulpdu[1], ulpdu[9]) = (control, qn);
        assert_eq!(
            Stream::new().receive(8).refusal(&ulpdu),
            code,
            "control {control:#x} on QN {qn}"
        );
    }
}

#[test]
fn versions_are_judged_before_all_else() {
    for (control, code) in [
        ([0xc0, 0x00], "1/1/04"), // 53: DDP first
        ([0xc2, 0x4f], "1/1/04"),
        ([0xc1, 0x0f], "0/2/05"), // 52
        ([0xc1, 0x80], "0/2/05"),
        ([0xc1, 0xc0], "0/2/05"),
        ([0x40, 0x03], "1/2/06"),
        ([0x43, 0x43], "1/2/06"), // 51
    ] {
        let mut ulpdu = tagged(control, A, 0x1000, b"payload");
        ulpdu.extend(hex("00000000"));
        assert_eq!(Stream::new().page().refusal(&ulpdu), code, "{control:x?}");
    }
}

#[test]
fn segments_shorter_than_their_header_are_refused_without_headers() {
    for len in 0..18 {
        for control in [0xc1, 0x41] {
            if control == 0xc1 && len >= 14 {
                continue;
            }
            let mut ulpdu = vec![0x43; len];
            if let Some(first) = ulpdu.first_mut() {
                *first = control;
            }
            let violation = Stream::new().ulpdu(&ulpdu).expect_err("too short");
            assert_eq!(violation.terminate().ulpdu()[18..], hex("10000000")); // 36, 37
        }
    }
    assert_eq!(
        Stream::new()
            .page()
            .refusal(&tagged(WRITE, A, 0x1000, &vec![0; 64755])),
        "1/0/00"
    ); // D13
}

#[test]
fn read_request_payload_is_28_bytes() {
    let mut short = read_request(1);
    short.pop();
    let violation = Stream::new().page().ulpdu(&short).expect_err("27 bytes");
    assert_eq!(violation.terminate().ulpdu()[18..], hex("10000000")); // 83: no headers
    let mut long = read_request(1);
    long.push(0);
    assert_eq!(Stream::new().page().refusal(&long), "1/2/05");
    let mut shifted = read_request(1);
    shifted[17] = 1; // MO
    assert_eq!(Stream::new().page().refusal(&shifted), "1/2/04");
}

#[test]
fn read_credit_returns_with_the_response() {
    let mut stream = Stream::with_ird(1).page();
    assert!(stream.ulpdu(&read_request(1)).is_ok());
    stream.receiver.response_sent();
    assert!(stream.ulpdu(&read_request(2)).is_ok());
    assert_eq!(stream.refusal(&read_request(3)), "1/2/03"); // 85
    let mut stream = Stream::new().page();
    assert_eq!(stream.refusal(&read_request(2)), "1/2/03"); // 61 on QN 1
}

#[test]
fn read_response_in_segments_completes_with_its_last() {
    let mut stream = reading();
    assert!(!stream.receiver.mid_message());
    let first = tagged(RESPONSE_MORE, B, 0x2000, b"abc");
    let expected = Inbound::ReadResponse {
        stag: B,
        to: 0x2000,
        payload: b"abc",
        done: false,
    };
    assert_eq!(stream.ulpdu(&first), Ok(expected));
    assert!(stream.receiver.mid_message());
    // 70: a Write between them is fine
    assert!(stream.ulpdu(&tagged(WRITE, A, 0x1000, b"w")).is_ok());
    assert!(
        stream
            .ulpdu(&tagged(RESPONSE_MORE, B, 0x2003, b"defgh"))
            .is_ok()
    );
    assert_eq!(stream.receiver.outstanding_reads(), 2);
    let end = tagged(RESPONSE, B, 0x2008, b"");
    assert!(matches!(
        stream.ulpdu(&end),
        Ok(Inbound::ReadResponse { done: true, .. })
    )); // D17
    assert_eq!(stream.receiver.outstanding_reads(), 1);
    assert!(!stream.receiver.mid_message());
    // 88: without payload no STag is compared
    let end = tagged(RESPONSE, Stag(9), 77, b"");
    assert!(matches!(
        stream.ulpdu(&end),
        Ok(Inbound::ReadResponse { done: true, .. })
    ));
}

#[test]
fn read_response_must_match_the_oldest_read() {
    assert_eq!(
        Stream::new()
            .page()
            .refusal(&tagged(RESPONSE, A, 0x1000, b"x")),
        "1/1/00"
    ); // 86
    assert_eq!(
        Stream::new().refusal(&tagged(RESPONSE, Stag(1), 0, b"")),
        "1/1/00"
    );
    for (control, stag, to, payload, code) in [
        (RESPONSE, A, 0x2000, &b"abcdefgh"[..], "1/1/00"), // 87: other STag, though ours
        (RESPONSE, B, 0x2001, b"abcdefgh", "1/1/01"),      // gap
        (RESPONSE, B, 0x1fff, b"abcdefgh", "1/1/01"),      // overlap
        (RESPONSE, B, 0x2000, b"abcdefghi", "1/1/01"),     // too long
        (RESPONSE_MORE, B, 0x2000, b"abcdefghi", "1/1/01"),
        (RESPONSE, B, 0x2000, b"abcdefg", "1/1/01"), // L too early
        (RESPONSE, B, 0x2000, b"", "1/1/01"),
    ] {
        assert_eq!(
            reading().refusal(&tagged(control, stag, to, payload)),
            code,
            "TO {to:#x}, {payload:?}"
        );
    }
}

#[test]
fn sink_that_vanished_refuses_the_response() {
    let response = tagged(RESPONSE, B, 0x2000, b"abcdefgh");
    let mut stream = reading();
    stream.table.regions.clear();
    assert_eq!(stream.refusal(&response), "1/1/00"); // 89
    let mut stream = reading();
    stream.table.regions[1].rights = false;
    assert_eq!(stream.refusal(&response), "1/1/02"); // D20, D5
}

#[test]
fn invalidate_is_judged_with_the_last_segment() {
    let mut stream = Stream::new().receive(8).region(Region {
        invalidate: Err(InvalidateError::Forbidden),
        ..Region::new(Stag(9), 0, 0)
    });
    let mut first = send(false, 1, 0, b"ab");
    (first[1], first[5]) = (0x44, 9);
    let kind = SendKind {
        solicited: false,
        invalidate: Some(Stag(9)),
    };
    let expected = Inbound::Send {
        kind,
        offset: 0,
        payload: b"ab",
        message_len: None,
    };
    assert_eq!(stream.ulpdu(&first), Ok(expected));
    let mut last = send(true, 1, 2, b"cd");
    (last[1], last[5]) = (0x44, 9);
    assert_eq!(stream.refusal(&last), "0/1/09"); // 91
}

#[test]
fn terminate_without_any_posted_receive_is_taken() {
    let terminate = hex("41 47 00000000 00000002 00000001 00000000 20020000");
    assert!(matches!(
        Stream::with_ird(0).ulpdu(&terminate),
        Ok(Inbound::Terminate(_))
    )); // R5040-5.4-2
}

//! Terminates of the peer, regular and not: wire.md rows 100 to 105.

use super::{SEND, Untagged, write};
use crate::support::{A, B, Stream, hex};
use xwarp_iwarp::rdmap::{CapturedHeader, TerminateFault};
use xwarp_iwarp::{Inbound, ReadRequest, ReceivedTerminate, TermCode};

const TERMINATE: Untagged<'static> = Untagged {
    control: [0x41, 0x47],
    qn: 2,
    payload: &[0x20, 0x02, 0, 0],
    ..SEND
};

/// The received Terminate, after which the stream drops segments.
fn received(segment: Untagged<'_>) -> ReceivedTerminate {
    let mut stream = Stream::new().page();
    let bytes = segment.bytes();
    let Ok(Inbound::Terminate(terminate)) = stream.ulpdu(&bytes) else {
        panic!("a Terminate")
    };
    assert!(stream.receiver.has_ended());
    for late in [bytes.clone(), write(A, 0x1000, b"x"), SEND.bytes()] {
        assert_eq!(stream.ulpdu(&late), Ok(Inbound::Dropped)); // row 104
    }
    terminate
}

fn with_payload(payload: &str) -> ReceivedTerminate {
    received(Untagged {
        payload: &hex(payload),
        ..TERMINATE
    })
}

#[test]
fn terminate_without_headers_has_just_its_code() {
    let mut stream = Stream::new();
    let fpdu = hex("0016 41 47 00000000 00000002 00000001 00000000 20020000 7fe42585"); // F-8
    let Ok(Inbound::Terminate(terminate)) = stream.fpdu(&fpdu) else {
        panic!("a Terminate")
    };
    assert_eq!(terminate.code, TermCode::mpa(2));
    assert_eq!(terminate.control, [0x20, 0x02, 0, 0]);
    assert_eq!(
        (
            terminate.segment_len,
            terminate.ddp_header,
            terminate.read_request
        ),
        (None, None, None)
    );
    assert_eq!(terminate.fault, None);
}

#[test]
fn tagged_header_is_returned() {
    let terminate = with_payload("1101c000 0012 c1 40 11223344 0000000000001ffe"); // of T-2
    assert_eq!(terminate.code, TermCode::ddp_tagged(1));
    assert_eq!(terminate.segment_len, Some(18));
    let Some(CapturedHeader::Tagged(header)) = terminate.ddp_header else {
        panic!("a tagged header")
    };
    assert_eq!((header.stag.get(), header.to.get()), (A.0, 0x1ffe));
}

#[test]
fn read_request_is_returned() {
    let terminate = with_payload(
        "0100e000 002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002800 00001800 11223344 0000000000001800", // of T-20
    );
    assert_eq!(terminate.code, TermCode::rdmap_protection(0));
    assert!(matches!(
        terminate.ddp_header,
        Some(CapturedHeader::Untagged(_))
    ));
    let read = ReadRequest {
        sink: B,
        sink_to: 0x2800,
        len: 0x1800,
        source: A,
        source_to: 0x1800,
    };
    assert_eq!(terminate.read_request, Some(read));
}

/// Row 100.
#[test]
fn irregular_terminate_is_taken_and_noted() {
    for (segment, fault) in [
        (
            Untagged {
                control: [0x01, 0x47],
                ..TERMINATE
            },
            TerminateFault::NotLast,
        ),
        (
            Untagged { mo: 8, ..TERMINATE },
            TerminateFault::MessageOffset(8),
        ),
        (
            Untagged {
                msn: 0,
                ..TERMINATE
            },
            TerminateFault::MessageNumber(0),
        ),
        (
            Untagged { mo: 4, ..TERMINATE },
            TerminateFault::MessageOffset(4),
        ),
        (
            Untagged {
                msn: 2,
                ..TERMINATE
            },
            TerminateFault::MessageNumber(2),
        ),
    ] {
        let terminate = received(segment);
        assert_eq!(
            (terminate.code, terminate.fault),
            (TermCode::mpa(2), Some(fault))
        );
    }
}

/// R5040-5.4-2.
#[test]
fn terminate_without_any_posted_receive_is_taken() {
    assert!(matches!(
        Stream::with_ird(0).ulpdu(&TERMINATE.bytes()),
        Ok(Inbound::Terminate(_))
    ));
}

/// Row 101.
#[test]
fn terminate_without_a_code_is_one() {
    for payload in ["", "20", "2002", "200200", "11", "1101c0"] {
        let (bytes, terminate) = (payload.len() / 2, with_payload(payload));
        assert_eq!(terminate.code, TermCode::UNSPECIFIED);
        assert_eq!(terminate.fault, Some(TerminateFault::NoCode(bytes)));
    }
}

/// Row 102.
#[test]
fn truncated_headers_are_absent_and_the_code_holds() {
    let tagged = "1101c000 0012 c1 40 11223344 0000000000001ffe";
    let read = "0101e000 002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00001001 11223344 0000000000001000";
    for (whole, code, header) in [
        (tagged, TermCode::ddp_tagged(1), 20),
        (read, TermCode::rdmap_protection(1), 24),
    ] {
        let whole = hex(whole);
        for len in 4..=whole.len() {
            let terminate = received(Untagged {
                payload: &whole[..len],
                ..TERMINATE
            });
            assert_eq!(terminate.code, code, "{len} bytes");
            assert_eq!(terminate.segment_len.is_some(), len >= 6, "{len} bytes");
            assert_eq!(terminate.ddp_header.is_some(), len >= header, "{len} bytes");
            assert_eq!(terminate.read_request.is_some(), len >= 52, "{len} bytes");
        }
    }
}

/// Row 103.
#[test]
fn unknown_codes_and_reserved_bits_reach_the_ulp() {
    let terminate = with_payload("9c771fff");
    let code = terminate.code;
    assert_eq!((code.layer(), code.etype(), code.code()), (9, 0xc, 0x77));
    assert_eq!(terminate.control, [0x9c, 0x77, 0x1f, 0xff]);
    let code = with_payload("f7aa1fff").code;
    assert_eq!((code.layer(), code.etype(), code.code()), (15, 7, 0xaa));
    // TQ-2: iw_cxgb4
    let fpdu = hex("0016 41 47 00000000 00000002 00000001 00000000 23020000 466d07e7");
    let Ok(Inbound::Terminate(terminate)) = Stream::new().fpdu(&fpdu) else {
        panic!("a Terminate")
    };
    let code = terminate.code;
    assert_eq!((code.layer(), code.etype(), code.code()), (2, 3, 2));
}

/// Segments after the Terminate are dropped unread: valid ones, invalid ones, and a second
/// Terminate (R5040-5.4-3). Row 104.
#[test]
fn everything_after_a_terminate_is_dropped() {
    let mut stream = Stream::new().page().receive(8);
    let first = TERMINATE.bytes();
    let Ok(Inbound::Terminate(terminate)) = stream.ulpdu(&first) else {
        panic!("a Terminate")
    };
    assert_eq!(terminate.fault, None);
    let another = Untagged {
        msn: 2,
        payload: &[0x01, 0x02, 0, 0],
        ..TERMINATE
    };
    let bad_version = Untagged {
        control: [0x42, 0x43],
        ..SEND
    };
    let late = [
        ("a second Terminate", another.bytes()),
        ("the same one again", first.clone()),
        ("a Send that finds a buffer", SEND.bytes()),
        ("a Write that is allowed", write(A, 0x1000, b"x")),
        ("a Write that is not", write(A, 0, b"x")),
        ("another DDP version", bad_version.bytes()),
        ("less than a header", vec![0x41]),
    ];
    for (what, ulpdu) in &late {
        assert_eq!(stream.ulpdu(ulpdu), Ok(Inbound::Dropped), "{what}");
    }
    assert_eq!(stream.table.receives.len(), 1, "no buffer was taken");
}

/// Row 105.
#[test]
fn bit_order_of_siw_is_understood() {
    // TQ-1: 21 05 03 instead of 12 05 c0; the segment length is the payload's
    let fpdu = hex("002a 41 47 00000000 00000002 00000001 00000000 \
         21050300 0065 41 43 00000000 00000000 00000001 00000000 f5a6ae27");
    let mut stream = Stream::new();
    let Ok(Inbound::Terminate(terminate)) = stream.fpdu(&fpdu) else {
        panic!("a Terminate")
    };
    assert_eq!(
        terminate.code.to_string(),
        "1/2/05 message too long for its buffer (DDP untagged buffer)"
    );
    assert_eq!(terminate.control, [0x21, 0x05, 0x03, 0]);
    assert_eq!(terminate.segment_len, Some(0x65));
    assert!(matches!(
        terminate.ddp_header,
        Some(CapturedHeader::Untagged(_))
    ));
    // siw's CRC error: no flags show the order, but the RFC's reading is no known code
    assert_eq!(with_payload("02020000").code, TermCode::mpa(2));
}

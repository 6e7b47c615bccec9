//! Terminates of the peer, regular and not (wire.md rows 100 to 105).

use crate::support::{A, B, Stream, hex};
use xwarp_iwarp::rdmap::{CapturedHeader, TerminateFault};
use xwarp_iwarp::{Inbound, ReadRequest, ReceivedTerminate, TermCode};

/// What the receiver makes of a Terminate ULPDU.
fn received(ulpdu: &[u8]) -> ReceivedTerminate {
    let mut stream = Stream::new();
    let Ok(Inbound::Terminate(terminate)) = stream.ulpdu(ulpdu) else {
        panic!("a Terminate")
    };
    assert!(stream.receiver.has_ended());
    assert_eq!(stream.ulpdu(ulpdu), Ok(Inbound::Dropped));
    terminate
}

/// A Terminate with this payload.
fn with_payload(payload: &str) -> ReceivedTerminate {
    received(&hex(&format!(
        "41 47 00000000 00000002 00000001 00000000 {payload}"
    )))
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
    // siw's CRC error: no flags tell the order, but the RFC's reading is no code at all
    assert_eq!(with_payload("02020000").code, TermCode::mpa(2));
}

#[test]
fn unregistered_codes_are_handed_up_as_they_are() {
    let fpdu = hex("0016 41 47 00000000 00000002 00000001 00000000 23020000 466d07e7"); // TQ-2: iw_cxgb4
    let Ok(Inbound::Terminate(terminate)) = Stream::new().fpdu(&fpdu) else {
        panic!("a Terminate")
    };
    let code = terminate.code;
    assert_eq!((code.layer(), code.etype(), code.code()), (2, 3, 2));
    let code = with_payload("f7aa1fff").code;
    assert_eq!((code.layer(), code.etype(), code.code()), (15, 7, 0xaa));
}

#[test]
fn truncated_headers_are_absent_and_the_code_holds() {
    let full = "1101c000 0012 c1 40 11223344 0000000000001ffe".replace(' ', "");
    for bytes in 4..20 {
        let terminate = with_payload(&full[..2 * bytes]);
        assert_eq!(terminate.code, TermCode::ddp_tagged(1), "{bytes} bytes");
        assert_eq!(terminate.ddp_header, None, "{bytes} bytes");
    }
    let read = "0100e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002800";
    let terminate = with_payload(read);
    assert!(terminate.ddp_header.is_some());
    assert_eq!(terminate.read_request, None);
}

#[test]
fn too_short_for_a_code_is_still_a_terminate() {
    for (bytes, payload) in [(0, ""), (1, "11"), (3, "1101c0")] {
        let terminate = with_payload(payload);
        assert_eq!(terminate.code, TermCode::UNSPECIFIED);
        assert_eq!(terminate.fault, Some(TerminateFault::NoCode(bytes)));
    }
}

#[test]
fn irregular_terminates_are_taken_and_noted() {
    for (ulpdu, fault) in [
        (
            "01 47 00000000 00000002 00000001 00000000 20020000",
            TerminateFault::NotLast,
        ),
        (
            "41 47 00000000 00000002 00000002 00000000 20020000",
            TerminateFault::MessageNumber(2),
        ),
        (
            "41 47 00000000 00000002 00000001 00000004 20020000",
            TerminateFault::MessageOffset(4),
        ),
    ] {
        let terminate = received(&hex(ulpdu));
        assert_eq!(terminate.code, TermCode::mpa(2));
        assert_eq!(terminate.fault, Some(fault));
    }
}

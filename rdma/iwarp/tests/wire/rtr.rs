//! Ready To Receive in both roles (RFC 6581 §9.2), and a Read Response that stops half-way.

use crate::support::{A, B, Stream, counting, fpdus, hex, sealed};
use xwarp_iwarp::mpa::Rtr;
use xwarp_iwarp::rdmap::SourceRange;
use xwarp_iwarp::{
    AccessError, Inbound, ReadRequest, ReadResponse, Segment, Sender, Stag, StreamConfig,
};

const SEND: &str = "41 43 00000000 00000000 00000001 00000000";

fn awaiting() -> Stream {
    Stream::with_config(StreamConfig {
        await_rtr: true,
        ..StreamConfig::new(4, 4)
    })
}

/// Takes the next segment of a response.
fn next_of(response: &mut ReadResponse, mulpdu: usize) -> Option<Segment> {
    let segment = response.peek_segment(mulpdu)?;
    response.advance(&segment);
    Some(segment)
}

#[test]
fn each_rtr_is_the_zero_length_message_of_the_vectors() {
    for (rtr, fpdu) in [
        (Rtr::Send, format!("0012 {SEND} 587be8c4")), // F-20
        (
            Rtr::Write,
            "000e c1 40 00000001 0000000000000000 ebd34c5f".to_owned(),
        ), // F-21
        (
            Rtr::Read, // F-23
            "002e 41 41 00000000 00000001 00000001 00000000 \
             00000001 0000000000000000 00000000 00000001 0000000000000000 27dbd7e7"
                .to_owned(),
        ),
    ] {
        let message = Sender::new(StreamConfig::new(1, 1)).ready_to_receive(rtr);
        assert_eq!(fpdus(message, &[], 1454), [hex(&fpdu)], "{rtr:?}");
    }
}

#[test]
fn rtr_send_takes_a_message_number_but_no_buffer() {
    let mut stream = awaiting();
    assert_eq!(stream.ulpdu(&hex(SEND)), Ok(Inbound::RtrSend));
    let mut stream = stream.receive(0);
    let mut second = hex(SEND);
    second[13] = 2;
    assert!(matches!(
        stream.ulpdu(&second),
        Ok(Inbound::Send {
            message_len: Some(0),
            ..
        })
    ));
    assert!(stream.table.receives.is_empty());
}

#[test]
fn zero_length_send_is_an_rtr_only_as_first_message_and_only_if_one_is_due() {
    assert_eq!(Stream::new().refusal(&hex(SEND)), "1/2/02");
    let mut stream = awaiting();
    assert!(
        stream
            .ulpdu(&hex("c1 40 00000001 0000000000000000"))
            .is_ok()
    ); // the RTR was a Write
    assert_eq!(stream.refusal(&hex(SEND)), "1/2/02");
    // R6581-9.2-15: a real Send is delivered as one
    let mut stream = awaiting().receive(8);
    let send = [hex(SEND), b"x".to_vec()].concat();
    assert!(matches!(
        stream.ulpdu(&send),
        Ok(Inbound::Send {
            message_len: Some(1),
            ..
        })
    ));
    for (at, value) in [(13, 2), (17, 1), (0, 0x01), (1, 0x45)] {
        let mut other = hex(SEND);
        other[at] = value; // MSN, MO, L, solicited
        assert!(awaiting().ulpdu(&other).is_err());
    }
}

#[test]
fn rtr_read_is_answered_and_completes_at_the_initiator() {
    let mut responder = awaiting();
    let request = Sender::new(StreamConfig::new(1, 1)).ready_to_receive(Rtr::Read);
    let [request] = fpdus(request, &[], 1454).try_into().expect("one segment");
    let Ok(Inbound::ReadRequest(read)) = responder.fpdu(&request) else {
        panic!("a Read Request")
    };
    let mut response = Sender::new(StreamConfig::new(1, 1)).respond(read);
    assert_eq!(response.next_source(1454), None); // no source is looked at
    let segment = next_of(&mut response, 1454).expect("one segment");
    assert!(response.is_done());
    let mut initiator = Stream::new();
    initiator.receiver.expect_read(ReadRequest::RTR);
    let answer = sealed(&segment.header); // F-24
    assert_eq!(answer, hex("000e c1 42 00000001 0000000000000000 21a3e83e"));
    assert!(matches!(
        initiator.fpdu(&answer),
        Ok(Inbound::ReadResponse { done: true, .. })
    ));
}

#[test]
fn response_stops_at_a_segment_border_and_tells_what_is_left() {
    // T-20: 8192 bytes of A at 0x1000 for B at 0x2000; A is revoked after 2048 of them
    let request = hex("002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00002000 11223344 0000000000001000 b90c4a3b");
    let mut stream = Stream::new().region(crate::support::Region::new(A, 0x1000, 0x2000));
    let Ok(Inbound::ReadRequest(read)) = stream.fpdu(&request) else {
        panic!("a Read Request")
    };
    let mut response = Sender::new(StreamConfig::new(4, 4)).respond(read);
    let mulpdu = 14 + 1024;
    for to in [0x1000, 0x1400] {
        let source = SourceRange {
            stag: A,
            to,
            len: 1024,
        };
        assert_eq!(response.next_source(mulpdu), Some(source));
        let segment = next_of(&mut response, mulpdu).expect("not done");
        assert_eq!(segment.header[..6], hex("81 42 55667788"));
        assert_eq!(u64::from(segment.payload.start), to - 0x1000);
    }
    assert_eq!((response.sent(), response.read().request.sink), (2048, B));
    let terminate = hex("0046 41 47 00000000 00000002 00000001 00000000 \
         0100e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002800 00001800 \
         11223344 0000000000001800 8d830099");
    let abort = response.aborted(AccessError::InvalidStag);
    assert_eq!(sealed(&abort.ulpdu()), terminate);
    assert!(!response.is_done());
}

#[test]
fn segments_of_a_response_cover_its_source_exactly() {
    let read = ReadRequest {
        sink: B,
        sink_to: 0,
        len: 5000,
        source: A,
        source_to: 0x1000,
    };
    let mut bytes = hex("41 41 00000000 00000001 00000001 00000000");
    bytes.extend(hex(
        "55667788 0000000000000000 00001388 11223344 0000000000001000",
    ));
    let mut stream = Stream::new().region(crate::support::Region::new(A, 0x1000, 5000));
    let Ok(Inbound::ReadRequest(inbound)) = stream.ulpdu(&bytes) else {
        panic!("a Read Request")
    };
    assert_eq!(inbound.request, read);
    let mut response = Sender::new(StreamConfig::new(4, 4)).respond(inbound);
    let mut copied: Vec<u8> = Vec::new();
    while let Some(source) = response.next_source(1454) {
        assert_eq!(source.stag, A);
        assert_eq!(source.to, 0x1000 + copied.len() as u64);
        let segment = next_of(&mut response, 1454).expect("not done");
        assert_eq!(
            u64::from(segment.payload.end - segment.payload.start),
            source.len
        );
        copied
            .extend(&counting(5000)[segment.payload.start as usize..segment.payload.end as usize]);
    }
    assert!(response.is_done());
    assert_eq!(copied, counting(5000));
    assert_eq!(next_of(&mut response, 1454), None);
    assert_eq!(Stag::PLACEHOLDER, Stag(1));
}

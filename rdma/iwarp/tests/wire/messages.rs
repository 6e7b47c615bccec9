//! One FPDU per opcode, both ways: vectors.md §3.

use crate::support::{A, B, Region, Stream, counting, fpdus, hex, ulpdu_of};
use xwarp_iwarp::{Inbound, Message, Placement, ReadRequest, SendKind, Sender, Stag, StreamConfig};

const PLAIN: SendKind = SendKind {
    solicited: false,
    invalidate: None,
    immediate: None,
};

fn sender() -> Sender {
    Sender::new(StreamConfig::new(4, 4))
}

/// The only FPDU of a message.
fn only(message: Message, payload: &[u8]) -> Vec<u8> {
    let [fpdu] = fpdus(message, payload, 1454)
        .try_into()
        .expect("one segment");
    fpdu
}

fn read(len: u32) -> ReadRequest {
    ReadRequest {
        sink: B,
        sink_to: 0x2000,
        len,
        source: A,
        source_to: 0x1000,
    }
}

#[test]
fn write_is_built_and_placed() {
    let fpdu = hex("0012 c1 40 11223344 0000000000001000 deadbeef b75a39ef"); // F-1
    assert_eq!(
        only(sender().write(A, 0x1000, 4), &[0xde, 0xad, 0xbe, 0xef]),
        fpdu
    );
    let expected = Inbound::Write {
        placement: Placement {
            place: Some(()),
            stag: A,
            to: 0x1000,
            payload: &[0xde, 0xad, 0xbe, 0xef],
        },
        last: true,
    };
    assert_eq!(Stream::new().page().fpdu(&fpdu), Ok(expected));
}

#[test]
fn read_request_is_built_and_handed_on() {
    // F-2: sink STag and TO, size, source STag and TO
    let request = "55667788 0000000000002000 00001000 11223344 0000000000001000";
    let fpdu = hex(&format!(
        "002e 41 41 00000000 00000001 00000001 00000000 {request} 460733cd"
    ));
    assert_eq!(only(sender().read_request(&read(4096)), &[]), fpdu);
    let mut stream = Stream::new().page();
    let Ok(Inbound::ReadRequest(inbound)) = stream.fpdu(&fpdu) else {
        panic!("a Read Request")
    };
    assert_eq!(inbound.request, read(4096));
}

#[test]
fn read_response_is_built_and_completes_the_oldest_read() {
    let payload = "000102030405060708090a0b0c0d0e0f";
    let fpdu = hex(&format!(
        "001e c1 42 55667788 0000000000002000 {payload} 7f9f44ec"
    )); // F-3
    assert_eq!(only(sender().read_response(&read(16)), &counting(16)), fpdu);
    let mut stream = Stream::new().region(Region::new(B, 0x2000, 16));
    stream.receiver.expect_read(read(16));
    let expected = Inbound::ReadResponse {
        placement: Placement {
            place: Some(()),
            stag: B,
            to: 0x2000,
            payload: &counting(16),
        },
        done: true,
    };
    assert_eq!(stream.fpdu(&fpdu), Ok(expected));
    assert_eq!(stream.receiver.outstanding_reads(), 0);
}

#[test]
fn four_kinds_of_send_are_built_and_delivered() {
    let mut sender = sender();
    let mut stream = Stream::new()
        .page()
        .receive(5)
        .receive(6)
        .receive(7)
        .receive(100);
    #[rustfmt::skip]
    let vectors = [
        // F-4, F-5, F-6, F-7.
        (false, None, "0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f 000000 20f5b101"),
        (false, Some(A), "0017 41 44 11223344 00000000 00000002 00000000 48656c6c6f 000000 22f72b2b"),
        (true, None, "0017 41 45 00000000 00000000 00000003 00000000 48656c6c6f 000000 a43caf84"),
        (true, Some(A), "0017 41 46 11223344 00000000 00000004 00000000 48656c6c6f 000000 46f1aed5"),
    ];
    for (solicited, invalidate, fpdu) in vectors {
        let (kind, fpdu) = (
            SendKind {
                solicited,
                invalidate,
                immediate: None,
            },
            hex(fpdu),
        );
        assert_eq!(only(sender.send(kind, 5), b"Hello"), fpdu);
        assert_says_hello(&mut stream, kind, &fpdu);
    }
}

/// The FPDU is a whole Send of this kind.
fn assert_says_hello(stream: &mut Stream, kind: SendKind, fpdu: &[u8]) {
    let expected = Inbound::Send {
        kind,
        offset: 0,
        payload: b"Hello",
        message_len: Some(5),
    };
    assert_eq!(stream.fpdu(fpdu), Ok(expected));
}

/// In no RFC: a Send whose header has four bytes for the completion in the place of the `STag`.
#[test]
fn send_with_immediate_data_is_accepted_by_a_stream_that_knows_it() {
    let config = StreamConfig {
        send_immediates: true,
        ..StreamConfig::new(0, 0)
    };
    let mut stream = Stream::with_config(config).receive(5).receive(5);
    let mut sender = Sender::new(config);
    for (solicited, opcode, msn) in [(false, 'c', 1), (true, 'd', 2)] {
        let kind = SendKind {
            solicited,
            immediate: Some([1, 2, 3, 4]),
            ..PLAIN
        };
        let header = format!("41 4{opcode} 01020304 00000000 0000000{msn} 00000000");
        let whole = sender.clone().whole_send(kind);
        assert_eq!(whole[..], hex(&header));
        let fpdu = only(sender.send(kind, 5), b"Hello");
        assert_eq!(fpdu[2..20], whole);
        assert_says_hello(&mut stream, kind, &fpdu);
    }
}

#[test]
fn zero_length_messages_are_built_and_accepted_without_any_region() {
    let send = hex("0012 41 43 00000000 00000000 00000001 00000000 587be8c4"); // F-20
    assert_eq!(only(sender().send(PLAIN, 0), &[]), send);
    let expected = Inbound::Send {
        kind: PLAIN,
        offset: 0,
        payload: &[],
        message_len: Some(0),
    };
    assert_eq!(Stream::new().receive(0).fpdu(&send), Ok(expected));

    for (stag, to, fpdu) in [
        (Stag(1), 0, "000e c1 40 00000001 0000000000000000 ebd34c5f"), // F-21
        (Stag(0), 0, "000e c1 40 00000000 0000000000000000 a30572ab"), // F-22
        (
            Stag(u32::MAX),
            u64::MAX,
            "000e c1 40 ffffffff ffffffffffffffff 4cb6a2bb",
        ), // F-25
    ] {
        let fpdu = hex(fpdu);
        assert_eq!(only(sender().write(stag, to, 0), &[]), fpdu);
        assert_eq!(
            Stream::new().fpdu(&fpdu),
            Ok(Inbound::Write {
                placement: Placement {
                    place: None,
                    stag,
                    to,
                    payload: &[],
                },
                last: true
            })
        );
    }
}

#[test]
fn zero_length_read_names_no_memory_and_is_answered() {
    let request = "00000001 0000000000000000 00000000 00000001 0000000000000000";
    let fpdu = hex(&format!(
        "002e 41 41 00000000 00000001 00000001 00000000 {request} 27dbd7e7"
    )); // F-23
    let read = ReadRequest {
        sink: Stag(1),
        sink_to: 0,
        len: 0,
        source: Stag(1),
        source_to: 0,
    };
    assert_eq!(only(sender().read_request(&read), &[]), fpdu);
    let mut responder = Stream::new();
    let Ok(Inbound::ReadRequest(inbound)) = responder.fpdu(&fpdu) else {
        panic!("a Read Request")
    };

    let response = hex("000e c1 42 00000001 0000000000000000 21a3e83e"); // F-24
    assert_eq!(
        only(sender().read_response(&inbound.request), &[]),
        response
    );
    let mut requester = Stream::new();
    requester.receiver.expect_read(read);
    let expected = Inbound::ReadResponse {
        placement: Placement {
            place: None,
            stag: Stag(1),
            to: 0,
            payload: &[],
        },
        done: true,
    };
    assert_eq!(requester.fpdu(&response), Ok(expected));
}

#[test]
fn pad_brings_every_fpdu_to_a_multiple_of_four() {
    let head = "41 43 00000000 00000000 00000001 00000000";
    for (len, fpdu) in [
        (0, format!("0012 {head} 587be8c4")),           // F-30
        (1, format!("0013 {head} 00 000000 ae6392ef")), // F-31
        (2, format!("0014 {head} 0001 0000 89570406")), // F-32
        (3, format!("0015 {head} 000102 00 5f979254")), // F-33
        (4, format!("0016 {head} 00010203 e374b6d9")),  // F-34
    ] {
        let fpdu = hex(&fpdu);
        assert_eq!(only(sender().send(PLAIN, len), &counting(len)), fpdu);
        assert_eq!(ulpdu_of(&fpdu)[18..], counting(len));
    }
}

#[test]
fn reserved_bits_and_the_unused_stag_field_are_not_read() {
    for fpdu in [
        // F-40: DDP Rsvd
        "0017 7d 43 00000000 00000000 00000001 00000000 48656c6c6f 000000 52322ea9",
        // F-41: RDMAP Rsv
        "0017 41 73 00000000 00000000 00000001 00000000 48656c6c6f 000000 877fe13d",
        // F-42: Invalidate STag
        "0017 41 43 deadbeef 00000000 00000001 00000000 48656c6c6f 000000 9130d3b8",
        "0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f ffffff 5aa92a9e", // F-43: pad
    ] {
        let expected = Inbound::Send {
            kind: PLAIN,
            offset: 0,
            payload: b"Hello",
            message_len: Some(5),
        };
        assert_eq!(Stream::new().receive(5).fpdu(&hex(fpdu)), Ok(expected));
    }
}

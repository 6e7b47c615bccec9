//! Rows 84 and 93 to 99: RFC 7306, and messages of one segment.

use super::{SEND, Untagged, accepts, answers, read_bytes, refuses};
use crate::support::{A, Region, Stream, hex};
use xwarp_iwarp::Inbound;

/// `FetchAdd` of 1 to [`A`] at 0x1008: 52 bytes.
const ADD: &str = "00000000 cafef00d 11223344 0000000000001008 \
     0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff";

fn immediate(payload: &[u8]) -> Vec<u8> {
    Untagged {
        control: [0x41, 0x48],
        payload,
        ..SEND
    }
    .bytes()
}

fn atomic(payload: &[u8]) -> Vec<u8> {
    Untagged {
        control: [0x41, 0x4a],
        qn: 1,
        payload,
        ..SEND
    }
    .bytes()
}

fn atomic_response(msn: u32, payload: &[u8]) -> Vec<u8> {
    Untagged {
        control: [0x41, 0x4b],
        qn: 3,
        msn,
        payload,
        ..SEND
    }
    .bytes()
}

/// A region at TO 0x1000 of [`A`], with changes; RFC 7306 is enabled.
fn extended(change: impl FnOnce(&mut Region)) -> Stream {
    let mut region = Region::new(A, 0x1000, 0x1000);
    change(&mut region);
    Stream::extended().region(region)
}

/// Row 84, T-26.
#[test]
fn single_segment_message_without_l_is_0_2_07() {
    answers(
        Stream::new().page(),
        "002e 01 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 c0f7d3c6",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0207c000 002e 01 41 00000000 00000001 00000001 00000000 cacd0961",
    );
    for (opcode, qn, payload) in [
        (1, 1, read_bytes()),
        (8, 0, vec![0; 8]),
        (9, 0, vec![0; 8]),
        (0xa, 1, hex(ADD)),
        (0xb, 3, vec![0; 12]),
    ] {
        let mut stream = extended(|_| {}).receive(8);
        stream.receiver.expect_atomic(0);
        let open = Untagged {
            control: [0x01, 0x40 | opcode],
            qn,
            payload: &payload,
            ..SEND
        };
        refuses(stream, &open.bytes(), "0/2/07 110");
    }
}

/// Row 93, T-23.
#[test]
fn immediate_data_has_8_bytes() {
    answers(
        Stream::extended().receive(64),
        "0019 41 48 00000000 00000000 00000001 00000000 00010203040506 00 b7b204ff",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         02ffc000 0019 41 48 00000000 00000000 00000001 00000000 a3a66f4d",
    );
    for len in 0..8 {
        refuses(
            Stream::extended().receive(64),
            &immediate(&vec![0; len]),
            "0/2/ff 110",
        );
    }
    for len in [9, 16, 64] {
        refuses(
            Stream::extended().receive(64),
            &immediate(&vec![0; len]),
            "1/2/05 110",
        );
    }
    accepts(&mut Stream::extended().receive(0), &immediate(&[0; 8]));
}

/// Row 94, T-21.
#[test]
fn misaligned_atomic_is_0_2_07() {
    answers(
        Stream::extended().page(),
        "0046 41 4a 00000000 00000001 00000001 00000000 00000000 00000001 11223344 0000000000001004 \
         0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff f4c9b852",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0207c000 0046 41 4a 00000000 00000001 00000001 00000000 86a855da",
    );
    for low in 1..8 {
        let mut bytes = hex(ADD);
        bytes[19] = 0x08 | low;
        refuses(extended(|_| {}), &atomic(&bytes), "0/2/07 110");
    }
}

/// Row 95, T-22.
#[test]
fn unknown_atomic_opcode_is_0_2_06() {
    answers(
        Stream::extended().page(),
        "0046 41 4a 00000000 00000001 00000001 00000000 00000001 00000001 11223344 0000000000001008 \
         0000000000000001 ffffffffffffffff 0000000000000000 ffffffffffffffff f1a3191a",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0206c000 0046 41 4a 00000000 00000001 00000001 00000000 be5886af",
    );
    for aopcode in (0..16).filter(|aopcode| *aopcode != 0 && *aopcode != 2) {
        let mut bytes = hex(ADD);
        bytes[3] = aopcode;
        refuses(extended(|_| {}), &atomic(&bytes), "0/2/06 110");
    }
}

/// Row 96.
#[test]
fn atomic_that_its_region_does_not_admit_has_the_codes_of_a_read() {
    let good = atomic(&hex(ADD));
    accepts(&mut extended(|_| {}), &good);
    refuses(Stream::extended(), &good, "0/1/00 110");
    refuses(extended(|region| region.ours = false), &good, "0/1/03 110");
    refuses(
        extended(|region| region.rights = false),
        &good,
        "0/1/02 110",
    );
    refuses(extended(|region| region.len = 15), &good, "0/1/01 110");
    let mut wrapping = hex(ADD);
    wrapping[12..20].copy_from_slice(&(u64::MAX - 6).to_be_bytes());
    refuses(extended(|_| {}), &atomic(&wrapping), "0/1/04 110");
}

/// Row 97.
#[test]
fn atomic_request_has_52_bytes() {
    for len in 0..52 {
        refuses(extended(|_| {}), &atomic(&hex(ADD)[..len]), "1/0/00 000");
    }
    let long = [hex(ADD), vec![0]].concat();
    refuses(extended(|_| {}), &atomic(&long), "1/2/05 110");
}

/// Row 98.
#[test]
fn atomic_response_out_of_turn_is_1_2_03() {
    refuses(
        Stream::extended(),
        &atomic_response(1, &[0; 12]),
        "1/2/03 110",
    );
    for msn in [0, 2, u32::MAX] {
        let mut stream = Stream::extended();
        stream.receiver.expect_atomic(0);
        refuses(stream, &atomic_response(msn, &[0; 12]), "1/2/03 110");
    }
    let mut stream = Stream::extended();
    stream.receiver.expect_atomic(0);
    let inbound = stream
        .ulpdu(&atomic_response(1, &[0; 12]))
        .map(|inbound| format!("{inbound:?}"));
    let expected: Inbound<'_> = Inbound::AtomicResponse { original: 0 };
    assert_eq!(inbound, Ok(format!("{expected:?}")));
    refuses(stream, &atomic_response(1, &[0; 12]), "1/2/03 110");
}

/// Row 99.
#[test]
fn atomic_response_of_another_request_or_size_is_0_2_ff() {
    let awaiting = || {
        let mut stream = Stream::extended();
        stream.receiver.expect_atomic(0);
        stream
    };
    let mut other = [0; 12];
    other[3] = 1;
    refuses(awaiting(), &atomic_response(1, &other), "0/2/ff 110");
    for len in 0..12 {
        refuses(awaiting(), &atomic_response(1, &vec![0; len]), "0/2/ff 110");
    }
    refuses(awaiting(), &atomic_response(1, &[0; 13]), "1/2/05 110");
}

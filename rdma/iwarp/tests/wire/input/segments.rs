//! Rows 49 to 72: versions, opcodes, queues, message numbers and offsets.

use super::{
    SEND, SEND_MORE, Untagged, accepts, answers, read_bytes, read_request, reading, refuses,
    tagged, write,
};
use crate::support::{A, B, Stream, hex};
use xwarp_iwarp::{Inbound, SendKind, Stag, StreamConfig};

/// A Send with these control bytes.
fn control(control: [u8; 2]) -> Vec<u8> {
    Untagged { control, ..SEND }.bytes()
}

fn on_queue(opcode: u8, qn: u32) -> Vec<u8> {
    Untagged {
        control: [0x41, 0x40 | opcode],
        qn,
        ..SEND
    }
    .bytes()
}

/// Row 49.
#[test]
fn reserved_bits_are_not_read() {
    accepts(&mut Stream::new().receive(8), &control([0x7d, 0x73]));
    accepts(
        &mut Stream::new().page(),
        &tagged([0xfd, 0x70], A, 0x1000, b"x"),
    );
}

/// Row 50, T-5.
#[test]
fn tagged_segment_of_another_version_is_1_1_04() {
    answers(
        Stream::new().page(),
        "0012 c0 40 11223344 0000000000001000 00010203 b135bfc8",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1104c000 0012 c0 40 11223344 0000000000001000 8d7c74ba",
    );
    for dv in [0, 2, 3] {
        refuses(
            Stream::new().page(),
            &tagged([0xc0 | dv, 0x40], A, 0x1000, b"x"),
            "1/1/04 110",
        );
    }
}

/// Row 51, T-11.
#[test]
fn untagged_segment_of_another_version_is_1_2_06() {
    answers(
        Stream::new().receive(4096),
        "0016 42 43 00000000 00000000 00000001 00000000 00010203 3f47883d",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1206c000 0016 42 43 00000000 00000000 00000001 00000000 10db0616",
    );
    for dv in [0, 2, 3] {
        refuses(
            Stream::new().receive(8),
            &control([0x40 | dv, 0x43]),
            "1/2/06 110",
        );
    }
}

/// Row 52, T-12.
#[test]
fn rdmap_of_another_version_is_0_2_05() {
    answers(
        Stream::new().receive(4096),
        "0016 41 03 00000000 00000000 00000001 00000000 00010203 b0941d95",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0205c000 0016 41 03 00000000 00000000 00000001 00000000 59f117a2",
    );
    for rv in [0x00, 0x80, 0xc0] {
        refuses(
            Stream::new().receive(8),
            &control([0x41, rv | 3]),
            "0/2/05 110",
        );
        refuses(
            Stream::new().page(),
            &tagged([0xc1, rv], A, 0x1000, b"x"),
            "0/2/05 110",
        );
    }
}

/// Row 53.
#[test]
fn both_versions_0_are_refused_by_ddp() {
    refuses(
        Stream::new().page(),
        &tagged([0xc0, 0x00], A, 0x1000, b"x"),
        "1/1/04 110",
    );
    refuses(
        Stream::new().receive(8),
        &control([0x40, 0x03]),
        "1/2/06 110",
    );
    // valid after a start-up that agreed on the RDMA Consortium's; RFC 7306 is unknown there
    let config = StreamConfig {
        version: 0,
        extensions: true,
        ..StreamConfig::new(4, 4)
    };
    accepts(
        &mut Stream::with_config(config).receive(8),
        &control([0x40, 0x03]),
    );
    refuses(
        Stream::with_config(config).receive(8),
        &control([0x40, 0x08]),
        "0/2/06 110",
    );
    refuses(
        Stream::with_config(config).receive(8),
        &control([0x41, 0x43]),
        "1/2/06 110",
    );
}

/// Rows 51 to 53, also with an unknown opcode.
#[test]
fn versions_are_judged_before_all_else() {
    for (control, expected) in [
        ([0xc0, 0x00], "1/1/04 110"), // DDP first
        ([0xc2, 0x4f], "1/1/04 110"),
        ([0xc1, 0x0f], "0/2/05 110"),
        ([0xc1, 0x80], "0/2/05 110"),
        ([0xc1, 0xc0], "0/2/05 110"),
        ([0x40, 0x03], "1/2/06 110"),
        ([0x43, 0x43], "1/2/06 110"),
    ] {
        let segment = tagged(control, A, 0x1000, b"payload\0\0\0\0");
        refuses(Stream::new().page(), &segment, expected);
    }
}

/// Row 54, T-13. The opcode is checked before the queue.
#[test]
fn unassigned_opcode_is_0_2_06() {
    answers(
        Stream::new().receive(4096),
        "0016 41 4c 00000000 00000000 00000001 00000000 00010203 08ead292",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0206c000 0016 41 4c 00000000 00000000 00000001 00000000 60b5baec",
    );
    for opcode in 0xc..=0xf {
        for qn in [0, 0xff] {
            for stream in [Stream::new(), Stream::extended()] {
                refuses(stream.receive(8), &on_queue(opcode, qn), "0/2/06 110");
            }
        }
    }
}

/// Row 55.
#[test]
fn opcode_of_a_disabled_extension_is_0_2_06() {
    for (opcode, qn) in [(8, 0), (9, 0), (0xa, 1)] {
        refuses(
            Stream::new().receive(8),
            &on_queue(opcode, qn),
            "0/2/06 110",
        );
    }
}

/// Row 55, and an Atomic Response on the queues that exist.
#[test]
fn opcodes_of_rfc_7306_are_0_2_06() {
    for (opcode, qn) in [
        (0x48, 0),
        (0x49, 0),
        (0x4a, 1),
        (0x4b, 0),
        (0x4b, 1),
        (0x4b, 2),
    ] {
        let mut ulpdu = hex("41 00 00000000 00000000 00000001 00000000 0001020304050607");
        (ulpdu[1], ulpdu[9]) = (opcode, qn);
        assert_eq!(
            Stream::new().receive(4096).refusal(&ulpdu),
            "0/2/06",
            "control {opcode:#x} on QN {qn}"
        );
    }
}

/// Row 56, T-29.
#[test]
fn untagged_opcode_in_a_tagged_segment_is_0_2_06() {
    answers(
        Stream::new().page(),
        "0012 c1 43 11223344 0000000000001000 00010203 7b53fb27",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         0206c000 0012 c1 43 11223344 0000000000001000 5f7650eb",
    );
    for opcode in (0..16).filter(|opcode| ![0, 2].contains(opcode)) {
        for stream in [Stream::new(), Stream::extended()] {
            refuses(
                stream.page(),
                &tagged([0xc1, 0x40 | opcode], A, 0x1000, b"x"),
                "0/2/06 110",
            );
        }
    }
}

/// Row 57.
#[test]
fn tagged_opcode_in_an_untagged_segment_is_0_2_06() {
    for opcode in [0, 2] {
        refuses(Stream::new().receive(8), &on_queue(opcode, 0), "0/2/06 110");
    }
}

/// Row 58, T-6.
#[test]
fn queue_that_does_not_exist_is_1_2_01() {
    answers(
        Stream::new().receive(4096),
        "0016 41 43 00000000 00000004 00000001 00000000 00010203 7795fe1a",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1201c000 0016 41 43 00000000 00000004 00000001 00000000 07b9a595",
    );
    for opcode in [3, 0xb] {
        refuses(Stream::new().receive(8), &on_queue(opcode, 3), "1/2/01 110");
    }
    refuses(Stream::new().receive(8), &on_queue(3, 0xff), "1/2/01 110");
    for qn in [4, 5, u32::MAX] {
        refuses(
            Stream::extended().receive(8),
            &on_queue(3, qn),
            "1/2/01 110",
        );
    }
}

/// Row 59.
#[test]
fn opcode_on_another_queue_is_0_2_06() {
    for (opcode, queues) in [
        (3, &[1, 2, 3][..]),
        (1, &[0, 2, 3]),
        (7, &[0, 1, 3]),
        (8, &[1, 2, 3]),
        (0xa, &[0, 2, 3]),
        (0xb, &[0, 1, 2]),
    ] {
        for qn in queues {
            refuses(
                Stream::extended().receive(8),
                &on_queue(opcode, *qn),
                "0/2/06 110",
            );
        }
    }
    for (opcode, qn) in [(3, 1), (3, 2), (1, 0), (7, 0)] {
        refuses(
            Stream::new().receive(8),
            &on_queue(opcode, qn),
            "0/2/06 110",
        );
    }
}

/// Row 60, T-7.
#[test]
fn send_without_a_buffer_is_1_2_02() {
    answers(
        Stream::new(),
        "0016 41 43 00000000 00000000 00000001 00000000 00010203 e374b6d9",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1202c000 0016 41 43 00000000 00000000 00000001 00000000 7c6b1ed5",
    );
    refuses(Stream::new(), &SEND.bytes(), "1/2/02 110");
}

/// Row 61, T-8.
#[test]
fn message_number_out_of_turn_is_1_2_03() {
    answers(
        Stream::new().receive(4096),
        "0016 41 43 00000000 00000000 00000005 00000000 00010203 d0b67907",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1203c000 0016 41 43 00000000 00000000 00000005 00000000 f4258840",
    );
    for msn in [0, 2, 5, u32::MAX] {
        refuses(
            Stream::new().receive(8),
            &Untagged { msn, ..SEND }.bytes(),
            "1/2/03 110",
        );
    }
    let mut stream = Stream::new().receive(8).receive(8);
    accepts(&mut stream, &SEND.bytes());
    refuses(stream, &SEND.bytes(), "1/2/03 110");
}

// Row 62, the wrap of message numbers, is tested in `rdmap::receiver::sends`, where they can be
// set.

/// Row 63.
#[test]
fn gap_or_overlap_of_offsets_is_1_2_04() {
    for mo in [1, 4, 7] {
        refuses(
            Stream::new().receive(8),
            &Untagged { mo, ..SEND }.bytes(),
            "1/2/04 110",
        );
    }
    for mo in [0, 3, 5, 17] {
        let mut stream = Stream::new().receive(16);
        accepts(&mut stream, &SEND_MORE.bytes());
        refuses(stream, &Untagged { mo, ..SEND }.bytes(), "1/2/04 110");
    }
}

/// Row 63, on queue 1.
#[test]
fn read_request_with_an_offset_is_1_2_04() {
    let mut shifted = read_request(&read_bytes());
    shifted[17] = 1;
    refuses(Stream::new().page(), &shifted, "1/2/04 110");
}

/// Row 64, T-9.
#[test]
fn offset_beyond_the_buffer_is_1_2_04() {
    answers(
        Stream::new().receive(4096),
        "0016 41 43 00000000 00000000 00000001 00001388 00010203 ca51c386",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1204c000 0016 41 43 00000000 00000000 00000001 00001388 b20717ef",
    );
    for mo in [9, 5000, u32::MAX] {
        refuses(
            Stream::new().receive(8),
            &Untagged { mo, ..SEND }.bytes(),
            "1/2/04 110",
        );
    }
}

/// Row 65, T-10.
#[test]
fn message_longer_than_its_buffer_is_1_2_05() {
    answers(
        Stream::new().receive(100),
        "0077 41 43 00000000 00000000 00000001 00000000 \
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f \
         303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f \
         6061626364 000000 892c0ca4",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1205c000 0077 41 43 00000000 00000000 00000001 00000000 ab548e80",
    );
    refuses(Stream::new().receive(3), &SEND.bytes(), "1/2/05 110");
    refuses(Stream::new().receive(0), &SEND.bytes(), "1/2/05 110");
}

#[test]
fn send_that_fills_its_buffer_is_accepted() {
    accepts(&mut Stream::new().receive(4), &SEND.bytes());
}

/// D17.
#[test]
fn empty_last_segment_ends_a_longer_send() {
    let mut stream = Stream::new().receive(4);
    accepts(&mut stream, &SEND_MORE.bytes());
    let end = Untagged {
        mo: 4,
        payload: b"",
        ..SEND
    };
    let expected = Inbound::Send {
        kind: SendKind::default(),
        offset: 4,
        payload: b"",
        message_len: Some(4),
    };
    assert_eq!(stream.ulpdu(&end.bytes()), Ok(expected));
}

/// Row 66.
#[test]
fn second_segment_beyond_the_buffer_is_1_2_05() {
    let mut stream = Stream::new().receive(7);
    accepts(&mut stream, &SEND_MORE.bytes());
    refuses(stream, &Untagged { mo: 4, ..SEND }.bytes(), "1/2/05 110");
}

/// Row 67.
#[test]
fn message_that_changes_is_0_2_06() {
    for (opcode, stag) in [(0x44, 0), (0x45, 0), (0x46, 0), (0x43, 1), (0x48, 0)] {
        let mut stream = Stream::extended().receive(16);
        accepts(&mut stream, &SEND_MORE.bytes());
        let second = Untagged {
            control: [0x41, opcode],
            stag,
            mo: 4,
            ..SEND
        };
        refuses(stream, &second.bytes(), "0/2/06 110");
    }
}

/// Row 68.
#[test]
fn next_message_before_the_end_of_this_is_1_2_03() {
    let mut stream = Stream::new().receive(8).receive(8);
    accepts(&mut stream, &SEND_MORE.bytes());
    refuses(stream, &Untagged { msn: 2, ..SEND }.bytes(), "1/2/03 110");
}

/// Row 69.
#[test]
fn tagged_segment_within_a_send_is_accepted() {
    let mut stream = Stream::new().page().receive(8);
    accepts(&mut stream, &SEND_MORE.bytes());
    let write = write(A, 0x1000, b"w");
    assert!(matches!(stream.ulpdu(&write), Ok(Inbound::Write { .. })));
    accepts(&mut stream, &Untagged { mo: 4, ..SEND }.bytes());
}

#[test]
fn send_takes_one_buffer_for_all_its_segments() {
    let mut stream = Stream::new().page().receive(8).receive(8);
    let first = SEND_MORE.bytes();
    let placed = |offset, payload, message_len| Inbound::Send {
        kind: SendKind::default(),
        offset,
        payload,
        message_len,
    };
    assert_eq!(stream.ulpdu(&first), Ok(placed(0, b"abcd", None)));
    assert!(stream.receiver.mid_message());
    accepts(&mut stream, &write(A, 0x1000, b"w"));
    let rest = Untagged {
        mo: 4,
        payload: b"efgh",
        ..SEND
    };
    let rest = rest.bytes();
    assert_eq!(stream.ulpdu(&rest), Ok(placed(4, b"efgh", Some(8))));
    assert!(!stream.receiver.mid_message());
    assert_eq!(stream.table.receives.len(), 1);
}

/// Row 70.
#[test]
fn write_within_a_read_response_is_accepted() {
    let mut stream = reading(8).page();
    accepts(&mut stream, &tagged([0x81, 0x42], B, 0x2000, b"abcd"));
    accepts(&mut stream, &write(A, 0x1000, b"w"));
    accepts(&mut stream, &tagged([0xc1, 0x42], B, 0x2004, b"efgh"));
    assert_eq!(stream.receiver.outstanding_reads(), 0);
}

/// Row 71.
#[test]
fn zero_length_write_names_no_memory() {
    for (stag, to) in [(0, 0), (1, 0), (u32::MAX, u64::MAX), (0xbad_bad00, 7)] {
        accepts(&mut Stream::new(), &write(Stag(stag), to, b""));
    }
}

/// Row 72.
#[test]
fn zero_length_send_takes_a_buffer() {
    let empty = Untagged {
        payload: b"",
        ..SEND
    }
    .bytes();
    let mut stream = Stream::new().receive(0);
    assert!(matches!(
        stream.ulpdu(&empty),
        Ok(Inbound::Send {
            message_len: Some(0),
            ..
        })
    ));
    assert!(stream.table.receives.is_empty());
    refuses(Stream::new(), &empty, "1/2/02 110");
}

//! Rows 73 to 92, 106 and 110: regions, Reads, invalidation.

use super::{
    SEND, Untagged, accepts, answers, page, read_bytes, read_request, reading, refuses, response,
    tagged, write,
};
use crate::support::{A, B, Region, Stream};
use xwarp_iwarp::{
    Inbound, InvalidateError, Placement, ReadRequest, SendKind, Sender, Stag, StreamConfig,
};

const UNKNOWN: Stag = Stag(0xbadb_ad00);
/// Control bytes of a Read Response's segment before the last.
const RESPONSE_MORE: [u8; 2] = [0x81, 0x42];

/// Row 73, T-1.
#[test]
fn write_to_an_invalid_stag_is_1_1_00() {
    answers(
        Stream::new(),
        "0012 c1 40 badbad00 0000000000000000 00010203 0c38b614",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1100c000 0012 c1 40 badbad00 0000000000000000 5654335f",
    );
    for stag in [UNKNOWN, Stag(0), Stag(A.0 ^ 1)] {
        refuses(
            Stream::new().page(),
            &write(stag, 0x1000, b"x"),
            "1/1/00 110",
        );
    }
}

/// Row 74, T-3.
#[test]
fn write_to_a_region_of_another_stream_is_1_1_02() {
    answers(
        page(|region| region.ours = false),
        "0012 c1 40 11223344 0000000000001000 00010203 9a37d6c7",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1102c000 0012 c1 40 11223344 0000000000001000 8a18dc76",
    );
    refuses(
        page(|region| region.ours = false),
        &write(A, 0x1000, b"x"),
        "1/1/02 110",
    );
}

/// Row 75, T-24.
#[test]
fn write_without_the_right_is_1_1_02() {
    answers(
        page(|region| region.rights = false),
        "0012 c1 40 11223344 0000000000001000 00010203 9a37d6c7",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1102c000 0012 c1 40 11223344 0000000000001000 8a18dc76",
    );
    refuses(
        page(|region| region.rights = false),
        &write(A, 0x1000, b"x"),
        "1/1/02 110",
    );
}

/// Row 76, T-2.
#[test]
fn write_outside_its_region_is_1_1_01() {
    answers(
        Stream::new().page(),
        "0012 c1 40 11223344 0000000000001ffe 00010203 27d2e0b9",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1101c000 0012 c1 40 11223344 0000000000001ffe fd611200",
    );
    for (to, len) in [
        (0x0fff, 1),
        (0x2000, 1),
        (0x1fff, 2),
        (0, 1),
        (0x0fff, 0x1001),
    ] {
        refuses(
            Stream::new().page(),
            &write(A, to, &vec![0; len]),
            "1/1/01 110",
        );
    }
}

/// Row 77, T-4.
#[test]
fn write_that_wraps_is_1_1_03() {
    answers(
        Stream::new().page(),
        "002e c1 40 11223344 fffffffffffffff0 \
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 47da7726",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1103c000 002e c1 40 11223344 fffffffffffffff0 31bb616e",
    );
    for (to, len) in [(u64::MAX, 1), (u64::MAX - 2, 4)] {
        refuses(
            Stream::new().page(),
            &write(A, to, &vec![0; len]),
            "1/1/03 110",
        );
    }
}

/// Row 78.
#[test]
fn write_that_fits_exactly_is_accepted() {
    accepts(&mut Stream::new().page(), &write(A, 0x1000, &[0; 0x1000]));
    accepts(&mut Stream::new().page(), &write(A, 0x1000, b"x"));
    accepts(&mut Stream::new().page(), &write(A, 0x1fff, b"x"));
}

/// Row 79.
#[test]
fn third_segment_out_of_bounds_is_1_1_01() {
    let mut stream = Stream::new().page();
    accepts(&mut stream, &tagged([0x81, 0x40], A, 0x1ff0, b"12345678"));
    accepts(&mut stream, &tagged([0x81, 0x40], A, 0x1ff8, b"12345678"));
    refuses(stream, &write(A, 0x2000, b"1"), "1/1/01 110");
}

/// Row 80.
#[test]
fn stag_revoked_between_segments_is_1_1_00() {
    let mut stream = Stream::new().page();
    accepts(&mut stream, &tagged([0x81, 0x40], A, 0x1000, b"x"));
    stream.table.regions.clear();
    refuses(stream, &write(A, 0x1001, b"x"), "1/1/00 110");
}

/// Row 81, T-14.
#[test]
fn read_of_an_unknown_stag_is_0_1_00() {
    answers(
        Stream::new(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00001000 badbad00 0000000000000000 a5a44693",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0100e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00001000 \
         badbad00 0000000000000000 5cb5cb8a",
    );
    refuses(Stream::new(), &read_request(&read_bytes()), "0/1/00 111");
}

/// Row 81, T-15.
#[test]
fn read_past_the_end_is_0_1_01() {
    answers(
        Stream::new().page(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00001001 11223344 0000000000001000 233fe1fd",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0101e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00001001 \
         11223344 0000000000001000 5c1444dd",
    );
    refuses(
        page(|region| region.len = 15),
        &read_request(&read_bytes()),
        "0/1/01 111",
    );
}

/// Row 81, T-16.
#[test]
fn read_of_a_region_without_the_right_is_0_1_02() {
    answers(
        page(|region| region.rights = false),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 50e30c9c",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0102e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00000010 \
         11223344 0000000000001000 a587d1f7",
    );
    refuses(
        page(|region| region.rights = false),
        &read_request(&read_bytes()),
        "0/1/02 111",
    );
}

/// Row 81, T-17.
#[test]
fn read_of_a_region_of_another_stream_is_0_1_03() {
    answers(
        page(|region| region.ours = false),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 50e30c9c",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0103e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00000010 \
         11223344 0000000000001000 23bdf9ce",
    );
    refuses(
        page(|region| region.ours = false),
        &read_request(&read_bytes()),
        "0/1/03 111",
    );
}

/// Row 81, T-18.
#[test]
fn read_that_wraps_is_0_1_04() {
    answers(
        Stream::new().page(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000020 11223344 fffffffffffffff0 7df0ac3c",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0104e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00000020 \
         11223344 fffffffffffffff0 9c0b81c1",
    );
    let mut wrapping = read_bytes();
    wrapping[20..].fill(0xff);
    refuses(Stream::new().page(), &read_request(&wrapping), "0/1/04 111");
}

/// Row 82.
#[test]
fn zero_length_read_names_no_memory() {
    let mut garbage = vec![0xee; 28];
    garbage[12..16].fill(0);
    accepts(&mut Stream::new(), &read_request(&garbage));
}

/// Row 83.
#[test]
fn read_request_has_28_bytes() {
    for len in 0..28 {
        refuses(
            Stream::new().page(),
            &read_request(&read_bytes()[..len]),
            "1/0/00 000",
        );
    }
    for more in [1, 4, 24, 1000] {
        let long = [read_bytes(), vec![0; more]].concat();
        refuses(Stream::new().page(), &read_request(&long), "1/2/05 110");
    }
}

/// Row 85, T-25.
#[test]
fn read_beyond_the_ird_is_1_2_03() {
    let mut stream = Stream::new().page();
    let mut peer = Sender::new(StreamConfig::new(4, 4));
    let read = ReadRequest {
        sink: B,
        sink_to: 0x2000,
        len: 16,
        source: A,
        source_to: 0x1000,
    };
    for _ in 0..4 {
        let request = peer
            .read_request(&read)
            .next_segment(1454)
            .expect("one segment");
        assert!(matches!(
            stream.ulpdu(&request.header),
            Ok(Inbound::ReadRequest(_))
        ));
    }
    answers(
        stream,
        "002e 41 41 00000000 00000001 00000005 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 1d3904f1",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1203c000 002e 41 41 00000000 00000001 00000005 00000000 c3d03002",
    );
    for ird in [1, 4] {
        let mut stream = Stream::with_ird(ird).page();
        for msn in 1..=u32::from(ird) {
            accepts(&mut stream, &nth_read(msn));
        }
        refuses(stream, &nth_read(u32::from(ird) + 1), "1/2/03 110");
    }
}

/// Row 85, T-28.
#[test]
fn read_without_ird_is_1_2_01() {
    answers(
        Stream::with_ird(0).page(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 50e30c9c",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1201c000 002e 41 41 00000000 00000001 00000001 00000000 038ed209",
    );
    refuses(Stream::with_ird(0).page(), &nth_read(1), "1/2/01 110");
}

/// Row 85, and row 61 on queue 1.
#[test]
fn read_credit_returns_with_the_response() {
    let mut stream = Stream::with_ird(1).page();
    accepts(&mut stream, &nth_read(1));
    stream.receiver.response_sent();
    accepts(&mut stream, &nth_read(2));
    refuses(stream, &nth_read(3), "1/2/03 110");
    refuses(Stream::new().page(), &nth_read(2), "1/2/03 110");
}

fn nth_read(msn: u32) -> Vec<u8> {
    let mut request = read_request(&read_bytes());
    request[10..14].copy_from_slice(&msn.to_be_bytes());
    request
}

/// Row 86.
#[test]
fn read_response_that_nobody_asked_for_is_1_1_00() {
    refuses(
        Stream::new().page(),
        &response(A, 0x1000, b"x"),
        "1/1/00 110",
    );
    refuses(
        Stream::new().page(),
        &response(A, 0x1000, b""),
        "1/1/00 110",
    );
    refuses(Stream::new(), &response(Stag(1), 0, b""), "1/1/00 110");
}

/// Row 87.
#[test]
fn read_response_that_does_not_match_is_1_1_00_or_1_1_01() {
    for stream in [|| reading(4).page(), || reading_twice(4).page()] {
        refuses(stream(), &response(A, 0x2000, b"abcd"), "1/1/00 110");
        refuses(stream(), &response(B, 0x2001, b"abcd"), "1/1/01 110"); // gap
        refuses(stream(), &response(B, 0x1fff, b"abcd"), "1/1/01 110"); // overlap
        refuses(stream(), &response(B, 0x2000, b"abcde"), "1/1/01 110"); // too long
        let more = tagged(RESPONSE_MORE, B, 0x2000, b"abcde");
        refuses(stream(), &more, "1/1/01 110");
        refuses(stream(), &response(B, 0x2000, b"abc"), "1/1/01 110"); // L before all bytes
        refuses(stream(), &response(B, 0x2000, b""), "1/1/01 110");
    }
}

/// A stream with the outstanding Read of [`reading`], and a second one of 0 bytes.
fn reading_twice(len: u32) -> Stream {
    let mut stream = reading(len);
    stream.receiver.expect_read(ReadRequest {
        sink: B,
        sink_to: 0,
        len: 0,
        source: A,
        source_to: 0,
    });
    stream
}

/// Rows 70 and 88, D17.
#[test]
fn read_response_in_segments_completes_with_its_last() {
    let mut stream = reading_twice(8).page();
    assert!(!stream.receiver.mid_message());
    let first = tagged(RESPONSE_MORE, B, 0x2000, b"abc");
    let expected = Inbound::ReadResponse {
        placement: Placement {
            place: Some(()),
            stag: B,
            to: 0x2000,
            payload: b"abc",
        },
        done: false,
    };
    assert_eq!(stream.ulpdu(&first), Ok(expected));
    assert!(stream.receiver.mid_message());
    accepts(&mut stream, &write(A, 0x1000, b"w"));
    accepts(&mut stream, &tagged(RESPONSE_MORE, B, 0x2003, b"defgh"));
    for (left, last) in [
        (2, response(B, 0x2008, b"")),
        (1, response(Stag(9), 77, b"")), // without payload no STag is compared
    ] {
        assert_eq!(stream.receiver.outstanding_reads(), left);
        let inbound = stream.ulpdu(&last);
        assert!(
            matches!(inbound, Ok(Inbound::ReadResponse { done: true, .. })),
            "{inbound:?}"
        );
        assert!(!stream.receiver.mid_message());
    }
    assert_eq!(stream.receiver.outstanding_reads(), 0);
}

/// Row 88.
#[test]
fn stag_of_a_zero_length_response_is_not_read() {
    accepts(&mut reading(0), &response(Stag(7), 99, b""));
}

/// Row 89.
#[test]
fn sink_that_was_invalidated_is_1_1_00() {
    let mut stream = reading(4);
    stream.table.regions.clear();
    refuses(stream, &response(B, 0x2000, b"abcd"), "1/1/00 110");
}

/// D20, D5.
#[test]
fn sink_without_the_right_is_1_1_02() {
    let mut stream = reading(4);
    stream.table.regions[0].rights = false;
    refuses(stream, &response(B, 0x2000, b"abcd"), "1/1/02 110");
}

/// A Send with Invalidate of [`A`].
fn invalidating() -> Vec<u8> {
    Untagged {
        control: [0x41, 0x44],
        stag: A.0,
        ..SEND
    }
    .bytes()
}

/// Row 90, T-19.
#[test]
fn invalidate_of_a_region_of_another_stream_is_0_1_09() {
    let foreign = Region {
        invalidate: Err(InvalidateError::NotAssociated),
        ..Region::new(B, 0x1000, 0x1000)
    };
    answers(
        Stream::new().receive(4096).region(foreign),
        "0016 41 44 55667788 00000000 00000001 00000000 00010203 f9da19d4",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0109c000 0016 41 44 55667788 00000000 00000001 00000000 cf5d89c6",
    );
    let foreign = page(|region| region.invalidate = Err(InvalidateError::NotAssociated));
    refuses(foreign.receive(8), &invalidating(), "0/1/09 110");
}

/// Row 90, T-30.
#[test]
fn invalidate_of_an_unknown_stag_is_0_1_00() {
    answers(
        Stream::new().receive(4096),
        "0016 41 44 badbad00 00000000 00000001 00000000 00010203 49b71f95",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0100c000 0016 41 44 badbad00 00000000 00000001 00000000 52914ede",
    );
    refuses(Stream::new().receive(8), &invalidating(), "0/1/00 110");
}

/// Row 91.
#[test]
fn invalidate_that_is_not_allowed_is_0_1_09_and_without_the_right_0_1_02() {
    let kept = page(|region| region.invalidate = Err(InvalidateError::Forbidden));
    refuses(kept.receive(8), &invalidating(), "0/1/09 110");
    // Figure 23 of the verbs draft has this code, and RFC 5040 does not contradict it (verbs.md
    // §12.4).
    let local_only = page(|region| region.invalidate = Err(InvalidateError::Rights));
    refuses(local_only.receive(8), &invalidating(), "0/1/02 110");
    accepts(&mut Stream::new().page().receive(8), &invalidating());
}

/// Row 91, when the message is complete.
#[test]
fn invalidate_is_judged_with_the_last_segment() {
    let kept = page(|region| region.invalidate = Err(InvalidateError::Forbidden));
    let mut stream = kept.receive(8);
    let first = Untagged {
        control: [0x01, 0x44],
        stag: A.0,
        ..SEND
    };
    let expected = Inbound::Send {
        kind: SendKind {
            solicited: false,
            invalidate: Some(A),
            immediate: None,
        },
        offset: 0,
        payload: b"abcd",
        message_len: None,
    };
    assert_eq!(stream.ulpdu(&first.bytes()), Ok(expected));
    let last = Untagged {
        control: [0x41, 0x44],
        mo: 4,
        ..first
    };
    refuses(stream, &last.bytes(), "0/1/09 110");
}

/// Row 92.
#[test]
fn invalidate_stag_of_a_plain_send_is_not_read() {
    let mut stream = Stream::new().receive(8);
    let send = Untagged {
        stag: 0xdead_beef,
        ..SEND
    }
    .bytes();
    let Ok(Inbound::Send { kind, .. }) = stream.ulpdu(&send) else {
        panic!("a Send")
    };
    assert_eq!(kind.invalidate, None);
}

/// Row 106.
#[test]
fn sink_of_a_read_is_the_requesters_business() {
    let mut bytes = read_bytes();
    bytes[..12].fill(0xff); // sink STag and TO
    accepts(&mut Stream::new().page(), &read_request(&bytes));
    let mut requester = reading(4);
    requester.table.regions = vec![Region::new(B, 0x2000, 3)];
    refuses(requester, &response(B, 0x2000, b"abcd"), "1/1/01 110");
}

/// Row 110.
#[test]
fn largest_read_is_refused_by_its_bounds() {
    let mut bytes = read_bytes();
    bytes[12..16].fill(0xff);
    refuses(Stream::new().page(), &read_request(&bytes), "0/1/01 111");
}

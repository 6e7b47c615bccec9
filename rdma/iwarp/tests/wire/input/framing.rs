//! Rows 31 to 47: FPDUs, CRC, markers.

use super::{SEND, SEND_MORE, accepts, answers, refuses, write};
use crate::support::{A, Stream, hex, sealed};
use xwarp_iwarp::mpa::{MAX_ULPDU, MpaError, Step};
use xwarp_iwarp::{Deframer, Framer, Inbound};

fn framed(framer: &mut Framer, ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0; framer.fpdu_len(ulpdu.len())];
    fpdu[Framer::ulpdu_at(ulpdu.len())].copy_from_slice(ulpdu);
    framer.seal(&mut fpdu, ulpdu.len());
    fpdu
}

/// The error of this stream, from its first byte on.
fn error_of(mut deframer: Deframer, mut stream: &[u8]) -> MpaError {
    loop {
        match deframer.next(stream) {
            Ok(Step::Fpdu { consumed, .. }) => stream = &stream[consumed..],
            Ok(Step::NeedBytes(total)) => panic!("{total} bytes wanted"),
            Err(error) => return error,
        }
    }
}

fn terminate_payload(error: MpaError) -> Vec<u8> {
    error.terminate().ulpdu()[18..].to_vec()
}

fn plain() -> Deframer {
    Deframer::new(true, false)
}

/// Row 31.
#[test]
fn crc_mismatch_is_2_0_02() {
    for markers in [false, true] {
        let good = framed(&mut Framer::new(true, markers), &SEND.bytes());
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let mut deframer = Deframer::new(true, markers);
            match deframer.next(&bad) {
                Err(error @ MpaError::Crc) => assert_eq!(terminate_payload(error), hex("20020000")),
                Err(MpaError::Length(_)) | Ok(Step::NeedBytes(_)) => {
                    let length = if markers { 4 } else { 0 };
                    assert!(bit / 8 == length || bit / 8 == length + 1, "bit {bit}");
                }
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }
}

/// Row 32.
#[test]
fn big_endian_crc_is_2_0_02() {
    let mut fpdu = sealed(&SEND.bytes());
    let at = fpdu.len() - 4;
    fpdu[at..].reverse();
    assert_eq!(error_of(plain(), &fpdu), MpaError::Crc);
}

/// Row 33.
#[test]
fn crc_field_is_not_read_without_crc() {
    let mut fpdu = sealed(&SEND.bytes());
    let at = fpdu.len() - 4;
    fpdu[at..].copy_from_slice(&hex("deadbeef"));
    assert!(matches!(
        Deframer::new(false, false).next(&fpdu),
        Ok(Step::Fpdu { .. })
    ));
}

/// Row 34.
#[test]
fn zero_crc_field_with_crc_negotiated_is_2_0_02() {
    let fpdu = framed(&mut Framer::new(false, false), &SEND.bytes());
    assert_eq!(error_of(plain(), &fpdu), MpaError::Crc);
}

/// Row 35.
#[test]
fn pad_is_not_read() {
    // F-43
    let fpdu = hex("0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f ffffff 5aa92a9e");
    assert!(matches!(plain().next(&fpdu), Ok(Step::Fpdu { .. })));
}

/// Row 36.
#[test]
fn empty_ulpdu_is_1_0_00_without_headers() {
    refuses(Stream::new(), b"", "1/0/00 000");
}

/// Row 37, T-27.
#[test]
fn ulpdu_shorter_than_its_header_is_1_0_00_without_headers() {
    answers(
        Stream::new().page(),
        "000a c1 40 11223344 00000000 b5429277",
        "0016 41 47 00000000 00000002 00000001 00000000 10000000 c4130bf4",
    );
    for (control, header) in [(0xc1, 14), (0x41, 18)] {
        for len in 1..header {
            for filler in [0x40, 0x43] {
                let mut ulpdu = vec![filler; len];
                ulpdu[0] = control;
                refuses(Stream::new(), &ulpdu, "1/0/00 000");
            }
        }
    }
}

/// Row 38.
#[test]
fn impossible_length_is_1_0_00_on_the_length_field() {
    for length in [64_769_u16, 65_000, 65_535] {
        let field = length.to_be_bytes();
        assert_eq!(error_of(plain(), &field), MpaError::Length(length));
        let marked = [&[0; 4][..], &field].concat();
        let error = error_of(Deframer::new(true, true), &marked);
        assert_eq!(terminate_payload(error), hex("10000000"));
    }
    let segment = write(A, 0x1000, &vec![0; MAX_ULPDU - 13]);
    refuses(Stream::new().page(), &segment, "1/0/00 000");
}

/// Row 39.
#[test]
fn largest_ulpdu_is_accepted_whatever_our_own_limit() {
    let payload = vec![5; MAX_ULPDU - 14];
    let fpdu = sealed(&write(A, 0, &payload));
    let mut deframer = plain();
    let Ok(Step::Fpdu { ulpdu, consumed }) = deframer.next(&fpdu) else {
        panic!("one FPDU")
    };
    assert_eq!((ulpdu.len(), consumed), (MAX_ULPDU, fpdu.len()));
    let region = crate::support::Region::new(A, 0, 1 << 20);
    accepts(&mut Stream::new().region(region), ulpdu);
}

/// Row 40.
#[test]
fn fpdus_are_found_in_any_tcp_segments() {
    for markers in [false, true] {
        let mut framer = Framer::new(true, markers);
        let sent: Vec<u8> = (0..40)
            .flat_map(|n| framed(&mut framer, &vec![n; 20 + usize::from(n)]))
            .collect();
        for cut in [1, 2, 3, 7, 36, 500, sent.len()] {
            let (mut deframer, mut arrived, mut found) =
                (Deframer::new(true, markers), Vec::new(), 0);
            for piece in sent.chunks(cut) {
                arrived.extend_from_slice(piece);
                while let Ok(Step::Fpdu { ulpdu, consumed }) = deframer.next(&arrived) {
                    assert_eq!(ulpdu, vec![found; 20 + usize::from(found)]);
                    arrived.drain(..consumed);
                    found += 1;
                }
            }
            assert_eq!((found, arrived.len()), (40, 0));
        }
    }
}

/// Row 41.
#[test]
fn part_of_an_fpdu_delivers_nothing() {
    let fpdu = sealed(&SEND.bytes());
    for have in 0..fpdu.len() {
        assert!(matches!(
            plain().next(&fpdu[..have]),
            Ok(Step::NeedBytes(_))
        ));
    }
}

/// Row 42.
#[test]
fn unfinished_message_at_an_fpdu_border_is_known() {
    let mut stream = Stream::new().receive(8);
    accepts(&mut stream, &SEND_MORE.bytes());
    assert!(stream.receiver.mid_message());
}

/// Row 43.
#[test]
fn marker_that_disagrees_is_2_0_03() {
    let mut framer = Framer::new(false, true);
    let mut stream = framed(&mut framer, &[0; 600]);
    for (at, value) in [(3, 4), (515, 0), (514, 2)] {
        let before = stream[at];
        stream[at] = value;
        let error = error_of(Deframer::new(false, true), &stream);
        assert_eq!(terminate_payload(error), hex("20030000"), "byte {at}");
        stream[at] = before;
    }
}

/// Row 44.
#[test]
fn low_bits_and_reserved_half_of_a_marker_are_not_read() {
    let mut stream = framed(&mut Framer::new(false, true), &[0; 600]);
    stream[..4].copy_from_slice(&hex("dead0003"));
    stream[512..516].copy_from_slice(&hex("beef01ff")); // 0x1fc with its low bits set
    let mut deframer = Deframer::new(false, true);
    assert!(matches!(deframer.next(&stream), Ok(Step::Fpdu { .. })));
}

/// Row 45.
#[test]
fn markers_that_were_not_asked_for_are_2_0_02() {
    let mut framer = Framer::new(true, true);
    let stream = [framed(&mut framer, &[7; 600]), vec![0; 64]].concat();
    assert_eq!(error_of(plain(), &stream), MpaError::Crc);
}

/// Row 46.
#[test]
fn markers_that_are_missing_are_2_0_02_or_2_0_03() {
    // Without the marker in front, the ULPDU's bytes 2 and 3 are taken for the length: here one
    // that is too small.
    let mut ulpdu = vec![0; 600];
    ulpdu[3] = 8;
    let stream = framed(&mut Framer::new(true, false), &ulpdu);
    assert_eq!(error_of(Deframer::new(true, true), &stream), MpaError::Crc);
    let stream = framed(&mut Framer::new(false, false), &ulpdu);
    let error = error_of(Deframer::new(false, true), &stream);
    assert!(matches!(error, MpaError::Marker { .. }), "{error:?}");
}

/// Row 47.
#[test]
fn good_fpdus_after_a_bad_one_are_dropped() {
    let good = sealed(&SEND.bytes());
    let mut bad = good.clone();
    bad[9] ^= 1;
    let mut deframer = plain();
    assert_eq!(deframer.next(&bad), Err(MpaError::Crc));
    assert_eq!(deframer.next(&good), Err(MpaError::Crc));
    let mut stream = Stream::new();
    assert!(stream.ulpdu(&write(A, 0, b"x")).is_err());
    assert_eq!(stream.receive(8).ulpdu(&SEND.bytes()), Ok(Inbound::Dropped));
}

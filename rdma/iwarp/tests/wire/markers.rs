//! Markers in both directions: vectors.md §7, and RFC 5044's figures 5 and 6 as printed.

use crate::support::{A, counting, framed, hex, ulpdu_from};
use proptest::prelude::*;
use xwarp_iwarp::mpa::{Deframer, Framer, MARKER_INTERVAL, Marker, MpaError, Step};
use xwarp_iwarp::{Message, SendKind, Sender, StreamConfig};
use zerocopy::FromBytes;

/// All ULPDUs of a stream in Full Operation with CRC and markers.
fn deframed(mut stream: &[u8]) -> Result<Vec<Vec<u8>>, MpaError> {
    let mut deframer = Deframer::new(true, true);
    let mut ulpdus = Vec::new();
    while !stream.is_empty() {
        match deframer.next(stream)? {
            Step::Fpdu { ulpdu, consumed } => {
                ulpdus.push(ulpdu.to_vec());
                stream = &stream[consumed..];
            }
            Step::NeedBytes(total) => panic!("{total} bytes wanted of {}", stream.len()),
        }
    }
    Ok(ulpdus)
}

/// The only ULPDU of a message with counting bytes as payload.
fn ulpdu(mut message: Message) -> Vec<u8> {
    let segment = message.next_segment(64_768).expect("one segment");
    assert!(segment.last);
    ulpdu_from(&segment, &counting(segment.payload.end))
}

fn sender() -> Sender {
    Sender::new(StreamConfig::new(4, 4))
}

/// ULPDU of a Send of "Hello" with this MSN.
fn hello(msn: u32) -> Vec<u8> {
    let mut ulpdu = hex("41 43 00000000 00000000");
    ulpdu.extend(msn.to_be_bytes());
    ulpdu.extend(hex("00000000 48656c6c6f"));
    ulpdu
}

/// A Send with counting bytes as payload and this MSN.
fn send(msn: u32, len: u32) -> Vec<u8> {
    let mut sender = sender();
    for _ in 1..msn {
        let _ = sender.send(SendKind::default(), 0);
    }
    ulpdu(sender.send(SendKind::default(), len))
}

fn write(len: u32) -> Vec<u8> {
    ulpdu(sender().write(A, 0x1000, len))
}

/// A zero-length Write: the second FPDU of vectors.md §7.7.
fn empty_write() -> Vec<u8> {
    hex("c1 40 00000001 0000000000000000")
}

/// First byte, next offset, markers as (offset, FPDUPTR), CRC.
type Row = (usize, usize, &'static [(usize, u16)], &'static str);

/// Frames the ULPDUs, compares them with the rows of a table, and reads them back.
fn assert_stream(ulpdus: &[Vec<u8>], rows: &[Row]) -> Vec<u8> {
    let (mut framer, mut stream) = (Framer::new(true, true), Vec::new());
    for (ulpdu, (start, end, markers, crc)) in ulpdus.iter().zip(rows) {
        assert_eq!(stream.len(), *start);
        stream.extend(framed(&mut framer, ulpdu));
        assert_eq!(stream.len(), *end);
        assert_eq!(stream[end - 4..], hex(crc));
        let found: Vec<(usize, u16)> = (start.next_multiple_of(MARKER_INTERVAL)..*end)
            .step_by(MARKER_INTERVAL)
            .map(|at| {
                let (marker, _) = Marker::ref_from_prefix(&stream[at..]).expect("4 bytes");
                assert_eq!(marker.reserved.get(), 0);
                (at, marker.fpduptr.get())
            })
            .collect();
        assert_eq!(found, *markers);
    }
    assert_eq!(ulpdus.len(), rows.len());
    assert_eq!(deframed(&stream).as_deref(), Ok(ulpdus));
    stream
}

/// Figures 5 and 6: a Send of 24 zero bytes.
fn figure_ulpdu(msn: u8) -> Vec<u8> {
    let mut ulpdu = hex("41 43 00000000 00000000 00000000 00000000");
    ulpdu[13] = msn;
    ulpdu.resize(42, 0);
    ulpdu
}

/// Figure 6 begins at stream offset 0x1ec: an FPDU of 488 bytes behind the first marker precedes
/// it.
fn up_to_figure_6() -> Vec<u8> {
    let filler = framed(&mut Framer::new(true, true), &[0x55; 482]);
    assert_eq!(filler.len(), 0x1ec);
    filler
}

/// Reads `fpdu` at stream offset 0x1ec.
fn at_figure_6(fpdu: &[u8]) -> Result<Vec<u8>, MpaError> {
    deframed(&[up_to_figure_6(), fpdu.to_vec()].concat()).map(|ulpdus| ulpdus[1].clone())
}

#[test]
fn figure_5_of_rfc_5044_is_built_and_read() {
    // K-1: marker 0, length, Send of MSN 1, 24 zero bytes, CRC
    let figure = hex("00000000 002a 4143 00000000 00000000 00000001 00000000 \
         000000000000000000000000000000000000000000000000 52239983");
    assert_eq!(
        framed(&mut Framer::new(true, true), &figure_ulpdu(1)),
        figure
    );
    assert_eq!(deframed(&figure), Ok(vec![figure_ulpdu(1)]));
}

#[test]
fn figure_6_of_rfc_5044_is_built_and_read() {
    // K-2: the marker of FPDUPTR 0x14 lies at stream offset 0x200, right behind the DDP header
    let figure = hex("002a 4143 00000000 00000000 00000002 00000000 00000014 \
         000000000000000000000000000000000000000000000000 84925898");
    let mut framer = Framer::new(true, true);
    framed(&mut framer, &[0x55; 482]);
    assert_eq!(framed(&mut framer, &figure_ulpdu(2)), figure);
    assert_eq!(at_figure_6(&figure), Ok(figure_ulpdu(2)));
}

#[test]
fn marker_that_names_another_begin_is_error_3() {
    let wrong = hex("002a 4143 00000000 00000000 00000002 00000000 00000018 \
         000000000000000000000000000000000000000000000000 e996c154"); // K-3
    let error = at_figure_6(&wrong).expect_err("FPDUPTR 0x18 instead of 0x14");
    let expected = MpaError::Marker {
        fpduptr: 0x18,
        distance: 0x14,
    };
    assert_eq!(error, expected);
    let terminate = error.terminate().ulpdu();
    assert_eq!(terminate[18..], hex("20030000"));
}

#[test]
fn low_bits_and_reserved_half_of_a_marker_are_not_read() {
    for (marker, crc) in [("00000017", "23ce05ea"), ("dead0014", "bf1433ce")] {
        let zeros = "000000000000000000000000000000000000000000000000";
        let fpdu = hex(&format!(
            "002a 4143 00000000 00000000 00000002 00000000 {marker} {zeros} {crc}"
        )); // K-4, K-5
        assert_eq!(at_figure_6(&fpdu), Ok(figure_ulpdu(2)), "{marker}");
    }
}

/// S-A
#[test]
fn mixed_stream_has_the_markers_of_the_table() {
    let ulpdus = [
        write(1200),
        hello(1),
        empty_write(),
        send(2, 480),
        send(3, 1000),
    ];
    let stream = assert_stream(
        &ulpdus,
        &[
            (
                0,
                1232,
                &[(0, 0), (512, 0x01fc), (1024, 0x03fc)],
                "8c6706e0",
            ),
            (1232, 1264, &[], "20f5b101"),
            (1264, 1284, &[], "ebd34c5f"),
            (1284, 1792, &[(1536, 0x00fc)], "27ab9b60"),
            (1792, 2824, &[(2048, 0x0100), (2560, 0x0300)], "15c6eeb6"),
        ],
    );
    assert_eq!(stream.len(), 2824);
}

/// S-B
#[test]
fn marker_between_two_fpdus_belongs_to_the_second() {
    let stream = assert_stream(
        &[send(1, 484), hello(2)],
        &[
            (0, 512, &[(0, 0)], "8d49863e"),
            (512, 548, &[(512, 0)], "4c4c9f2d"),
        ],
    );
    let tail = "8d49863e 00000000 0017 4143 00000000 00000000 00000002 00000000 48656c6c6f 000000 4c4c9f2d";
    assert_eq!(stream[508..], hex(tail));
}

/// S-C
#[test]
fn marker_between_pad_and_crc_belongs_to_that_fpdu() {
    let stream = assert_stream(
        &[send(1, 488), hello(2)],
        &[
            (0, 520, &[(0, 0), (512, 0x01fc)], "68a8c2e0"),
            (520, 552, &[], "8fbdc750"),
        ],
    );
    let tail = "e0e1e2e3e4e5e6e7 000001fc 68a8c2e0 0017 4143 00000000 00000000 00000002 00000000 48656c6c6f 000000 8fbdc750";
    assert_eq!(stream[504..], hex(tail));
}

/// S-D
#[test]
fn marker_splits_a_ddp_header() {
    for (start, payload, second) in [
        (
            508,
            480,
            "00174143 00000004 000000000000000000000002000000 0048656c6c6f000000 cea895e3",
        ),
        (
            504,
            476,
            "0017414300000000 00000008 0000000000000002000000 0048656c6c6f000000 d2691533",
        ),
        (
            500,
            472,
            "001741430000000000000000 0000000c 00000002000000 0048656c6c6f000000 2d8ec7d5",
        ),
        (
            496,
            468,
            "00174143000000000000000000000002 00000010 000000 0048656c6c6f000000 8d533c86",
        ),
        (
            492,
            464,
            "0017414300000000000000000000000200000000 00000014 48656c6c6f000000 221fef2e",
        ),
    ] {
        let (mut framer, first) = (Framer::new(true, true), send(1, payload));
        let mut stream = framed(&mut framer, &first);
        assert_eq!(stream.len(), start);
        stream.extend(framed(&mut framer, &hello(2)));
        assert_eq!(stream[start..], hex(second), "second FPDU at {start}");
        assert_eq!(deframed(&stream), Ok(vec![first, hello(2)]));
    }
}

/// S-E
#[test]
fn large_fpdu_has_a_marker_in_each_interval() {
    let markers: Vec<(usize, u16)> = (0_usize..18)
        .map(|n| (n * 512, u16::try_from((n * 512).saturating_sub(4)).unwrap()))
        .collect();
    let stream = assert_stream(
        &[write(8868), empty_write()],
        &[
            (0, 8960, markers.leak(), "e87f288b"),
            (8960, 8980, &[], "ebd34c5f"),
        ],
    );
    assert_eq!(Framer::new(true, true).mulpdu(8960), 8882);
    assert_eq!(stream.len(), 8980);
}

#[test]
fn no_marker_is_sent_while_the_stream_is_idle_at_a_boundary() {
    let mut framer = Framer::new(true, true);
    // the marker at 512 waits for the next FPDU
    assert_eq!(framed(&mut framer, &send(1, 484)).len(), 512);
    assert_eq!(framed(&mut framer, &hello(2)).len(), 36);
}

#[test]
fn directions_are_independent_and_without_markers_there_are_none() {
    let mut framer = Framer::new(true, false);
    assert_eq!(
        framed(&mut framer, &figure_ulpdu(1)),
        hex("002a 4143 00000000 00000000 00000001 00000000 \
             000000000000000000000000000000000000000000000000 b7243ec3")
    ); // K-1n
    assert_eq!(framer.fpdu_len(1200), 1208);
    assert_eq!(Framer::new(true, true).fpdu_len(1200), 1220);
}

#[test]
fn ulpdu_that_no_marker_cuts_is_borrowed_from_the_stream() {
    let stream = [
        framed(&mut Framer::new(true, true), &hello(1)),
        vec![0; 100],
    ]
    .concat();
    let mut deframer = Deframer::new(true, true);
    let Ok(Step::Fpdu { ulpdu, consumed }) = deframer.next(&stream) else {
        panic!("one FPDU")
    };
    assert_eq!(
        (ulpdu.as_ptr(), consumed),
        (stream[6..].as_ptr(), 4 + 2 + 23 + 3 + 4)
    );
}

#[test]
fn part_of_an_fpdu_with_markers_tells_how_much_is_wanted() {
    let stream = framed(&mut Framer::new(true, true), &write(1200));
    for have in 0..stream.len() {
        let wanted = if have < 6 { 6 } else { 1232 };
        let step = Deframer::new(true, true).next(&stream[..have]).wanted();
        assert_eq!(step, Ok(Some(wanted)));
    }
}

/// A step that needs bytes, without its lifetime.
trait Wanted {
    fn wanted(self) -> Result<Option<usize>, MpaError>;
}

impl Wanted for Result<Step<'_>, MpaError> {
    fn wanted(self) -> Result<Option<usize>, MpaError> {
        self.map(|step| match step {
            Step::NeedBytes(total) => Some(total),
            Step::Fpdu { .. } => None,
        })
    }
}

#[test]
fn first_error_ends_its_direction() {
    for markers in [false, true] {
        let mut deframer = Deframer::new(true, markers);
        let good = framed(&mut Framer::new(true, markers), &hello(1));
        let mut bad = good.clone();
        bad[20] ^= 1;
        assert_eq!(deframer.next(&bad), Err(MpaError::Crc));
        assert_eq!(deframer.next(&good), Err(MpaError::Crc));
    }
    let length = Deframer::new(false, true)
        .next(&hex("00000000 fd01"))
        .wanted();
    assert_eq!(length, Err(MpaError::Length(64_769)));
}

#[test]
fn markers_are_checked_without_crc_too() {
    let mut stream = framed(&mut Framer::new(false, true), &write(1200));
    assert_eq!(stream[1228..], [0; 4]);
    let mut deframer = Deframer::new(false, true);
    assert!(matches!(deframer.next(&stream), Ok(Step::Fpdu { .. })));
    stream[3] = 8; // the marker in front
    let expected = MpaError::Marker {
        fpduptr: 8,
        distance: 0,
    };
    assert_eq!(
        Deframer::new(false, true).next(&stream).wanted(),
        Err(expected)
    );
}

#[test]
fn mulpdu_with_markers_is_that_of_the_table() {
    for (emss, expected) in [
        (64, 128),
        (136, 128),
        (140, 130),
        (142, 130),
        (144, 134),
        (512, 502),
        (513, 498),
        (536, 522),
        (1220, 1202),
        (1360, 1342),
        (1400, 1382),
        (1428, 1410),
        (1440, 1422),
        (1448, 1430),
        (1459, 1438),
        (1460, 1442),
        (4036, 3998),
        (8948, 8870),
        (8960, 8882),
        (65_483, 64_768),
        (65_495, 64_768),
        (0, 128),
    ] {
        assert_eq!(
            Framer::new(true, true).mulpdu(emss),
            expected,
            "EMSS {emss}"
        );
    }
}

#[test]
fn full_size_fpdu_with_markers_never_exceeds_the_emss() {
    // Below 140 the lower bound of MULPDU applies.
    for emss in 140..9100 {
        let mut framer = Framer::new(false, true);
        let mulpdu = framer.mulpdu(emss);
        assert!(framer.fpdu_len(mulpdu) <= emss, "EMSS {emss}");
        framed(&mut framer, &[0; 490]);
        assert!(framer.fpdu_len(mulpdu) <= emss, "EMSS {emss}");
    }
}

proptest! {
    #[test]
    fn any_ulpdus_come_back_through_markers(
        lens in proptest::collection::vec(prop_oneof![0usize..80, 400usize..600, 0usize..3000, Just(64_768)], 1..12),
        crc: bool,
        cut in 1usize..1500,
    ) {
        let ulpdus: Vec<Vec<u8>> = lens.iter().zip(1u8..).map(|(len, n)| {
            (0..*len).map(|i| n.wrapping_mul(i.to_le_bytes()[0] | 1)).collect()
        }).collect();
        let mut framer = Framer::new(crc, true);
        let sent: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| framed(&mut framer, ulpdu)).collect();
        let (mut deframer, mut arrived, mut read) = (Deframer::new(crc, true), Vec::new(), Vec::new());
        for piece in sent.chunks(cut.max(sent.len() / 100)) {
            arrived.extend_from_slice(piece);
            while let Step::Fpdu { ulpdu, consumed } = deframer.next(&arrived).expect("good FPDUs") {
                read.push(ulpdu.to_vec());
                arrived.drain(..consumed);
            }
        }
        prop_assert!(arrived.is_empty());
        prop_assert_eq!(read, ulpdus);
    }

    #[test]
    fn any_single_bit_error_is_noticed_with_markers(len in 0usize..1200, at: usize) {
        let mut framer = Framer::new(true, true);
        let mut stream = framed(&mut framer, &vec![7; len]);
        let bit = at % (8 * stream.len());
        stream[bit / 8] ^= 1 << (bit % 8);
        let mut deframer = Deframer::new(true, true);
        let accepted = matches!(deframer.next(&stream), Ok(Step::Fpdu { .. }));
        prop_assert!(!accepted);
    }

    #[test]
    fn deframing_with_markers_survives_any_bytes(
        stream in proptest::collection::vec(any::<u8>(), 0..2000), short: bool, crc: bool,
    ) {
        let mut stream = stream;
        if short && let Some(length) = stream.get_mut(4) {
            *length &= 0x03;
        }
        let mut deframer = Deframer::new(crc, true);
        let mut rest = &stream[..];
        while let Ok(Step::Fpdu { consumed, .. }) = deframer.next(rest) {
            prop_assert!(consumed > 0 && consumed <= rest.len());
            rest = &rest[consumed..];
        }
    }
}

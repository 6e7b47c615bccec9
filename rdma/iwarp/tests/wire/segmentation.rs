//! Messages of several segments: vectors.md §4.

use crate::support::{A, B, counting, fpdus, hex};
use xwarp_iwarp::mpa::fpdu_len;
use xwarp_iwarp::{Message, ReadRequest, SendKind, Sender, StreamConfig};

/// ULPDU length, header and CRC of a segment.
type Row = (usize, &'static str, &'static str);

fn sender() -> Sender {
    Sender::new(StreamConfig::new(4, 4))
}

/// Cuts a message with counting bytes as payload. Its CRCs verify every byte.
fn assert_segments(message: Message, mulpdu: usize, header_len: usize, rows: &[Row]) {
    let payload = counting(message.len());
    let fpdus = fpdus(message, &payload, mulpdu);
    assert_eq!(fpdus.len(), rows.len());
    for (fpdu, (ulpdu_len, header, crc)) in fpdus.iter().zip(rows) {
        assert_eq!(fpdu.len(), fpdu_len(*ulpdu_len));
        assert_eq!(
            u16::from_be_bytes([fpdu[0], fpdu[1]]),
            u16::try_from(*ulpdu_len).unwrap()
        );
        assert_eq!(fpdu[2..2 + header_len], hex(header));
        assert_eq!(fpdu[fpdu.len() - 4..], hex(crc));
    }
}

#[test]
fn untagged_example_of_rfc_5041_has_two_segments() {
    let message = sender().send(SendKind::default(), 2048);
    assert_segments(
        message,
        1500,
        18,
        &[
            (1500, "014300000000000000000000000100000000", "4a48b20f"),
            (584, "4143000000000000000000000001000005ca", "aa08f56d"),
        ],
    );
}

#[test]
fn tagged_example_of_rfc_5041_has_two_segments() {
    assert_segments(
        sender().write(A, 16384, 2048),
        1500,
        14,
        &[
            (1500, "8140112233440000000000004000", "9985376a"),
            (576, "c1401122334400000000000045ce", "34562638"),
        ],
    );
}

#[test]
fn invalidate_stag_is_in_every_segment() {
    let mut sender = sender();
    for _ in 1..7 {
        let _ = sender.send(SendKind::default(), 0);
    }
    let message = sender.send(
        SendKind {
            solicited: false,
            invalidate: Some(A),
            immediate: None,
        },
        3000,
    );
    assert_segments(
        message,
        1454,
        18,
        &[
            (1454, "014411223344000000000000000700000000", "6fd447a7"),
            (1454, "01441122334400000000000000070000059c", "cd5a0ced"),
            (146, "414411223344000000000000000700000b38", "1da6c45b"),
        ],
    );
}

#[test]
fn read_response_counts_from_the_sink_offset() {
    let read = ReadRequest {
        sink: B,
        sink_to: 0x2000,
        len: 4096,
        source: A,
        source_to: 0,
    };
    assert_segments(
        sender().read_response(&read),
        1442,
        14,
        &[
            (1442, "8142556677880000000000002000", "226b2e6d"),
            (1442, "8142556677880000000000002594", "3c02e397"),
            (1254, "c142556677880000000000002b28", "c7683cae"),
        ],
    );
}

#[test]
fn tagged_offset_carries_over_32_bits() {
    assert_segments(
        sender().write(A, 0xFFFF_FFF0, 3000),
        1454,
        14,
        &[
            (1454, "81401122334400000000fffffff0", "fda02eba"),
            (1454, "8140112233440000000100000590", "290f578c"),
            (134, "c140112233440000000100000b30", "b27b8761"),
        ],
    );
}

#[test]
fn message_of_whole_segments_has_no_empty_one_behind() {
    assert_segments(
        sender().send(SendKind::default(), 2872),
        1454,
        18,
        &[
            (1454, "014300000000000000000000000100000000", "e4286fbe"),
            (1454, "41430000000000000000000000010000059c", "d060b501"),
        ],
    );
}

#[test]
fn segment_size_follows_a_changing_mulpdu() {
    let mut message = sender().write(A, 0, 3000);
    assert_eq!(message.next_len(1454), Some(1454));
    assert_eq!(message.next_segment(1454).unwrap().payload, 0..1440);
    assert_eq!(message.offset(), 1440);
    // as 128, the least that MPA gives
    assert_eq!(message.next_segment(64).unwrap().payload, 1440..1440 + 114);
    let last = message.next_segment(65536).unwrap();
    assert_eq!((last.payload, last.last), (1554..3000, true));
    assert!(message.is_done());
    assert_eq!(message.next_len(1454), None);
    assert_eq!(message.next_segment(1454), None);
}

#[test]
fn read_response_of_4_gib_less_one_wraps_no_counter() {
    let read = ReadRequest {
        sink: B,
        sink_to: u64::MAX - 5,
        len: u32::MAX,
        source: A,
        source_to: 0,
    };
    let mut message = sender().read_response(&read);
    let mut bytes = 0;
    while let Some(segment) = message.next_segment(64768) {
        bytes += u64::from(segment.payload.end - segment.payload.start);
    }
    assert_eq!(bytes, u64::from(u32::MAX));
    assert_eq!(message.offset(), u32::MAX);
}

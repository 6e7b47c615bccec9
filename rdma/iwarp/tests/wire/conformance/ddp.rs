//! Rules of RFC 5041 that hold for every message, whatever its length and the MULPDU.

use crate::support::{A, Region, Stream, hex};
use xwarp_iwarp::ddp::DdpSegment;
use xwarp_iwarp::{Inbound, Message, SendKind, Sender, StreamConfig};

const TAGGED_HEADER: usize = 14;
const UNTAGGED_HEADER: usize = 18;
/// Start of the messages: offsets carry beyond 32 bits.
const FIRST_TO: u64 = 0xffff_ff00;

fn sender() -> Sender {
    Sender::new(StreamConfig::new(4, 4))
}

/// Lengths near those that need one more segment.
fn lengths(most: usize) -> [u32; 9] {
    let around = [0, 1, most - 1, most, most + 1, 2 * most - 1, 2 * most];
    let mut lengths = [3 * most + 1; 9];
    lengths[..7].copy_from_slice(&around);
    lengths[7] = 2 * most + 1;
    lengths.map(|len| u32::try_from(len).expect("a few segments"))
}

/// Checks that the segments are as few as possible, follow each other without a gap, carry their
/// offset, and that only the last has L (§4.1 to §5.2).
fn assert_tiles(mut message: Message, len: u32, mulpdu: usize, header_len: usize) {
    let most = u32::try_from(mulpdu - header_len).expect("a MULPDU");
    let mut bytes = 0;
    let mut segments = 0;
    while let Some(segment) = message.next_segment(mulpdu) {
        let what = format!("{len} bytes, MULPDU {mulpdu}, segment {segments}");
        assert_eq!(segment.header.len(), header_len, "{what}");
        assert_eq!(segment.payload.start, bytes, "{what}");
        let payload = segment.payload.end - segment.payload.start;
        let last = segment.payload.end == len;
        assert!(payload == most || last && payload < most, "{what}");
        assert_eq!(segment.header[0] & 0x40 != 0, last, "{what}: L");
        if header_len == TAGGED_HEADER {
            let to = u64::from_be_bytes(segment.header[6..14].try_into().expect("8 bytes"));
            assert_eq!(to, FIRST_TO + u64::from(bytes), "{what}: TO");
        } else {
            let mo = u32::from_be_bytes(segment.header[14..18].try_into().expect("4 bytes"));
            assert_eq!(mo, bytes, "{what}: MO");
        }
        bytes = segment.payload.end;
        segments += 1;
    }
    assert_eq!(bytes, len);
    assert_eq!(segments, len.div_ceil(most).max(1), "{len} by {mulpdu}");
}

#[test]
fn segments_tile_their_message_at_any_mulpdu() {
    for mulpdu in [128, 129, 1448, 1454, 1455, 8954, 64_768] {
        for len in lengths(mulpdu - TAGGED_HEADER) {
            let message = sender().write(A, FIRST_TO, len);
            assert_tiles(message, len, mulpdu, TAGGED_HEADER);
        }
        for len in lengths(mulpdu - UNTAGGED_HEADER) {
            let message = sender().send(SendKind::default(), len);
            assert_tiles(message, len, mulpdu, UNTAGGED_HEADER);
        }
    }
}

#[test]
fn ulps_bytes_of_a_header_pass_ddp_unread() {
    for rsvd_ulp in 0..=255_u8 {
        let mut tagged = hex("c1 00 11223344 0000000000001000");
        let mut untagged = hex("41 00 00000000 00000000 00000001 00000000");
        tagged[1] = rsvd_ulp;
        untagged[1..6].fill(rsvd_ulp);
        for ulpdu in [tagged, untagged] {
            let segment = DdpSegment::parse(&ulpdu).expect("whole");
            assert_eq!(segment.rsvd_ulp(), rsvd_ulp);
            assert_eq!(segment.header_bytes(), ulpdu);
            if let DdpSegment::Untagged(header, _) = segment {
                let all = u32::from_be_bytes([rsvd_ulp; 4]);
                assert_eq!(header.rsvd_ulp_stag.get(), all);
            }
        }
    }
}

#[test]
fn version_that_changes_within_a_message_is_refused() {
    let first = hex("01 43 00000000 00000000 00000001 00000000 61626364");
    for (control, code) in [(0x40, "1/2/06"), (0x42, "1/2/06"), (0x43, "1/2/06")] {
        let mut stream = Stream::new().receive(8);
        assert!(stream.ulpdu(&first).is_ok());
        let mut second = hex("41 43 00000000 00000000 00000001 00000004 65666768");
        second[0] = control;
        assert_eq!(stream.refusal(&second), code, "control {control:#x}");
    }
    let mut stream = Stream::new().page();
    let first = hex("81 40 11223344 0000000000001000 61");
    assert!(stream.ulpdu(&first).is_ok());
    let second = hex("c0 40 11223344 0000000000001001 62");
    assert_eq!(stream.refusal(&second), "1/1/04");
}

#[test]
fn message_may_begin_at_any_tagged_offset() {
    for to in [1, 3, u64::from(u32::MAX), (1 << 63) + 3, u64::MAX - 4] {
        let mut ulpdu = hex("c1 40 11223344");
        ulpdu.extend(to.to_be_bytes());
        ulpdu.extend(b"abcd");
        let mut stream = Stream::new().region(Region::new(A, to, 4));
        let Ok(Inbound::Write { placement, .. }) = stream.ulpdu(&ulpdu) else {
            panic!("a Write at {to:#x}")
        };
        assert_eq!((placement.to, placement.payload), (to, &b"abcd"[..]));
    }
}

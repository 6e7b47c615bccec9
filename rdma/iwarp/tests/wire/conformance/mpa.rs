//! FPDUs, markers and CRCs (RFC 5044 §3, §4).

use super::{reply, request};
use crate::support::{A, counting, hex, sealed};
use xwarp_iwarp::mpa::{InitiatorStep, MAX_ULPDU, MpaError, ResponderStep, Step, next_fpdu};
use xwarp_iwarp::{
    Deframer, Framer, Initiator, Negotiated, Responder, SendKind, Sender, StartupParams,
    StreamConfig,
};

const NO_CRC: StartupParams = StartupParams {
    crc: false,
    ..StartupParams::DEFAULT
};

fn framed(framer: &mut Framer, ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0xEE; framer.fpdu_len(ulpdu.len())];
    fpdu[Framer::ulpdu_at(ulpdu.len())].copy_from_slice(ulpdu);
    framer.seal(&mut fpdu, ulpdu.len());
    fpdu
}

/// Result of a responder for this Request.
fn responding(params: StartupParams, request: &[u8]) -> Negotiated {
    match Responder::new(params).on_bytes(request) {
        Ok(ResponderStep::Request { request, .. }) => {
            Responder::new(params).accept(&request, b"").unwrap().1
        }
        other => panic!("a good Request, not {other:?}"),
    }
}

/// Result of an initiator for this Reply.
fn initiating(params: StartupParams, reply: &[u8]) -> Negotiated {
    match Initiator::new(params).on_bytes(reply) {
        Ok(InitiatorStep::Accepted { negotiated, .. }) => negotiated,
        other => panic!("accepted, not {other:?}"),
    }
}

/// R5044-3-4
#[test]
fn no_segment_exceeds_the_largest_ulpdu_whatever_mulpdu_is_given() {
    let mut sender = Sender::new(StreamConfig::new(4, 4));
    for mulpdu in [MAX_ULPDU, MAX_ULPDU + 1, 1 << 20, usize::MAX] {
        for mut message in [
            sender.write(A, 0, 200_000),
            sender.send(SendKind::default(), 200_000),
        ] {
            let mut lens = Vec::new();
            while let Some(len) = message.next_len(mulpdu) {
                let segment = message.next_segment(mulpdu).expect("not done");
                let payload = (segment.payload.end - segment.payload.start) as usize;
                assert_eq!(segment.header.len() + payload, len);
                lens.push(len);
            }
            let (last, full) = lens.split_last().expect("segments");
            assert!(full.iter().all(|len| *len == 64_768), "{lens:?}");
            assert!(*last < 64_768);
        }
    }
}

/// R5044-3-5, -6: any size of a ULPDU, without loss.
#[test]
fn ulpdus_of_every_size_are_framed_and_handed_on_with_their_length() {
    let bytes = counting(u32::try_from(MAX_ULPDU).unwrap());
    for len in (1..300)
        .chain([1_442, 1_454, 1_460, 8_954])
        .chain(64_760..=MAX_ULPDU)
    {
        let fpdu = sealed(&bytes[..len]);
        let expected = Step::Fpdu {
            ulpdu: &bytes[..len],
            consumed: fpdu.len(),
        };
        assert_eq!(next_fpdu(&fpdu, true), Ok(expected), "{len} bytes");
    }
}

/// R5044-3-8: DDP and RDMAP send the version that start-up agreed on.
#[test]
fn segments_are_of_the_version_that_start_up_settled() {
    let rdmac = StartupParams {
        allow_revision_0: true,
        ..StartupParams::DEFAULT
    };
    for (rest, control) in [("c0 00 0000", [0xc0, 0x00]), ("40 01 0000", [0xc1, 0x40])] {
        for negotiated in [
            responding(rdmac, &request(rest)),
            initiating(rdmac, &reply(rest)),
        ] {
            let config = StreamConfig {
                version: negotiated.version,
                ..StreamConfig::new(4, 4)
            };
            let mut write = Sender::new(config).write(A, 0, 4);
            let segment = write.next_segment(1454).expect("one segment");
            assert_eq!(segment.header[..2], control);
        }
    }
}

/// R5044-4.3-7: byte 512n points to the small FPDU that it lies in, or to none if it lies between
/// two.
#[test]
fn marker_among_many_small_fpdus_points_to_its_own() {
    let mut framer = Framer::new(true, true);
    let (mut stream, mut begins) = (Vec::new(), Vec::new());
    for n in 0..200_u8 {
        // Position of its length field: behind a marker that is due right here.
        begins.push(
            stream.len()
                + if stream.len().is_multiple_of(512) {
                    4
                } else {
                    0
                },
        );
        stream.extend(framed(&mut framer, &[n; 18]));
    }
    let mut between = 0;
    for at in (0..stream.len()).step_by(512) {
        let fpduptr = usize::from(u16::from_be_bytes([stream[at + 2], stream[at + 3]]));
        assert_eq!(stream[at..at + 2], [0, 0]);
        if fpduptr == 0 {
            assert!(begins.contains(&(at + 4)), "marker at {at}");
            between += 1;
        } else {
            let latest = begins.iter().rfind(|begin| **begin < at);
            assert_eq!(latest, Some(&(at - fpduptr)), "marker at {at}");
        }
    }
    assert!(stream.len() > 9 * 512 && between < 9, "both kinds occur");
}

/// R5044-4.4-6: the peer's request holds from the first FPDU to the last, in both directions.
#[test]
fn crcs_that_only_the_peer_wants_are_made_and_checked_to_the_end() {
    for negotiated in [
        responding(NO_CRC, &request("40 01 0000")),
        initiating(NO_CRC, &reply("40 01 0000")),
    ] {
        let mut framer = Framer::new(negotiated.crc, negotiated.send_markers);
        let mut deframer = Deframer::new(negotiated.crc, negotiated.receive_markers);
        for n in 0..2_000_u32 {
            let fpdu = framed(&mut framer, &n.to_be_bytes());
            assert_eq!(fpdu, sealed(&n.to_be_bytes()));
            assert!(matches!(deframer.next(&fpdu), Ok(Step::Fpdu { .. })));
        }
        let mut bad = sealed(b"late");
        bad[3] ^= 1;
        assert_eq!(deframer.next(&bad), Err(MpaError::Crc));
    }
}

/// R5044-4.4-7: not even the first FPDU's CRC is checked.
#[test]
fn no_crc_is_checked_from_the_first_fpdu_on_if_neither_side_wants_any() {
    for negotiated in [
        responding(NO_CRC, &request("00 01 0000")),
        initiating(NO_CRC, &reply("00 01 0000")),
    ] {
        let mut deframer = Deframer::new(negotiated.crc, negotiated.receive_markers);
        let mut fpdu = sealed(b"free");
        let crc_at = fpdu.len() - 4;
        for crc in ["deadbeef", "00000000", "ffffffff"] {
            fpdu[crc_at..].copy_from_slice(&hex(crc));
            assert!(matches!(deframer.next(&fpdu), Ok(Step::Fpdu { .. })));
        }
    }
}

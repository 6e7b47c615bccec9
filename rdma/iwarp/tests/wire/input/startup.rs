//! Rows 1 to 30: start-up and the first FPDU.

use super::{SEND, accepts, refuses, write};
use crate::support::{A, Stream, hex, sealed};
use xwarp_iwarp::mpa::{
    Depth, Enhanced, InitiatorStep, Request, ResponderStep, Revision, Rtr, RtrTypes,
};
use xwarp_iwarp::{
    Deframer, Inbound, Initiator, MpaError, Responder, StartupError, StartupParams, StreamConfig,
    Terminate,
};

/// "MPA ID Req Frame" and "MPA ID Rep Frame".
const REQ: &str = "4d504120494420526571204672616d65";
const REP: &str = "4d504120494420526570204672616d65";

fn request(rest: &str) -> Vec<u8> {
    hex(&format!("{REQ}{rest}"))
}

fn reply(rest: &str) -> Vec<u8> {
    hex(&format!("{REP}{rest}"))
}

fn respond(stream: &[u8]) -> Result<ResponderStep, StartupError> {
    Responder::new(StartupParams::DEFAULT).on_bytes(stream)
}

fn good(stream: &[u8]) -> Request {
    match respond(stream) {
        Ok(ResponderStep::Request { request, .. }) => request,
        other => panic!("a good Request, not {other:?}"),
    }
}

fn params(enhanced: Enhanced) -> StartupParams {
    StartupParams {
        enhanced: Some(enhanced),
        ..StartupParams::DEFAULT
    }
}

/// Peer-to-peer, IRD and ORD 4, Write and Read as RTR.
const P2P: Enhanced = Enhanced {
    peer_to_peer: true,
    rtr: RtrTypes::only(Rtr::Write).with(Rtr::Read),
    ..Enhanced::with_depths(4, 4)
};

fn initiate(enhanced: Enhanced, stream: &[u8]) -> Result<InitiatorStep, StartupError> {
    Initiator::new(params(enhanced)).on_bytes(stream)
}

fn plain_initiate(stream: &[u8]) -> Result<InitiatorStep, StartupError> {
    Initiator::new(StartupParams::DEFAULT).on_bytes(stream)
}

/// The Terminate for an unacceptable Reply.
fn terminate_of(step: &Result<InitiatorStep, StartupError>) -> Vec<u8> {
    let Ok(InitiatorStep::Unacceptable { error, .. }) = step else {
        panic!("unacceptable, not {step:?}")
    };
    let terminate = Terminate::with_code(error.term_code().expect("a Terminate code")).ulpdu();
    terminate[18..].to_vec()
}

/// Row 1.
#[test]
fn wrong_key_byte_closes() {
    for at in 0..16 {
        let mut frame = request("40 01 0000");
        frame[at] ^= 0x20;
        assert_eq!(respond(&frame), Err(StartupError::NotMpa), "byte {at}");
    }
}

/// Row 2.
#[test]
fn key_of_the_own_role_closes() {
    assert_eq!(respond(&reply("40 01 0000")), Err(StartupError::WrongRole));
    assert_eq!(
        plain_initiate(&request("40 01 0000")),
        Err(StartupError::WrongRole)
    );
}

/// Row 3.
#[test]
fn private_data_beyond_512_bytes_closes_at_once() {
    for length in [513, 514, 4096, 65_535] {
        let head = format!("40 01 {length:04x}");
        let refused = StartupError::PrivateDataLength(length);
        assert_eq!(respond(&request(&head)), Err(refused));
        assert_eq!(plain_initiate(&reply(&head)), Err(refused));
    }
}

/// Row 4.
#[test]
fn truncated_private_data_is_never_a_request() {
    assert_eq!(
        respond(&request("40 01 0008 616263")),
        Ok(ResponderStep::NeedBytes(28))
    );
}

/// Row 7.
#[test]
fn request_in_single_bytes_is_accepted() {
    let frame = request("40 01 0003 616263");
    for have in 0..frame.len() {
        assert!(matches!(
            respond(&frame[..have]),
            Ok(ResponderStep::NeedBytes(_))
        ));
    }
    assert_eq!(good(&frame).private_data[..], *b"abc");
}

/// Row 8.
#[test]
fn revision_0_closes_unless_permissive() {
    assert_eq!(
        respond(&request("c0 00 0000")),
        Err(StartupError::Revision(0))
    );
}

/// Row 9.
#[test]
fn revision_3_and_above_closes() {
    for revision in 3..=255 {
        let head = format!("40 {revision:02x} 0000");
        assert_eq!(
            respond(&request(&head)),
            Err(StartupError::Revision(revision))
        );
        assert_eq!(
            initiate(P2P, &reply(&head)),
            Err(StartupError::Revision(revision))
        );
    }
}

/// Row 10.
#[test]
fn responder_of_revision_1_closes_upon_an_enhanced_request() {
    let old = StartupParams {
        max_revision: Revision::One,
        ..StartupParams::DEFAULT
    };
    let step = Responder::new(old).on_bytes(&request("50 02 0004 0001 0001"));
    assert_eq!(step, Err(StartupError::Revision(2)));
}

/// Row 11.
#[test]
fn no_room_for_the_announced_enhanced_data_closes() {
    for length in 0..4 {
        let frame = request(&format!("50 02 000{length}"));
        assert_eq!(respond(&frame), Err(StartupError::EnhancedLength(length)));
    }
}

/// Row 12.
#[test]
fn s_bit_of_revision_1_is_reserved() {
    let request = good(&request("50 01 0004 00010001"));
    assert_eq!(request.enhanced, None);
    assert_eq!(request.private_data[..], hex("00010001"));
}

/// Row 13.
#[test]
fn reject_and_reserved_bits_of_a_request_are_not_read() {
    assert_eq!(good(&request("7f 01 0000")).enhanced, None);
    assert_eq!(good(&request("6f 02 0000")).enhanced, None);
}

/// Row 14.
#[test]
fn rtr_bits_without_a_are_not_read() {
    let request = good(&request("50 02 0004 4001 c001"));
    assert_eq!(request.enhanced.and_then(|data| data.rtr), None);
    let (_, negotiated) = Responder::new(params(P2P)).accept(&request, b"").unwrap();
    assert!(
        negotiated
            .enhanced
            .is_some_and(|settled| !settled.await_rtr)
    );
}

/// Row 15.
#[test]
fn peer_to_peer_without_rtr_types_is_told_ours() {
    let request = good(&request("50 02 0004 8001 0001"));
    let (frame, _) = Responder::new(params(P2P)).accept(&request, b"").unwrap();
    assert_eq!(frame[20..], hex("8001 c001"));
}

/// Row 16.
#[test]
fn reply_of_the_client_server_model_is_2_0_07_if_peer_to_peer_is_required() {
    let frame = reply("50 02 0004 0004 0004");
    assert_eq!(terminate_of(&initiate(P2P, &frame)), hex("20070000"));
    let optional = Enhanced {
        required: false,
        ..P2P
    };
    assert!(matches!(
        initiate(optional, &frame),
        Ok(InitiatorStep::Accepted { .. })
    ));
}

/// Row 17.
#[test]
fn unenhanced_reply_closes_if_more_is_required() {
    let frame = reply("40 02 0000");
    assert_eq!(initiate(P2P, &frame), Err(StartupError::NotEnhanced));
    let optional = Enhanced {
        required: false,
        ..P2P
    };
    assert!(matches!(
        initiate(optional, &frame),
        Ok(InitiatorStep::Accepted { .. })
    ));
}

/// Row 18.
#[test]
fn enhanced_reply_that_nobody_asked_for_closes() {
    assert_eq!(
        plain_initiate(&reply("50 02 0004 0001 0001")),
        Err(StartupError::Revision(2))
    );
}

/// Row 19.
#[test]
fn smaller_ird_of_the_reply_lowers_ord() {
    let step = initiate(Enhanced::with_depths(4, 4), &reply("50 02 0004 0002 0004"));
    let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
        panic!("accepted, not {step:?}")
    };
    assert_eq!(negotiated.enhanced.and_then(|settled| settled.ord), Some(2));
}

/// Row 20.
#[test]
fn larger_ord_of_the_reply_raises_ird_or_is_2_0_06() {
    let frame = reply("50 02 0004 0004 0008");
    let roomy = Enhanced {
        max_ird: 8,
        ..Enhanced::with_depths(4, 4)
    };
    let step = initiate(roomy, &frame);
    let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
        panic!("accepted, not {step:?}")
    };
    assert_eq!(negotiated.enhanced.and_then(|settled| settled.ird), Some(8));
    assert_eq!(
        terminate_of(&initiate(Enhanced::with_depths(4, 4), &frame)),
        hex("20060000")
    );
}

/// Row 21.
#[test]
fn no_common_rtr_is_2_0_07() {
    let frame = reply("50 02 0004 c004 0004"); // Send only
    assert_eq!(terminate_of(&initiate(P2P, &frame)), hex("20070000"));
}

/// Row 22.
#[test]
fn reject_reaches_the_ulp() {
    let step = initiate(P2P, &reply("70 02 0006 8004 4008 6e6f"));
    let Ok(InitiatorStep::Rejected {
        private_data,
        enhanced,
        ..
    }) = step
    else {
        panic!("rejected, not {step:?}")
    };
    assert_eq!(private_data[..], *b"no");
    assert_eq!(enhanced.map(|data| data.ord), Some(Depth::Count(8)));
}

/// Row 23.
#[test]
fn markers_that_the_peer_wants_are_generated() {
    let step = plain_initiate(&reply("c0 01 0000"));
    let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
        panic!("accepted, not {step:?}")
    };
    assert!(negotiated.send_markers && !negotiated.receive_markers);
}

/// Row 24.
#[test]
fn bytes_between_request_and_reply_close() {
    assert_eq!(
        respond(&request("40 01 0000 00")),
        Err(StartupError::Trailing(1))
    );
}

/// Row 25.
#[test]
fn bytes_right_after_the_reply_are_the_first_fpdu() {
    let stream = [reply("40 01 0000"), sealed(&SEND.bytes())].concat();
    let step = plain_initiate(&stream);
    let Ok(InitiatorStep::Accepted { consumed, .. }) = step else {
        panic!("accepted, not {step:?}")
    };
    assert!(Stream::new().receive(4).fpdu(&stream[consumed..]).is_ok());
}

/// Row 26.
#[test]
fn responder_that_sends_first_is_understood() {
    accepts(&mut Stream::new().receive(4), &SEND.bytes());
}

/// Row 27.
#[test]
fn bad_crc_of_the_first_fpdu_is_code_2() {
    let mut fpdu = sealed(&SEND.bytes());
    fpdu[22] ^= 0x10;
    // and the engine's fence stays shut
    assert_eq!(Deframer::new(true, false).next(&fpdu), Err(MpaError::Crc));
}

/// Row 28.
#[test]
fn bad_stag_in_the_first_fpdu_is_1_1_00() {
    refuses(Stream::new(), &write(A, 0, b"x"), "1/1/00 110");
}

/// Row 29.
#[test]
fn terminate_as_first_fpdu_is_one() {
    let terminate = hex("41 47 00000000 00000002 00000001 00000000 20020000");
    assert!(matches!(
        Stream::new().ulpdu(&terminate),
        Ok(Inbound::Terminate(_))
    ));
}

/// Row 30.
#[test]
fn rtr_of_another_type_is_taken() {
    let awaiting = || {
        Stream::with_config(StreamConfig {
            await_rtr: true,
            ..StreamConfig::new(4, 4)
        })
    };
    let empty = super::Untagged {
        payload: b"",
        ..SEND
    };
    accepts(&mut awaiting(), &empty.bytes());
    accepts(&mut awaiting(), &write(A, 0, b""));
    accepts(&mut awaiting(), &super::read_request(&[0; 28]));
}

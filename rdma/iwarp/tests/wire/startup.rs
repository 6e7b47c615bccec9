//! MPA Request and Reply Frames of revision 1, and of the RDMA Consortium's 0: vectors.md §2.

use crate::support::{counting, hex};
use xwarp_iwarp::mpa::{
    InitiatorStep, MAX_STARTUP_FRAME, PrivateDataTooLong, Request, ResponderStep, Revision,
    encode_request,
};
use xwarp_iwarp::{Initiator, Negotiated, Responder, StartupError, StartupParams};

const CRC: StartupParams = StartupParams::DEFAULT;
const NO_CRC: StartupParams = StartupParams { crc: false, ..CRC };
const MARKERS: StartupParams = StartupParams {
    markers: true,
    ..CRC
};
const RDMAC: StartupParams = StartupParams {
    allow_revision_0: true,
    ..CRC
};
const REVISION_1: StartupParams = StartupParams {
    max_revision: Revision::One,
    ..CRC
};

/// CRCs on, no markers, revision 1.
const PLAIN: Negotiated = Negotiated {
    crc: true,
    send_markers: false,
    receive_markers: false,
    revision: 1,
    version: 1,
    enhanced: None,
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
    Responder::new(CRC).on_bytes(stream)
}

fn initiate(stream: &[u8]) -> Result<InitiatorStep, StartupError> {
    Initiator::new(CRC).on_bytes(stream)
}

fn good_request(stream: &[u8]) -> Request {
    match respond(stream) {
        Ok(ResponderStep::Request { request, consumed }) if consumed == stream.len() => request,
        other => panic!("a good Request, not {other:?}"),
    }
}

#[test]
fn requests_are_encoded_as_the_vectors_say() {
    assert_eq!(encode_request(CRC, b"").unwrap()[..], request("40 01 0000")); // MPA-1
    assert_eq!(
        encode_request(NO_CRC, b"").unwrap()[..],
        request("00 01 0000")
    ); // MPA-3
    assert_eq!(
        encode_request(CRC, b"hello").unwrap()[..],
        request("40 01 0005 68656c6c6f")
    ); // MPA-4
}

#[test]
fn largest_private_data_makes_a_frame_of_532_bytes() {
    let frame = encode_request(CRC, &counting(512)).unwrap();
    assert_eq!(frame.len(), MAX_STARTUP_FRAME);
    assert_eq!(frame[..20], request("40 01 0200"));
    assert_eq!(good_request(&frame).private_data[..], counting(512));
    let too_long = PrivateDataTooLong {
        len: 513,
        limit: 512,
    };
    assert_eq!(encode_request(CRC, &counting(513)), Err(too_long));
}

#[test]
fn requests_are_read_as_the_vectors_say() {
    let plain = good_request(&request("40 01 0000"));
    assert_eq!(
        plain,
        Request {
            private_data: [].into_iter().collect(),
            crc: true,
            markers: false,
            revision: 1,
            enhanced: None,
        }
    );
    assert!(!good_request(&request("00 01 0000")).crc);
    assert_eq!(
        good_request(&request("40 01 0005 68656c6c6f")).private_data[..],
        *b"hello"
    );
}

#[test]
fn reject_and_reserved_bits_of_a_request_are_not_read() {
    assert!(good_request(&request("7f 01 0000")).crc); // MPA-OK1
}

#[test]
fn replies_are_encoded_as_the_vectors_say() {
    let responder = Responder::new(CRC);
    let request = good_request(&request("40 01 0000"));
    let (accepting, negotiated) = responder.accept(&request, b"").unwrap();
    assert_eq!(accepting[..], reply("40 01 0000")); // MPA-5
    assert_eq!(negotiated, PLAIN);
    assert_eq!(
        responder.reject(&request, b"no").unwrap()[..],
        reply("60 01 0002 6e6f")
    ); // MPA-7
    assert!(responder.accept(&request, &counting(513)).is_err());
    assert!(responder.reject(&request, &counting(513)).is_err());
}

#[test]
fn one_wish_for_crc_is_enough_and_the_reply_tells_it() {
    for (request_bits, ours, crc, reply_bits) in [
        ("40", CRC, true, "40"),
        ("40", NO_CRC, true, "40"),
        ("00", CRC, true, "40"),
        ("00", NO_CRC, false, "00"),
    ] {
        let wanted = good_request(&request(&format!("{request_bits} 01 0000")));
        let (frame, negotiated) = Responder::new(ours).accept(&wanted, b"").unwrap();
        assert_eq!(frame[..], reply(&format!("{reply_bits} 01 0000")));
        assert_eq!(negotiated.crc, crc);
    }
    for (ours, bits, crc) in [
        (CRC, "00", true),
        (NO_CRC, "40", true),
        (NO_CRC, "00", false),
    ] {
        let step = Initiator::new(ours).on_bytes(&reply(&format!("{bits} 01 0000")));
        let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
            panic!("accepted, not {step:?}")
        };
        assert_eq!(negotiated.crc, crc);
    }
}

#[test]
fn accepting_reply_leaves_the_bytes_after_it_in_the_stream() {
    let stream = [reply("40 01 0002 6f6b"), hex("000e c140")].concat();
    let expected = InitiatorStep::Accepted {
        negotiated: PLAIN,
        private_data: b"ok".iter().copied().collect(),
        consumed: 22,
    };
    assert_eq!(initiate(&stream), Ok(expected));
}

#[test]
fn rejecting_reply_hands_up_its_private_data() {
    let expected = InitiatorStep::Rejected {
        private_data: b"no".iter().copied().collect(),
        enhanced: None,
        consumed: 22,
    };
    assert_eq!(initiate(&reply("60 01 0002 6e6f")), Ok(expected.clone()));
    // A siw that was asked for markers rejects with M set or cleared: both are rejections.
    assert_eq!(initiate(&reply("e0 01 0002 6e6f")), Ok(expected));
}

#[test]
fn every_proper_prefix_of_a_frame_needs_the_head_and_then_the_whole() {
    let wanted = request("40 01 0005 68656c6c6f");
    let answer = reply("40 01 0005 68656c6c6f");
    for have in 0..25 {
        let total = if have < 20 { 20 } else { 25 };
        assert_eq!(
            respond(&wanted[..have]),
            Ok(ResponderStep::NeedBytes(total))
        );
        assert_eq!(
            initiate(&answer[..have]),
            Ok(InitiatorStep::NeedBytes(total))
        );
    }
}

#[test]
fn key_is_refused_at_its_first_wrong_byte() {
    assert_eq!(
        respond(&hex("6d504120494420526571204672616d6540010000")),
        Err(StartupError::NotMpa)
    ); // MPA-B1
    assert_eq!(
        respond(&hex("4d504120494420526571204672616d4540010000")),
        Err(StartupError::NotMpa)
    ); // MPA-B2
    assert_eq!(initiate(b"H"), Err(StartupError::NotMpa));
    assert_eq!(
        initiate(b"HTTP/1.1 400 Bad Request\r\n"),
        Err(StartupError::NotMpa)
    );
    assert_eq!(respond(b"MPX"), Err(StartupError::NotMpa));
}

#[test]
fn any_wrong_key_byte_is_refused() {
    let good = request("40 01 0000");
    for at in 0..16 {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        assert_eq!(respond(&bad), Err(StartupError::NotMpa), "byte {at}");
    }
}

#[test]
fn same_role_on_both_sides_is_detected() {
    assert_eq!(respond(&reply("40 01 0000")), Err(StartupError::WrongRole)); // MPA-B3
    assert_eq!(
        initiate(&request("40 01 0000")),
        Err(StartupError::WrongRole)
    ); // MPA-B4
    assert_eq!(initiate(b"MPA ID Re"), Ok(InitiatorStep::NeedBytes(20)));
    assert_eq!(initiate(b"MPA ID Req"), Err(StartupError::WrongRole));
}

#[test]
fn too_much_private_data_is_refused_before_it_arrives() {
    assert_eq!(
        respond(&request("40 01 0201")),
        Err(StartupError::PrivateDataLength(513))
    ); // MPA-B5
    assert_eq!(
        respond(&request("40 01 ffff")),
        Err(StartupError::PrivateDataLength(65535))
    ); // MPA-B6
    assert_eq!(
        initiate(&reply("40 01 0201")),
        Err(StartupError::PrivateDataLength(513))
    );
}

#[test]
fn truncated_private_data_is_waited_for() {
    assert_eq!(
        respond(&request("40 01 0008 616263")),
        Ok(ResponderStep::NeedBytes(28))
    ); // MPA-B7, before its FIN
}

#[test]
fn unknown_revisions_are_refused() {
    for (rest, revision) in [
        ("40 03 0000", 3),   // MPA-B9
        ("40 ff 0000", 255), // MPA-B10
        ("c0 00 0000", 0),   // MPA-20: RDMAC
    ] {
        let refused = Err(StartupError::Revision(revision));
        assert_eq!(respond(&request(rest)), refused);
        assert_eq!(
            initiate(&reply(rest)).map(|_| ()),
            refused.map(|_: ResponderStep| ())
        );
    }
    for rest in ["40 02 0000", "50 02 0004 0010 0008"] {
        let step = Responder::new(REVISION_1).on_bytes(&request(rest));
        // MPA-8, MPA-9 at a responder of revision 1
        assert_eq!(step, Err(StartupError::Revision(2)));
        // not what our Request asked for
        assert_eq!(initiate(&reply(rest)), Err(StartupError::Revision(2)));
    }
}

#[test]
fn rdma_consortium_is_spoken_to_in_permissive_mode_only() {
    let step = Responder::new(RDMAC).on_bytes(&request("c0 00 0000")); // MPA-20
    let Ok(ResponderStep::Request { request, .. }) = step else {
        panic!("a good Request, not {step:?}")
    };
    let (frame, negotiated) = Responder::new(RDMAC).accept(&request, b"").unwrap();
    assert_eq!(frame[..], reply("c0 00 0000")); // MPA-21
    let expected = Negotiated {
        crc: true,
        send_markers: true,
        receive_markers: true,
        revision: 0,
        version: 0,
        enhanced: None,
    };
    assert_eq!(negotiated, expected);
    let step = Initiator::new(RDMAC).on_bytes(&frame);
    let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
        panic!("accepted, not {step:?}")
    };
    assert_eq!(negotiated, expected);
}

#[test]
fn bytes_after_the_request_are_refused() {
    assert_eq!(
        respond(&request("40 01 0000 00")),
        Err(StartupError::Trailing(1))
    ); // MPA-B11
}

#[test]
fn markers_are_agreed_per_direction() {
    for (ours, theirs, own_byte, peer_byte) in [
        (false, false, "40", "40"),
        (false, true, "40", "c0"), // MPA-2, MPA-6
        (true, false, "c0", "40"),
        (true, true, "c0", "c0"),
    ] {
        let params = if ours { MARKERS } else { CRC };
        let expected = Negotiated {
            send_markers: theirs,
            receive_markers: ours,
            ..PLAIN
        };
        let own = |frame: &str| hex(&format!("{frame}{own_byte} 01 0000"));
        assert_eq!(encode_request(params, b"").unwrap()[..], own(REQ));
        let step = Initiator::new(params).on_bytes(&reply(&format!("{peer_byte} 01 0000")));
        let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
            panic!("accepted, not {step:?}")
        };
        assert_eq!(negotiated, expected);
        let asked = good_request(&request(&format!("{peer_byte} 01 0000")));
        assert_eq!(asked.markers, theirs);
        let (frame, negotiated) = Responder::new(params).accept(&asked, b"").unwrap();
        assert_eq!((frame[..].to_vec(), negotiated), (own(REP), expected));
    }
}

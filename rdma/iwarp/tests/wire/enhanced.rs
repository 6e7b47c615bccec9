//! Start-up of revision 2: MPA-8 to MPA-19 of vectors.md, and the negotiation of its §11.

use crate::support::{counting, hex};
use proptest::prelude::*;
use xwarp_iwarp::mpa::{
    Depth, Enhanced, EnhancedData, InitiatorStep, NegotiatedEnhanced, PrivateDataTooLong, Request,
    ResponderStep, Revision, Rtr, RtrTypes, encode_request,
};
use xwarp_iwarp::{Initiator, Responder, StartupError, StartupParams, Terminate};

use Depth::{Count, LeftToUlp};

/// Key, flags and revision of an enhanced Request with CRC; its Reply differs in byte 9.
const REQ: &str = "4d504120494420526571204672616d65 50 02";
const REP: &str = "4d504120494420526570204672616d65 50 02";

fn params(enhanced: Enhanced) -> StartupParams {
    StartupParams {
        enhanced: Some(enhanced),
        ..StartupParams::DEFAULT
    }
}

/// Peer-to-peer with these RTR types.
fn p2p(ird: u16, ord: u16, rtr: RtrTypes) -> Enhanced {
    Enhanced {
        peer_to_peer: true,
        rtr,
        ..Enhanced::with_depths(ird, ord)
    }
}

fn request_of(enhanced: Enhanced) -> Vec<u8> {
    encode_request(params(enhanced), b"").unwrap().to_vec()
}

fn read_request(frame: &[u8]) -> Request {
    match Responder::new(StartupParams::DEFAULT).on_bytes(frame) {
        Ok(ResponderStep::Request { request, consumed }) if consumed == frame.len() => request,
        other => panic!("a good Request, not {other:?}"),
    }
}

/// The Reply of this responder to a Request with these enhanced bytes, and its result.
fn answer(own: Enhanced, asked: &str) -> (Vec<u8>, NegotiatedEnhanced) {
    let request = read_request(&hex(&format!("{REQ} 0004 {asked}")));
    let (frame, negotiated) = Responder::new(params(own)).accept(&request, b"").unwrap();
    assert_eq!(negotiated.revision, 2);
    (frame.to_vec(), negotiated.enhanced.expect("enhanced"))
}

/// Result of this initiator for a Reply with these enhanced bytes.
fn settle(own: Enhanced, reply: &str) -> Result<NegotiatedEnhanced, StartupError> {
    let frame = hex(&format!("{REP} 0004 {reply}"));
    match Initiator::new(params(own)).on_bytes(&frame)? {
        InitiatorStep::Accepted { negotiated, .. } => Ok(negotiated.enhanced.expect("enhanced")),
        InitiatorStep::Unacceptable { error, .. } => Err(error),
        other => panic!("an answer, not {other:?}"),
    }
}

#[test]
fn requests_are_built_as_the_vectors_say() {
    let write_read = RtrTypes::only(Rtr::Write).with(Rtr::Read);
    for (enhanced, bytes) in [
        (Enhanced::with_depths(16, 8), "0010 0008"), // MPA-9
        (p2p(32, 16, write_read), "8020 c010"),      // MPA-11
        (p2p(1, 1, RtrTypes::only(Rtr::Send)), "c001 0001"), // MPA-14
        (Enhanced::LEFT_TO_ULP, "3fff 3fff"),        // MPA-16
        (p2p(4, 0, RtrTypes::only(Rtr::Read)), "8004 4000"), // N4
        (p2p(0x3ffe, 0xffff, RtrTypes::NONE), "fffe fffe"), // none is all; counts have 14 bits
    ] {
        let frame = hex(&format!("{REQ} 0004 {bytes}"));
        assert_eq!(request_of(enhanced), frame, "{bytes}");
        assert_eq!(
            read_request(&frame)
                .enhanced
                .is_some_and(|data| data.rtr.is_some()),
            enhanced.peer_to_peer
        );
    }
}

#[test]
fn private_data_follows_the_enhanced_data() {
    let own = params(p2p(4, 4, RtrTypes::only(Rtr::Write).with(Rtr::Read)));
    let frame = hex(&format!("{REQ} 0007 8004 c004 616263")); // MPA-18
    assert_eq!(encode_request(own, b"abc").unwrap()[..], frame);
    assert_eq!(read_request(&frame).private_data[..], *b"abc");
    let largest = encode_request(own, &counting(508)).unwrap();
    assert_eq!((largest.len(), &largest[18..20]), (532, &hex("0200")[..]));
    assert_eq!(read_request(&largest).private_data[..], counting(508));
    let too_long = PrivateDataTooLong {
        len: 509,
        limit: 508,
    };
    assert_eq!(encode_request(own, &counting(509)), Err(too_long));
}

#[test]
fn request_of_revision_2_without_enhanced_data_is_answered_likewise() {
    let head = "4d504120494420526571204672616d65";
    for flags in ["40", "4f"] {
        let request = read_request(&hex(&format!("{head} {flags} 02 0000"))); // MPA-8, MPA-OK2
        assert_eq!((request.revision, request.enhanced), (2, None));
        let (frame, negotiated) = Responder::new(params(Enhanced::with_depths(8, 8)))
            .accept(&request, b"")
            .unwrap();
        assert_eq!(
            frame[..],
            hex("4d504120494420526570204672616d65 40 02 0000")
        ); // D2
        assert_eq!(negotiated.enhanced, None);
    }
}

#[test]
fn revision_1_has_no_enhanced_data_whatever_its_reserved_bits() {
    let request = read_request(&hex(
        "4d504120494420526571204672616d65 50 01 0008 0010 0008 61626364",
    ));
    assert_eq!((request.revision, request.enhanced), (1, None));
    assert_eq!(request.private_data[..], hex("0010 0008 61626364"));
}

#[test]
fn reserved_bit_of_siw_is_not_read() {
    let request = read_request(&hex(
        "4d504120494420526571204672616d65 58 02 0004 0001 0001",
    )); // MPA-OK3
    let expected = EnhancedData {
        ird: Count(1),
        ord: Count(1),
        rtr: None,
    };
    assert_eq!(request.enhanced, Some(expected));
}

#[test]
fn enhanced_data_that_is_not_there_is_refused_on_the_head() {
    for length in 0..4 {
        let head = format!("50 02 000{length}");
        let frame = hex(&format!("4d504120494420526571204672616d65 {head}"));
        let refused = StartupError::EnhancedLength(length);
        assert_eq!(
            Responder::new(StartupParams::DEFAULT).on_bytes(&frame),
            Err(refused)
        ); // MPA-B8
        let frame = hex(&format!("4d504120494420526570204672616d65 {head}"));
        let initiator = Initiator::new(params(Enhanced::with_depths(1, 1)));
        assert_eq!(initiator.on_bytes(&frame), Err(refused));
    }
}

#[test]
fn flags_b_c_and_d_mean_nothing_without_a() {
    let request = read_request(&hex(&format!("{REQ} 0004 4010 c008")));
    let expected = EnhancedData {
        ird: Count(16),
        ord: Count(8),
        rtr: None,
    };
    assert_eq!(request.enhanced, Some(expected));
    let (frame, settled) = answer(Enhanced::with_depths(8, 8), "4010 c008");
    assert_eq!(frame[20..], hex("0008 0008"));
    assert!(!settled.await_rtr);
}

/// N1 to N4 and N8 to N11, the responder's half: (max IRD, requested ORD), Request, Reply, (ORD,
/// IRD).
#[test]
fn responder_settles_the_depths_of_section_11() {
    for (name, (max_ird, ord), asked, reply, settled) in [
        (
            "N1, MPA-10",
            (32, 16),
            "0010 0008",
            "0008 0010",
            (Some(16), Some(8)),
        ),
        ("N2", (32, 16), "0004 0004", "0004 0004", (Some(4), Some(4))),
        ("N3", (8, 4), "0004 0020", "0008 0004", (Some(4), Some(8))),
        ("N4", (8, 8), "8004 4000", "c001 c004", (Some(4), Some(1))),
        (
            "N8, MPA-17",
            (32, 16),
            "3fff 3fff",
            "3fff 3fff",
            (None, None),
        ),
        ("N9", (32, 16), "0008 3fff", "3fff 0008", (Some(8), None)),
        ("N10", (32, 16), "3fff 0008", "0008 3fff", (None, Some(8))),
        ("N11", (32, 4), "0000 0000", "0000 0000", (Some(0), Some(0))),
    ] {
        let (frame, result) = answer(Enhanced::with_depths(max_ird, ord), asked);
        assert_eq!(frame, hex(&format!("{REP} 0004 {reply}")), "{name}");
        assert_eq!((result.ord, result.ird), settled, "{name}");
    }
}

/// The initiator's half: its (IRD, ORD), its IRD limit, Reply, its final (ORD, IRD).
#[test]
fn initiator_settles_the_depths_of_section_11() {
    #[rustfmt::skip]
    let cases = [
        ("N1", (Count(16), Count(8)), 16, "0008 0010", (Some(8), Some(16))),
        ("N2", (Count(4), Count(4)), 4, "0004 0004", (Some(4), Some(4))),
        ("N3", (Count(4), Count(32)), 4, "0008 0004", (Some(8), Some(4))),
        ("N6", (Count(2), Count(2)), 16, "0002 0008", (Some(2), Some(8))),
        ("N8", (LeftToUlp, LeftToUlp), 16, "3fff 3fff", (None, None)),
        ("N9", (Count(8), LeftToUlp), 8, "3fff 0008", (None, Some(8))),
        ("N10", (LeftToUlp, Count(8)), 8, "0008 3fff", (Some(8), None)),
        ("N11", (Count(0), Count(0)), 0, "0000 0000", (Some(0), Some(0))),
    ];
    for (name, (ird, ord), max_ird, reply, settled) in cases {
        let own = Enhanced {
            ird,
            ord,
            max_ird,
            ..Enhanced::LEFT_TO_ULP
        };
        let result = settle(own, reply).expect(name);
        assert_eq!((result.ord, result.ird), settled, "{name}");
        assert_eq!(result.send_rtr, None);
    }
    // N4: the only RTR is a Read, which needs a credit
    let own = p2p(4, 0, RtrTypes::only(Rtr::Read));
    let result = settle(own, "c001 c004").expect("N4");
    assert_eq!(
        (result.ord, result.ird, result.send_rtr),
        (Some(1), Some(4), Some(Rtr::Read))
    );
}

/// N5
#[test]
fn demand_for_more_ird_than_there_is_is_2_0_06() {
    let own = Enhanced {
        max_ird: 4,
        ..Enhanced::with_depths(2, 2)
    };
    let error = settle(own, "0002 0008").expect_err("an ORD of 8");
    assert_eq!(
        error,
        StartupError::InsufficientIrd {
            demanded: 8,
            limit: 4
        }
    );
    let terminate = Terminate::with_code(error.term_code().expect("a Terminate code"));
    assert_eq!(terminate.ulpdu()[18..], hex("20060000"));
}

/// N7
#[test]
fn reject_tells_the_ord_that_would_be_needed() {
    let responder = Responder::new(params(Enhanced::with_depths(32, 8)));
    let request = read_request(&hex(&format!("{REQ} 0004 0002 0002")));
    let frame = responder.reject_for_ord(&request, 8, b"").unwrap();
    assert_eq!(
        frame[..],
        hex("4d504120494420526570204672616d65 70 02 0004 0002 0008")
    );
    let step = Initiator::new(params(Enhanced::with_depths(2, 2))).on_bytes(&frame);
    let expected = InitiatorStep::Rejected {
        private_data: [].into_iter().collect(),
        enhanced: Some(EnhancedData {
            ird: Count(2),
            ord: Count(8),
            rtr: None,
        }),
        consumed: 24,
    };
    assert_eq!(step, Ok(expected));
    // MPA-19: with A=1 and Read as the responder's RTR
    let own = Enhanced {
        rtr: RtrTypes::only(Rtr::Read),
        ..Enhanced::with_depths(4, 4)
    };
    let request = read_request(&hex(&format!("{REQ} 0004 8004 4004")));
    let frame = Responder::new(params(own))
        .reject_for_ord(&request, 8, b"")
        .unwrap();
    assert_eq!(
        frame[..],
        hex("4d504120494420526570204672616d65 70 02 0004 8004 4008")
    );
    let frame = Responder::new(params(own)).reject(&request, b"no").unwrap();
    assert_eq!(frame[16..], hex("70 02 0006 8004 4004 6e6f"));
}

#[test]
fn responder_copies_a_and_tells_its_rtr_types() {
    let own = |rtr| Enhanced {
        rtr,
        ..Enhanced::with_depths(16, 32)
    };
    for (rtr, asked, reply) in [
        (RtrTypes::only(Rtr::Read), "8020 c010", "8010 4020"), // MPA-12
        (RtrTypes::only(Rtr::Write), "8020 c010", "8010 8020"), // MPA-13
        (RtrTypes::ALL, "c001 0001", "c001 c001"),             // MPA-15
        // no type in common: its own all the same
        (RtrTypes::only(Rtr::Write), "c001 0001", "8001 8001"),
        (RtrTypes::ALL, "8001 0001", "c001 c001"), // A=1 without any type (row 15)
        (RtrTypes::ALL, "0001 0001", "0001 0001"),
    ] {
        let (frame, settled) = answer(own(rtr), asked);
        assert_eq!(frame[20..], hex(reply), "{asked}");
        assert_eq!(settled.await_rtr, asked.starts_with(['8', 'c']));
    }
}

#[test]
fn initiator_chooses_the_rtr_from_the_reply() {
    let write_read = RtrTypes::only(Rtr::Write).with(Rtr::Read);
    for (own, reply, chosen) in [
        (write_read, "8010 4020", Ok(Some(Rtr::Read))),
        (write_read, "8010 8020", Ok(Some(Rtr::Write))),
        (write_read, "8010 c020", Ok(Some(Rtr::Write))),
        (RtrTypes::only(Rtr::Send), "c010 c020", Ok(Some(Rtr::Send))),
        (
            RtrTypes::only(Rtr::Send),
            "8010 c020",
            Err(StartupError::NoCommonRtr),
        ),
        (write_read, "c010 0020", Err(StartupError::NoCommonRtr)),
        (write_read, "0010 0020", Err(StartupError::NoCommonRtr)), // A=0
        (
            RtrTypes::only(Rtr::Read),
            "8000 4020",
            Err(StartupError::NoCommonRtr),
        ), // no credit for it
    ] {
        let result = settle(p2p(32, 16, own), reply);
        assert_eq!(result.map(|settled| settled.send_rtr), chosen, "{reply}");
    }
    let code = StartupError::NoCommonRtr
        .term_code()
        .expect("a Terminate code");
    let terminate = Terminate::with_code(code);
    assert_eq!(terminate.ulpdu()[18..], hex("20070000"));
    let optional = Enhanced {
        required: false,
        ..p2p(32, 16, write_read)
    };
    assert_eq!(
        settle(optional, "0010 0020").map(|settled| settled.send_rtr),
        Ok(None)
    );
}

#[test]
fn unenhanced_reply_is_accepted_only_if_nothing_enhanced_is_required() {
    let own = Enhanced::with_depths(4, 4);
    let optional = Enhanced {
        required: false,
        ..own
    };
    for rest in ["40 01 0000", "40 02 0000"] {
        let frame = hex(&format!("4d504120494420526570204672616d65 {rest}"));
        assert_eq!(
            Initiator::new(params(own)).on_bytes(&frame),
            Err(StartupError::NotEnhanced)
        ); // D10
        let step = Initiator::new(params(optional)).on_bytes(&frame);
        let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
            panic!("accepted, not {step:?}")
        };
        assert_eq!(negotiated.enhanced, None);
    }
    assert_eq!(StartupError::NotEnhanced.term_code(), None);
}

#[test]
fn retry_of_revision_1_follows_a_close_if_nothing_enhanced_is_required() {
    let own = Enhanced::with_depths(4, 4);
    assert_eq!(Initiator::new(params(own)).retry(), None);
    // it was of revision 1 already
    assert_eq!(Initiator::new(StartupParams::DEFAULT).retry(), None);
    let optional = params(Enhanced {
        required: false,
        ..own
    });
    let again = Initiator::new(optional).retry().expect("once more");
    assert_eq!(encode_request(again, b"").unwrap()[16..], hex("40 01 0000"));
    assert_eq!(Initiator::new(again).retry(), None);
}

#[test]
fn side_of_revision_1_does_not_ask_for_enhanced_start_up() {
    let own = StartupParams {
        max_revision: Revision::One,
        ..params(Enhanced::with_depths(4, 4))
    };
    assert_eq!(encode_request(own, b"").unwrap()[16..], hex("40 01 0000"));
}

proptest! {
    /// R6581-9.1-1
    #[test]
    fn neither_side_may_issue_more_than_the_other_serves(
        i_ird in 0u16..0x3fff, i_ord in 0u16..0x3fff, r_ird in 0u16..0x3fff, r_ord in 0u16..0x3fff,
    ) {
        let own = Enhanced::with_depths(i_ird, i_ord);
        let request = read_request(&request_of(own));
        let responder = Responder::new(params(Enhanced::with_depths(r_ird, r_ord)));
        let (frame, theirs) = responder.accept(&request, b"").unwrap();
        let step = Initiator::new(params(own)).on_bytes(&frame);
        let Ok(InitiatorStep::Accepted { negotiated: ours, .. }) = step else {
            panic!("accepted, not {step:?}")
        };
        let (ours, theirs) = (ours.enhanced.unwrap(), theirs.enhanced.unwrap());
        prop_assert!(ours.ord <= theirs.ird);
        prop_assert!(theirs.ord <= ours.ird);
        prop_assert_eq!(theirs.peer, EnhancedData { ird: Count(i_ird), ord: Count(i_ord), rtr: None });
    }

    #[test]
    fn any_enhanced_bytes_are_read_and_answered(bytes: [u8; 4], reply: bool) {
        let key = if reply { REP } else { REQ };
        let frame = [hex(&format!("{key} 0004")), bytes.to_vec()].concat();
        let own = params(p2p(4, 4, RtrTypes::ALL));
        if reply {
            prop_assert!(Initiator::new(own).on_bytes(&frame).is_ok());
        } else {
            let (answer, negotiated) = Responder::new(own).accept(&read_request(&frame), b"").unwrap();
            prop_assert_eq!(answer[20] & 0x80, bytes[0] & 0x80);
            prop_assert_eq!(negotiated.enhanced.unwrap().await_rtr, bytes[0] & 0x80 != 0);
        }
    }
}

//! Request and Reply Frames (RFC 5044 §7.1, RFC 6581 §6, §9).

use super::{reply, request};
use crate::support::counting;
use xwarp_iwarp::mpa::{
    Enhanced, InitiatorStep, Request, ResponderStep, Rtr, RtrTypes, encode_request,
};
use xwarp_iwarp::{Initiator, Responder, StartupError, StartupParams};

const DEFAULT: StartupParams = StartupParams::DEFAULT;

fn params(enhanced: Enhanced) -> StartupParams {
    StartupParams {
        enhanced: Some(enhanced),
        ..DEFAULT
    }
}

fn read(frame: &[u8]) -> Request {
    match Responder::new(DEFAULT).on_bytes(frame) {
        Ok(ResponderStep::Request { request, consumed }) if consumed == frame.len() => request,
        other => panic!("a good Request, not {other:?}"),
    }
}

/// R5044-7.1.1-3
#[test]
fn reply_with_any_wrong_key_byte_is_refused() {
    let good = reply("40 01 0000");
    for at in 0..16 {
        for bit in [0x01, 0x20, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            let step = Initiator::new(DEFAULT).on_bytes(&bad);
            // One flipped bit never gives another MPA key, except that "q" and "p" differ in one.
            let expected = if at == 9 && bit == 0x01 {
                StartupError::WrongRole
            } else {
                StartupError::NotMpa
            };
            assert_eq!(step, Err(expected), "byte {at}");
        }
    }
}

/// R5044-7.1.1-11, R6581-6-4, in the other direction.
#[test]
fn reserved_bits_of_a_reply_are_not_read() {
    for (own, rest, enhanced) in [
        (DEFAULT, "5f 01 0000", false), // revision 1: S is reserved
        (DEFAULT, "4f 01 0000", false),
        (
            params(Enhanced::with_depths(4, 4)),
            "5f 02 0004 0004 0004",
            true,
        ),
    ] {
        let step = Initiator::new(own).on_bytes(&reply(rest));
        let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
            panic!("accepted, not {step:?}")
        };
        assert!(negotiated.crc && !negotiated.send_markers);
        assert_eq!(negotiated.enhanced.is_some(), enhanced, "{rest}");
    }
}

/// R5044-7.1.1-15, R6581-6-7, -9: in both directions, with enhanced data and without.
#[test]
fn private_data_of_every_length_comes_out_as_it_went_in() {
    let enhanced = params(Enhanced::with_depths(4, 4));
    for (own, limit) in [(DEFAULT, 512), (enhanced, 508)] {
        for len in (0..=limit).filter(|len| *len < 20 || *len > 240) {
            let data = counting(len);
            let asked = read(&encode_request(own, &data).unwrap());
            assert_eq!(asked.private_data[..], data);
            let (frame, _) = Responder::new(own).accept(&asked, &data).unwrap();
            let step = Initiator::new(own).on_bytes(&frame);
            let Ok(InitiatorStep::Accepted {
                private_data,
                consumed,
                ..
            }) = step
            else {
                panic!("accepted, not {step:?}")
            };
            assert_eq!((&private_data[..], consumed), (&data[..], frame.len()));
            let frame = Responder::new(own).reject(&asked, &data).unwrap();
            let step = Initiator::new(own).on_bytes(&frame);
            let Ok(InitiatorStep::Rejected { private_data, .. }) = step else {
                panic!("rejected, not {step:?}")
            };
            assert_eq!(private_data[..], data);
        }
    }
}

/// R6581-9.2-4: every configuration of a responder supports an RTR type.
#[test]
fn responder_that_is_given_no_rtr_type_offers_them_all() {
    for (rtr, offered) in [
        (RtrTypes::NONE, 0xc000_c000_u32),
        (RtrTypes::only(Rtr::Send), 0xc000_0000),
        (RtrTypes::only(Rtr::Write), 0x8000_8000),
        (RtrTypes::only(Rtr::Read), 0x8000_4000),
    ] {
        let own = params(Enhanced {
            rtr,
            ..Enhanced::with_depths(4, 4)
        });
        let asked = read(&request("50 02 0004 8001 4001"));
        let (frame, settled) = Responder::new(own).accept(&asked, b"").unwrap();
        let bits = u32::from_be_bytes(frame[20..24].try_into().unwrap()) & 0xc000_c000;
        assert_eq!(bits, offered, "{rtr:?}");
        assert!(settled.enhanced.is_some_and(|settled| settled.await_rtr));
    }
}

//! FPDUs that must not be, one by one, and the Terminate for each (wire.md §9).

use xwarp::QpConfig;
use xwarp::error::TermCode;
use xwarp_sim_tests::wire::{Tagged, Untagged, fpdu, read_request};
use xwarp_tcp::CloseReason;
use xwarp_test_kit::hex;

use super::Dut;

const REFUSED: &[&str] = &["drop_refused_segment"];
const BAD_FPDU: &[&str] = &["drop_bad_fpdu", "drop_after_failure"];

/// Vectors of an independent encoder: the offending FPDU, and the whole Terminate that must come
/// back.
#[rustfmt::skip]
const VECTORS: [(&str, &str); 12] = [
    // T-1: Write to unknown STag.
    (
        "0012c140badbad000000000000000000000102030c38b614",
        "00264147000000000000000200000001000000001100c0000012c140badbad0000000000000000005654335f",
    ),
    // T-5: tagged, DV 0.
    (
        "0012c04011223344000000000000100000010203b135bfc8",
        "00264147000000000000000200000001000000001104c0000012c0401122334400000000000010008d7c74ba",
    ),
    // T-6: QN 4.
    (
        "0016414300000000000000040000000100000000000102037795fe1a",
        "002a4147000000000000000200000001000000001201c000001641430000000000000004000000010000000007b9a595",
    ),
    // T-7: Send without a posted receive.
    (
        "001641430000000000000000000000010000000000010203e374b6d9",
        "002a4147000000000000000200000001000000001202c00000164143000000000000000000000001000000007c6b1ed5",
    ),
    // T-8: Send with MSN 5.
    (
        "001641430000000000000000000000050000000000010203d0b67907",
        "002a4147000000000000000200000001000000001203c0000016414300000000000000000000000500000000f4258840",
    ),
    // T-11: untagged, DV 2.
    (
        "0016424300000000000000000000000100000000000102033f47883d",
        "002a4147000000000000000200000001000000001206c000001642430000000000000000000000010000000010db0616",
    ),
    // T-12: RDMAP version 0.
    (
        "001641030000000000000000000000010000000000010203b0941d95",
        "002a4147000000000000000200000001000000000205c000001641030000000000000000000000010000000059f117a2",
    ),
    // T-13: opcode C.
    (
        "0016414c000000000000000000000001000000000001020308ead292",
        "002a4147000000000000000200000001000000000206c0000016414c0000000000000000000000010000000060b5baec",
    ),
    // T-14: Read Request, unknown source STag.
    (
        "002e41410000000000000001000000010000000055667788000000000000200000001000badbad000000000000000000a5a44693",
        "00464147000000000000000200000001000000000100e000002e41410000000000000001000000010000000055667788000000000000200000001000badbad0000000000000000005cb5cb8a",
    ),
    // T-26: Read Request without L.
    (
        "002e01410000000000000001000000010000000055667788000000000000200000000010112233440000000000001000c0f7d3c6",
        "002a4147000000000000000200000001000000000207c000002e014100000000000000010000000100000000cacd0961",
    ),
    // T-27: 10 bytes with T=1.
    (
        "000ac1401122334400000000b5429277",
        "001641470000000000000002000000010000000010000000c4130bf4",
    ),
    // T-29: tagged with a Send's opcode.
    (
        "0012c143112233440000000000001000000102037b53fb27",
        "00264147000000000000000200000001000000000206c0000012c1431122334400000000000010005f7650eb",
    ),
];

#[test]
fn each_fault_is_answered_by_its_terminate_to_the_byte() {
    for (offending, expected) in VECTORS {
        let mut dut = Dut::new().expecting(REFUSED);
        dut.peer.send(&hex(offending));
        dut.sim.run_until("the RNIC's FIN", || dut.peer.saw_fin());
        assert_eq!(dut.answer(), hex(expected), "to {offending}");
        dut.peer.close();
        dut.sim.run_until_idle();
        assert_eq!(dut.peer.ended(), Some(CloseReason::Graceful), "{offending}");
        assert_eq!(dut.end.host().drops()["drop_refused_segment"], 1);
    }
}

#[test]
fn read_request_where_none_is_offered_names_no_such_queue() {
    let config = QpConfig::default().ird(0);
    let mut dut = Dut::with(&config).expecting(REFUSED);
    // T-28.
    let request = "002e4141000000000000000100000001000000005566778800000000000020000000001011223344000000000000100050e30c9c";
    let captured = dut.assert_terminates("IRD 0", &hex(request), TermCode::ddp_untagged(1));
    assert_eq!(
        captured,
        hex("c000002e414100000000000000010000000100000000")
    );
}

#[test]
fn headers_that_must_not_be_are_refused_with_their_code() {
    let send = Untagged::default();
    let read = Untagged::read_request();
    let payload = [0, 1, 2, 3];
    #[rustfmt::skip]
    let cases: [(&str, Vec<u8>, TermCode); 17] = [
        ("RV 2", Untagged { rdmap: 0x83, ..send }.fpdu(&payload), TermCode::rdmap_operation(5)),
        ("RV 3", Untagged { rdmap: 0xc3, ..send }.fpdu(&payload), TermCode::rdmap_operation(5)),
        ("DV 0 and RV 0", Untagged { control: 0x40, rdmap: 0x03, ..send }.fpdu(&payload), TermCode::ddp_untagged(6)),
        ("opcode D", Untagged { rdmap: 0x4d, ..send }.fpdu(&payload), TermCode::rdmap_operation(6)),
        ("opcode E", Untagged { rdmap: 0x4e, ..send }.fpdu(&payload), TermCode::rdmap_operation(6)),
        ("opcode F", Untagged { rdmap: 0x4f, ..send }.fpdu(&payload), TermCode::rdmap_operation(6)),
        ("untagged Write", Untagged { rdmap: 0x40, ..send }.fpdu(&payload), TermCode::rdmap_operation(6)),
        ("untagged Read Response", Untagged { rdmap: 0x42, ..send }.fpdu(&payload), TermCode::rdmap_operation(6)),
        ("Send on QN 1", Untagged { qn: 1, ..send }.fpdu(&payload), TermCode::rdmap_operation(6)),
        ("Send on QN 2", Untagged { qn: 2, ..send }.fpdu(&payload), TermCode::rdmap_operation(6)),
        ("the last QN", Untagged { qn: u32::MAX, ..send }.fpdu(&payload), TermCode::ddp_untagged(1)),
        ("Read Request on QN 0", Untagged { qn: 0, ..read }.fpdu(&[0; 28]), TermCode::rdmap_operation(6)),
        ("MSN 0", Untagged { msn: 0, ..send }.fpdu(&payload), TermCode::ddp_untagged(3)),
        ("MSN 2 of Reads", Untagged { msn: 2, ..read }.fpdu(&[0; 28]), TermCode::ddp_untagged(3)),
        ("MO 4", Untagged { mo: 4, ..send }.fpdu(&payload), TermCode::ddp_untagged(4)),
        ("27 bytes of Read Request", read.fpdu(&[0; 27]), TermCode::ddp_local()),
        ("29 bytes of Read Request", read.fpdu(&[0; 29]), TermCode::ddp_untagged(5)),
    ];
    for (what, offending, code) in cases {
        let mut dut = Dut::new().expecting(REFUSED);
        dut.end.post_recv(1, 100);
        dut.assert_terminates(what, &offending, code);
    }
}

#[test]
fn messages_of_rfc_7306_are_refused_where_it_is_not_enabled() {
    let send = Untagged::default();
    #[rustfmt::skip]
    let cases = [
        ("row 55: Immediate Data", Untagged { rdmap: 0x48, ..send }.fpdu(&[0; 8]), TermCode::rdmap_operation(6)),
        ("row 55: with event", Untagged { rdmap: 0x49, ..send }.fpdu(&[0; 8]), TermCode::rdmap_operation(6)),
        ("row 55: Atomic Request", Untagged { rdmap: 0x4a, qn: 1, ..send }.fpdu(&[0; 52]), TermCode::rdmap_operation(6)),
        ("row 58: Atomic Response", Untagged { rdmap: 0x4b, qn: 3, ..send }.fpdu(&[0; 12]), TermCode::ddp_untagged(1)),
        ("row 58: QN 3", Untagged { qn: 3, ..send }.fpdu(&[0; 4]), TermCode::ddp_untagged(1)),
    ];
    let config = QpConfig::default().rfc7306(false);
    for (what, offending, code) in cases {
        let mut dut = Dut::with(&config).expecting(REFUSED);
        dut.end.post_recv(1, 100);
        dut.assert_terminates(what, &offending, code);
    }
}

#[test]
fn ulpdu_shorter_than_its_header_is_refused_whatever_it_holds() {
    let shorter_than_tagged = (0..14).map(|len| vec![0xc1; len]);
    let shorter_than_untagged = (1..18).map(|len| vec![0x41; len]);
    for ulpdu in shorter_than_tagged.chain(shorter_than_untagged) {
        let mut dut = Dut::new().expecting(REFUSED);
        let what = format!("{ulpdu:x?}");
        let captured = dut.assert_terminates(&what, &fpdu(&ulpdu), TermCode::ddp_local());
        assert_eq!(captured, [0, 0], "no header is returned");
    }
}

#[test]
fn length_field_beyond_any_ulpdu_is_refused_at_once() {
    for len in [64_769_u16, 65_535] {
        let mut dut = Dut::new().expecting(BAD_FPDU);
        dut.assert_terminates("length field", &len.to_be_bytes(), TermCode::ddp_local());
        assert_eq!(dut.end.host().drops()["drop_bad_fpdu"], 1);
    }
}

#[test]
fn flipped_bit_anywhere_is_a_crc_error() {
    let good = Untagged::default().fpdu(b"24 bytes make no padding,  one more does");
    for at in (16..good.len() * 8).step_by(13) {
        let mut dut = Dut::new().expecting(BAD_FPDU);
        dut.end.post_recv(1, 100);
        let mut bad = good.clone();
        bad[at / 8] ^= 1 << (at % 8);
        let captured = dut.assert_terminates(&format!("bit {at}"), &bad, TermCode::mpa(2));
        assert_eq!(captured, [0, 0]);
        assert_eq!(dut.end.host().drops()["drop_bad_fpdu"], 1);
    }
}

#[test]
fn crc_in_the_wrong_order_is_a_crc_error() {
    let mut bad = Untagged::default().fpdu(b"abcd");
    let crc = bad.len() - 4;
    bad[crc..].reverse();
    let mut dut = Dut::new().expecting(BAD_FPDU);
    dut.assert_terminates("big-endian CRC", &bad, TermCode::mpa(2));
}

#[test]
fn read_responses_that_nobody_asked_for_are_refused() {
    let mut dut = Dut::new().expecting(REFUSED);
    let target = dut.end.target(100);
    let place = target.remote(0);
    let response = Tagged::read_response(place.stag, place.to).fpdu(&[7; 100]);
    dut.assert_terminates(
        "unsolicited Read Response",
        &response,
        TermCode::ddp_tagged(0),
    );
}

#[test]
fn read_responses_other_than_asked_for_are_refused() {
    type Twist = fn(Tagged) -> Vec<u8>;
    #[rustfmt::skip]
    let cases: [(&str, Twist, TermCode); 6] = [
        ("another STag", |r| Tagged { stag: xwarp::Stag(r.stag.0 ^ 0x100), ..r }.fpdu(&[7; 100]), TermCode::ddp_tagged(0)),
        ("a later TO", |r| Tagged { to: r.to + 1, ..r }.fpdu(&[7; 99]), TermCode::ddp_tagged(1)),
        ("an earlier TO", |r| Tagged { to: r.to - 1, ..r }.fpdu(&[7; 100]), TermCode::ddp_tagged(1)),
        ("too long", |r| r.fpdu(&[7; 101]), TermCode::ddp_tagged(1)),
        ("too short", |r| r.fpdu(&[7; 99]), TermCode::ddp_tagged(1)),
        ("nothing", |r| r.fpdu(&[]), TermCode::ddp_tagged(1)),
    ];
    for (what, twist, code) in cases {
        let mut dut = Dut::new().expecting(REFUSED);
        let sink = dut.end.target(100);
        let far = xwarp::RemoteAddress {
            stag: xwarp::Stag(0x100),
            to: 0,
        };
        dut.end.post_read(1, sink.local(0, 100), far);
        dut.sim.run_until_idle();
        assert_eq!(dut.answer().len(), 52, "a Read Request");
        let place = sink.remote(0);
        let response = twist(Tagged::read_response(place.stag, place.to));
        dut.assert_terminates(what, &response, code);
    }
}

#[test]
fn read_of_four_gigabytes_from_a_small_region_costs_nothing() {
    let mut dut = Dut::new().expecting(REFUSED);
    let source = dut.end.region(100, xwarp::Access::all());
    let header = read_request(xwarp::Stag(1), 0, u32::MAX, source.stag(), 0);
    let request = Untagged::read_request().fpdu(&header);
    dut.assert_terminates("4 GiB", &request, TermCode::rdmap_protection(1));
}

#[test]
fn first_fpdu_with_a_bad_crc_ends_the_connection_without_a_word() {
    let mut dut =
        Dut::fenced(xwarp_test_kit::netsim::Seed(29), &QpConfig::default()).expecting(BAD_FPDU);
    let mut bad = Untagged::default().fpdu(b"abcd");
    bad[5] ^= 1;
    dut.peer.send(&bad);
    dut.sim.run_until_idle();
    assert!(
        dut.answer().is_empty(),
        "RFC 5044 section 7.1.2: no FPDU before the first of the peer"
    );
    assert_eq!(dut.peer.ended(), Some(CloseReason::Reset));
    assert_eq!(dut.end.state(), xwarp::QpState::Error);
}

#[test]
fn first_fpdu_that_ddp_refuses_opens_the_fence_for_the_terminate() {
    let mut dut =
        Dut::fenced(xwarp_test_kit::netsim::Seed(29), &QpConfig::default()).expecting(REFUSED);
    let write = Tagged::write(xwarp::Stag(0x0bad_0bad), 0).fpdu(b"abcd");
    dut.assert_terminates("bad STag", &write, TermCode::ddp_tagged(0));
}

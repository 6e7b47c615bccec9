//! Atomic Operations to the byte, and a peer that breaks their rules (RFC 7306 §5.2, §8; wire.md
//! rows 84 and 93 to 99).

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{Access, Opcode, QpConfig, SendRequest, Stag, WrId};
use xwarp_sim_tests::wire::{
    Tagged, Untagged, atomic_request, atomic_response, read_request, ulpdus,
};
use xwarp_sim_tests::{Done, Target};
use xwarp_tcp::CloseReason;
use xwarp_test_kit::{cases, hex};

use super::{holding, number, post_add};
use crate::hostile::Dut;

const REFUSED: &[&str] = &["drop_refused_segment", "drop_after_failure"];
const FETCH_ADD: u32 = 0;

/// The number, and a request to add to it.
fn addition(dut: &Dut, operation: u32, add: u64) -> (Target, Vec<u8>) {
    let target = holding(&dut.end, 42);
    let place = target.remote(0);
    let header = atomic_request(operation, 0xcafe_f00d, place.stag, place.to, add);
    (target, header)
}

/// Vector F-13 of an independent encoder.
#[test]
fn response_is_right_to_the_byte() {
    let mut dut = Dut::new();
    let (target, header) = addition(&dut, FETCH_ADD, 1);
    dut.peer.send(&Untagged::atomic_request().fpdu(&header));
    dut.sim.run_until_idle();
    let expected = "001e414b00000000000000030000000100000000cafef00d000000000000002a00b13b98";
    assert_eq!(dut.answer(), hex(expected));
    assert_eq!(number(&target), 43);
}

#[test]
fn request_is_right_to_the_byte() {
    let mut dut = Dut::new();
    dut.sim.run_until_idle();
    let far = xwarp::RemoteAddress {
        stag: Stag(0x1122_3344),
        to: 0x1008,
    };
    post_add(&mut dut.end, 1, 1, far);
    dut.end.post(SendRequest::compare_swap(
        WrId(2),
        43,
        0x0102_0304_0506_0708,
        far,
    ));
    dut.sim.run_until_idle();
    // F-11 and F-12, but for the MSN and the Request Identifier, which are the first ones.
    let expected = [
        "414a00000000000000010000000100000000\
         0000000000000000112233440000000000001008000000000000000100000000000000000000000000000000ffffffffffffffff",
        "414a00000000000000010000000200000000\
         000000020000000111223344000000000000100801020304050607\
         08ffffffffffffffff000000000000002bffffffffffffffff",
    ];
    assert_eq!(ulpdus(&dut.answer()), expected.map(hex));
}

/// Queue 1 numbers Reads and Atomics together, queue 3 the Atomic Responses alone (R7306-5.2.2-3).
#[test]
fn reads_and_atomics_are_answered_in_the_order_of_their_requests() {
    let mut dut = Dut::new();
    let (target, _) = addition(&dut, FETCH_ADD, 1);
    let place = target.remote(0);
    let mut stream = Vec::new();
    for msn in [1, 2, 3, 4] {
        stream.extend(if msn % 2 == 1 {
            let header = read_request(Stag(1), 0, 8, place.stag, place.to);
            let place = Untagged {
                msn,
                ..Untagged::read_request()
            };
            place.fpdu(&header)
        } else {
            let header = atomic_request(FETCH_ADD, msn, place.stag, place.to, 1);
            let place = Untagged {
                msn,
                ..Untagged::atomic_request()
            };
            place.fpdu(&header)
        });
    }
    dut.peer.send(&stream);
    dut.sim.run_until_idle();
    let read = |found: u64| {
        let header = hex("c142000000010000000000000000");
        [&header[..], &found.to_ne_bytes()[..]].concat()
    };
    let atomic = |msn: u32, id: u32, found: u64| {
        let mut ulpdu = hex("414b0000000000000003");
        ulpdu.extend(msn.to_be_bytes());
        ulpdu.extend(hex("00000000"));
        ulpdu.extend(atomic_response(id, found));
        ulpdu
    };
    let expected = [read(42), atomic(1, 2, 42), read(43), atomic(2, 4, 43)];
    assert_eq!(ulpdus(&dut.answer()), expected);
}

/// R7306-5.2.1-2, -5 and R7306-4.1-4: reserved bits, a `FetchAdd`'s compare fields and the
/// Invalidate `STag` mean nothing.
#[test]
fn fields_without_meaning_are_not_read() {
    let mut dut = Dut::new();
    let (target, mut header) = addition(&dut, 0xffff_fff0, 1);
    header[36..].fill(0xa5);
    let place = Untagged {
        control: 0x41 | 0x3c,
        rdmap: 0x4a | 0x30,
        stag: 0xdead_beef,
        ..Untagged::atomic_request()
    };
    dut.peer.send(&place.fpdu(&header));
    dut.sim.run_until_idle();
    assert_eq!(number(&target), 43);
}

#[test]
fn requests_that_must_not_be_are_refused_with_their_code_and_not_executed() {
    type Twist = fn(Untagged, Vec<u8>) -> Vec<u8>;
    let right = Untagged::atomic_request();
    #[rustfmt::skip]
    let all: [(&str, Twist, TermCode); 9] = [
        ("row 84: without L", |place, header| Untagged { control: 0x01, ..place }.fpdu(&header), TermCode::rdmap_operation(7)),
        ("row 97: 51 bytes", |place, header| place.fpdu(&header[..51]), TermCode::ddp_local()),
        ("row 97: 0 bytes", |place, _| place.fpdu(&[]), TermCode::ddp_local()),
        ("row 97: 53 bytes", |place, header| place.fpdu(&[&header[..], &[0]].concat()), TermCode::ddp_untagged(5)),
        ("MSN 2", |place, header| Untagged { msn: 2, ..place }.fpdu(&header), TermCode::ddp_untagged(3)),
        ("MSN 0", |place, header| Untagged { msn: 0, ..place }.fpdu(&header), TermCode::ddp_untagged(3)),
        ("MO 8", |place, header| Untagged { mo: 8, ..place }.fpdu(&header), TermCode::ddp_untagged(4)),
        ("on QN 0", |place, header| Untagged { qn: 0, ..place }.fpdu(&header), TermCode::rdmap_operation(6)),
        ("RV 0", |place, header| Untagged { rdmap: 0x0a, ..place }.fpdu(&header), TermCode::rdmap_operation(5)),
    ];
    for (what, twist, code) in cases(all) {
        let mut dut = Dut::new().expecting(REFUSED);
        dut.end.post_recv(1, 100);
        let (_target, header) = addition(&dut, FETCH_ADD, 1);
        dut.assert_terminates(what, &twist(right, header), code);
    }
}

/// Row 95.
#[test]
fn reserved_and_unassigned_operations_are_refused() {
    for operation in cases([1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]) {
        let mut dut = Dut::new().expecting(REFUSED);
        let (_target, header) = addition(&dut, operation, 1);
        let request = Untagged::atomic_request().fpdu(&header);
        let what = format!("AOpCode {operation}");
        dut.assert_terminates(&what, &request, TermCode::rdmap_operation(6));
    }
}

/// `offending` is answered with just this Terminate.
fn assert_answer(dut: &mut Dut, offending: &[u8], terminate: &str) {
    dut.peer.send(offending);
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    assert_eq!(dut.answer(), hex(terminate));
    dut.peer.close();
    dut.sim.run_until_idle();
}

/// Vector T-21: a Terminate for an Atomic Request does not return RDMAP's header (R7306-8.1-2).
#[test]
fn terminate_for_a_misaligned_target_is_right_to_the_byte() {
    let mut dut = Dut::new().expecting(REFUSED);
    let target = holding(&dut.end, 42);
    let place = target.remote(4);
    let header = atomic_request(FETCH_ADD, 0, place.stag, place.to, 1);
    let offending = Untagged::atomic_request().fpdu(&header);
    let terminate = "002a4147000000000000000200000001000000000207c0000046414a0000000000000001000000010000000086a855da";
    assert_answer(&mut dut, &offending, terminate);
    assert_eq!(number(&target), 42);
}

/// Vector T-22.
#[test]
fn terminate_for_an_unknown_operation_is_right_to_the_byte() {
    let mut dut = Dut::new().expecting(REFUSED);
    let offending = hex(
        "0046414a0000000000000001000000010000000000000001000000011122334400000000000010080000000000000001\
         ffffffffffffffff0000000000000000fffffffffffffffff1a3191a",
    );
    let terminate = "002a4147000000000000000200000001000000000206c0000046414a00000000000000010000000100000000be5886af";
    assert_answer(&mut dut, &offending, terminate);
}

/// The requests come in one piece, before any can be answered: none is executed.
#[test]
fn more_atomics_than_ird_at_once_are_refused() {
    let config = QpConfig::default().ird(3);
    let mut dut = Dut::with(&config).expecting(REFUSED);
    let (_target, header) = addition(&dut, FETCH_ADD, 1);
    let requests: Vec<u8> = (1..=4)
        .flat_map(|msn| {
            let place = Untagged {
                msn,
                ..Untagged::atomic_request()
            };
            place.fpdu(&header)
        })
        .collect();
    assert!(requests.len() < 1024, "one segment");
    let captured = dut.assert_terminates("row 85", &requests, TermCode::ddp_untagged(3));
    assert_eq!(
        captured,
        hex("c0000046414a00000000000000010000000400000000")
    );
}

#[test]
fn responses_that_must_not_be_are_refused_and_complete_nothing() {
    let right = Untagged::atomic_response();
    let whole = atomic_response(0, 42);
    #[rustfmt::skip]
    let all: [(&str, Vec<u8>, TermCode); 9] = [
        ("row 98: MSN 2", Untagged { msn: 2, ..right }.fpdu(&whole), TermCode::ddp_untagged(3)),
        ("row 99: other identifier", right.fpdu(&atomic_response(1, 42)), TermCode::UNSPECIFIED),
        ("row 99: 11 bytes", right.fpdu(&whole[..11]), TermCode::UNSPECIFIED),
        ("13 bytes", right.fpdu(&[&whole[..], &[0]].concat()), TermCode::ddp_untagged(5)),
        ("without L", Untagged { control: 0x01, ..right }.fpdu(&whole), TermCode::rdmap_operation(7)),
        ("MO 4", Untagged { mo: 4, ..right }.fpdu(&whole), TermCode::ddp_untagged(4)),
        ("on QN 0", Untagged { qn: 0, ..right }.fpdu(&whole), TermCode::rdmap_operation(6)),
        ("a Read Response instead", Tagged::read_response(Stag(1), 0).fpdu(&[0; 8]), TermCode::ddp_tagged(0)),
        ("a Send on QN 3", Untagged { qn: 3, ..Untagged::default() }.fpdu(&[0; 8]), TermCode::rdmap_operation(6)),
    ];
    for (what, response, code) in cases(all) {
        let mut dut = Dut::new().expecting(REFUSED);
        dut.end.post_recv(1, 100);
        let sink = dut.end.target(8);
        let far = xwarp::RemoteAddress {
            stag: Stag(0x100),
            to: 0,
        };
        let request = SendRequest::fetch_add(WrId(1), 1, far);
        dut.end.post(request.result_into(sink.local(0, 8)));
        dut.sim.run_until_idle();
        assert_eq!(ulpdus(&dut.answer()).len(), 1, "an Atomic Request");
        dut.assert_terminates(what, &response, code);
        let flushed = Done::flushed(1, Opcode::FetchAdd);
        assert_eq!(dut.end.sends(), [flushed], "{what}");
    }
}

#[test]
fn response_to_a_read_instead_or_to_nothing_is_refused() {
    let response = Untagged::atomic_response().fpdu(&atomic_response(0, 42));
    let mut dut = Dut::new().expecting(REFUSED);
    dut.assert_terminates("row 98", &response, TermCode::ddp_untagged(3));

    let mut dut = Dut::new().expecting(REFUSED);
    let sink = dut.end.target(8);
    let far = xwarp::RemoteAddress {
        stag: Stag(0x100),
        to: 0,
    };
    dut.end.post_read(1, sink.local(0, 8), far);
    dut.sim.run_until_idle();
    dut.assert_terminates("of a Read", &response, TermCode::ddp_untagged(3));
    assert_eq!(dut.end.sends(), [Done::flushed(1, Opcode::Read)]);
}

#[test]
fn request_after_this_side_has_closed_resets_and_is_not_executed() {
    let mut dut = Dut::new().expecting(&["drop_no_flow", "drop_after_failure"]);
    dut.sim.run_until_idle();
    let region = dut.end.region(8, Access::all());
    dut.end.qp.begin_disconnect().unwrap();
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    let closed_at = dut.sim.now();
    let header = atomic_request(FETCH_ADD, 0, region.stag(), 0, 1);
    dut.peer.send(&Untagged::atomic_request().fpdu(&header));
    dut.sim
        .run_until("the reset", || dut.peer.ended().is_some());
    assert_eq!(dut.peer.ended(), Some(CloseReason::Reset));
    assert!(dut.sim.now() < closed_at + Duration::from_millis(1));
    let events = dut.end.events();
    assert!(
        matches!(events[..], [AsyncEventKind::BadClose { .. }]),
        "{events:?}"
    );
    assert_eq!(region.bytes().to_vec(), [0; 8]);
}

#[test]
fn first_fpdu_may_be_an_atomic_request() {
    let mut dut = Dut::fenced(xwarp_test_kit::netsim::Seed(29), &QpConfig::default());
    let (target, header) = addition(&dut, FETCH_ADD, 1);
    dut.peer.send(&Untagged::atomic_request().fpdu(&header));
    dut.sim.run_until_idle();
    assert_eq!(number(&target), 43);
    assert_eq!(ulpdus(&dut.answer()).len(), 1);
}

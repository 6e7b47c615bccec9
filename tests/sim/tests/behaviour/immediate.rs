//! Immediate Data, alone and behind a Write (RFC 7306 §6).

use std::time::Duration;

use xwarp::completion::Arm;
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::work::Sgl;
use xwarp::{
    Access, CompletionStatus, Opcode, QpState, RecvRequest, RemoteAddress, SendRequest, Sge, Stag,
    WorkCompletion, WrId,
};
use xwarp_sim_tests::wire::{Untagged, ulpdus};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, for_each_seed, pattern, pattern_of};
use xwarp_test_kit::netsim::Seed;

use crate::hostile::Dut;

const REFUSED: &[&str] = &["drop_refused_segment", "drop_after_failure"];

fn sim() -> Sim {
    Sim::new(Seed(37)).one_way_delay(Duration::from_micros(50))
}

/// All completions of the receive queue, whole.
fn received(end: &mut SimEnd) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| end.recv_cq().poll().unwrap()).collect()
}

fn post_immediate(end: &mut SimEnd, wr_id: u64, data: u64) {
    end.post(SendRequest::immediate(WrId(wr_id), data.to_be_bytes()));
}

#[test]
fn immediate_data_comes_in_the_completion_of_a_receive_whose_buffer_stays_as_it_is() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(7, 100);
    let before = b.host().memory();
    a.post(SendRequest::immediate(WrId(1), *b"8 bytes!"));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::immediate(1)]);
    let done = received(&mut b);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].immediate, Some(*b"8 bytes!"));
    assert_eq!(Done::from(done[0]), Done::receive(7, 0));
    assert!(!done[0].solicited);
    assert!(b.host().memory() == before);
}

/// R7306-6.3-4: the bytes need no buffer, so that none can be too small or unusable.
#[test]
fn any_receive_will_do() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let small = b.region(3, Access::LOCAL_WRITE);
    let nowhere = Sge {
        stag: Stag(0x1234_5600),
        to: u64::MAX,
        len: 8,
    };
    let pieces: Sgl = [small.local(0, 1), small.local(1, 2)].into_iter().collect();
    for (wr_id, sgl) in [(1, Sgl::new()), (2, pieces), (3, nowhere.into())] {
        let request = RecvRequest::new(WrId(wr_id), sgl);
        b.qp.post_recv(request).unwrap();
    }
    for i in 1..=3 {
        post_immediate(&mut a, i, i);
    }
    sim.run_until_idle();
    let done = received(&mut b);
    let data = done.iter().map(|done| done.immediate);
    assert!(data.eq([1_u64, 2, 3].map(|n| Some(n.to_be_bytes()))));
    assert_eq!(small.bytes().to_vec(), [0; 3]);
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn plain_send_carries_none() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 8);
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    assert_eq!(received(&mut b)[0].immediate, None);
}

#[test]
fn only_what_asks_for_an_event_wakes_who_waits_for_one() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let target = b.target(8);
    let place = target.remote(0);
    let source = a.source(b"8 bytes!");
    let requests = [
        (SendRequest::immediate(WrId(1), [1; 8]), false),
        (SendRequest::immediate(WrId(2), [2; 8]).solicited(), true),
        (
            SendRequest::write_immediate(WrId(3), source, place, [3; 8]),
            false,
        ),
        (
            SendRequest::write_immediate(WrId(4), source, place, [4; 8]).solicited(),
            true,
        ),
        (SendRequest::send(WrId(5), source), false),
        (SendRequest::send(WrId(6), source).solicited(), true),
    ];
    for (request, event) in requests {
        b.post_recv(1, 8);
        b.recv_cq().arm(Arm::Solicited).unwrap();
        a.post(request);
        sim.run_until_idle();
        let woken = b.recv_cq().wait_event(Duration::ZERO).unwrap();
        assert_eq!(woken, event, "{:?}", a.sends());
        assert_eq!(received(&mut b)[0].solicited, event);
    }
}

/// R7306-6.4-1: as a Send.
#[test]
fn sends_and_immediate_data_are_received_in_order_whatever_the_link_does() {
    for_each_seed(|seed| {
        let mut sim = Sim::on_a_bad_link(seed);
        let (mut a, mut b) = sim.connected_pair();
        for i in 0..40 {
            b.post_recv(i, 5_000);
            if i % 2 == 0 {
                a.post_send(i, &pattern_of(i, 5_000));
            } else {
                post_immediate(&mut a, i, i);
            }
        }
        sim.run_until_idle();
        let done = received(&mut b);
        assert_eq!(done.len(), 40);
        for (i, done) in (0_u64..).zip(done) {
            let expected = (i % 2 == 1).then_some(i.to_be_bytes());
            assert_eq!((done.wr_id, done.immediate), (WrId(i), expected));
            assert!(i % 2 == 1 || b.buffer(i) == pattern_of(i, 5_000));
        }
        assert_eq!(a.sends().len(), 40);
    });
}

/// R7306-6-1: what InfiniBand calls a Write with immediate.
#[test]
fn write_with_immediate_is_placed_when_its_data_is_received() {
    const EACH: usize = 20_000;
    for_each_seed(|seed| {
        let mut sim = Sim::new(seed)
            .one_way_delay(Duration::from_micros(500))
            .loss(0.02)
            .reorder(0.1);
        let (mut a, mut b) = sim.connected_pair();
        let target = b.target(EACH);
        for round in 0..8_u64 {
            b.post_recv(round, 0);
            let source = a.source(&pattern_of(round, EACH));
            let data = round.to_be_bytes();
            let place = target.remote(0);
            a.post(SendRequest::write_immediate(
                WrId(round),
                source,
                place,
                data,
            ));
            let done = sim.wait_for("Immediate Data", || b.recv_cq().poll().unwrap());
            assert_eq!(done.immediate, Some(data));
            assert!(target.to_vec() == pattern_of(round, EACH));
        }
        sim.run_until_idle();
        let expected: Vec<Done> = (0..8)
            .map(|i| Done::success(i, Opcode::WriteImmediate, EACH))
            .collect();
        assert_eq!(a.sends(), expected, "one completion each");
    });
}

#[test]
fn unsignaled_writes_with_immediate_complete_only_there() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let target = b.target(8);
    let source = a.source(b"8 bytes!");
    b.post_recv(1, 0);
    let request = SendRequest::write_immediate(WrId(1), source, target.remote(0), [1; 8]);
    a.post(request.unsignaled());
    sim.run_until_idle();
    assert_eq!(a.sends(), []);
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn immediate_data_behind_a_write_that_is_refused_is_never_received() {
    let mut sim = sim().expecting(REFUSED);
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 8);
    let source = a.source(&pattern(KIB));
    let nowhere = RemoteAddress {
        stag: Stag(0x1234_5600),
        to: 0,
    };
    let request = SendRequest::write_immediate(WrId(1), source, nowhere, [1; 8]);
    a.post(request);
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::flushed(1, Opcode::Receive)]);
    let code = TermCode::ddp_tagged(0);
    assert_eq!(a.events(), [AsyncEventKind::TerminateReceived(code)]);
}

#[test]
fn source_that_cannot_be_used_fails_the_whole_of_a_write_with_immediate() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let target = b.target(8);
    b.post_recv(1, 8);
    let source = Sge {
        stag: Stag(0x1234_5600),
        to: 0,
        len: 8,
    };
    let request = SendRequest::write_immediate(WrId(1), source, target.remote(0), [1; 8]);
    a.post(request);
    post_immediate(&mut a, 2, 2);
    sim.run_until_idle();
    let status = CompletionStatus::InvalidStag;
    let failed = Done::failed(1, Opcode::WriteImmediate, status);
    let expected = [failed, Done::flushed(2, Opcode::Immediate)];
    assert_eq!(a.sends(), expected);
    assert_eq!(b.receives(), [Done::flushed(1, Opcode::Receive)]);
    assert_eq!(target.to_vec(), [0; 8]);
}

#[test]
fn immediate_data_without_a_posted_receive_ends_the_stream() {
    let mut sim = sim().expecting(REFUSED);
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 8);
    post_immediate(&mut a, 1, 1);
    post_immediate(&mut a, 2, 2);
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 0)]);
    let code = TermCode::ddp_untagged(2);
    assert_eq!(a.events(), [AsyncEventKind::TerminateReceived(code)]);
}

#[test]
fn messages_are_right_to_the_byte() {
    let mut dut = Dut::new();
    dut.sim.run_until_idle();
    let source = dut.end.source(b"ping");
    let far = RemoteAddress {
        stag: Stag(0x1200),
        to: 0x40,
    };
    let end = &mut dut.end;
    end.post(SendRequest::immediate(WrId(1), [1, 2, 3, 4, 5, 6, 7, 8]));
    end.post(SendRequest::write_immediate(WrId(2), source, far, [9; 8]).solicited());
    dut.sim.run_until_idle();
    let immediate = [
        0x41, 0x48, 0, 0, 0, 0, // T=0 L=1 DV=1; RV=1, Immediate Data; no STag
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, // QN 0, MSN 1, MO 0
        1, 2, 3, 4, 5, 6, 7, 8,
    ];
    let write = [
        0xc1, 0x40, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0,
        0x40, // T=1 L=1 DV=1, RDMA Write, STag, TO
        b'p', b'i', b'n', b'g',
    ];
    let behind_it = [
        0x41, 0x49, 0, 0, 0, 0, // with event
        0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, // MSN 2
        9, 9, 9, 9, 9, 9, 9, 9,
    ];
    let expected: [&[u8]; 3] = [&immediate, &write, &behind_it];
    assert_eq!(ulpdus(&dut.answer()), expected);
}

/// wire.md rows 84 and 93.
#[test]
fn immediate_data_of_any_other_form_is_refused() {
    let right = Untagged::immediate();
    #[rustfmt::skip]
    let cases: [(&str, Vec<u8>, TermCode); 9] = [
        ("row 93: 0 bytes", right.fpdu(&[]), TermCode::UNSPECIFIED),
        ("row 93: 7 bytes", right.fpdu(&[1; 7]), TermCode::UNSPECIFIED),
        ("row 93: 9 bytes", right.fpdu(&[1; 9]), TermCode::ddp_untagged(5)),
        ("row 93: 16 bytes", right.fpdu(&[1; 16]), TermCode::ddp_untagged(5)),
        ("row 84: without L", Untagged { control: 0x01, ..right }.fpdu(&[1; 8]), TermCode::rdmap_operation(7)),
        ("MSN 2", Untagged { msn: 2, ..right }.fpdu(&[1; 8]), TermCode::ddp_untagged(3)),
        ("MO 1", Untagged { mo: 1, ..right }.fpdu(&[1; 8]), TermCode::ddp_untagged(4)),
        ("on QN 1", Untagged { qn: 1, ..right }.fpdu(&[1; 8]), TermCode::rdmap_operation(6)),
        ("RV 0", Untagged { rdmap: 0x08, ..right }.fpdu(&[1; 8]), TermCode::rdmap_operation(5)),
    ];
    for (what, offending, code) in cases {
        let mut dut = Dut::new().expecting(REFUSED);
        dut.end.post_recv(1, 100);
        let captured = dut.assert_terminates(what, &offending, code);
        assert_eq!(captured.len(), 2 + 2 + 18, "{what}: M and D, not R");
        let flushed = Done::flushed(1, Opcode::Receive);
        assert_eq!(dut.end.receives(), [flushed], "{what}");
    }
}

/// Between the segments of a Send it would be another message of the same number.
#[test]
fn immediate_data_inside_a_send_is_refused() {
    let mut dut = Dut::new().expecting(REFUSED);
    dut.end.post_recv(1, 100);
    let begin = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    dut.peer.send(&begin.fpdu(b"begun"));
    dut.sim.run_until_idle();
    let inside = Untagged::immediate().fpdu(&[1; 8]);
    dut.assert_terminates("inside", &inside, TermCode::rdmap_operation(6));
    assert!(dut.end.receives()[0].outcome.is_err());
}

#[test]
fn peers_reserved_bits_and_invalidate_stag_mean_nothing() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 0);
    let odd = Untagged {
        control: 0x41 | 0x3c,
        rdmap: 0x49 | 0x30,
        stag: 0xdead_beef,
        ..Untagged::immediate()
    };
    dut.peer.send(&odd.fpdu(b"8 bytes!"));
    dut.sim.run_until_idle();
    let done = received(&mut dut.end);
    assert_eq!(done[0].immediate, Some(*b"8 bytes!"));
    assert!(done[0].solicited && done[0].invalidated.is_none());
}

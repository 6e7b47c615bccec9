//! The verbs draft's own close: Modify QP to Closing (§6.2.2.2, §6.2.5).

use std::time::Duration;

use xwarp::attr::{QpChange, TerminateOrigin};
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{Opcode, QpState};
use xwarp_sim_tests::wire::Untagged;
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, for_each_seed, pattern};

use super::{assert_usable, is_bad_close, pair_in, sim};
use crate::hostile::Dut;

fn close(end: &mut SimEnd) {
    end.qp.modify(QpChange::to(QpState::Closing)).unwrap();
}

/// The close of `end` was none: it is in Error, and the event came no earlier.
fn assert_bad_close(end: &SimEnd) {
    let events = end.events();
    assert!(is_bad_close(&events), "{events:?}");
    let info = end.qp.query().unwrap();
    assert_eq!((info.state, info.stream), (QpState::Error, None));
}

#[test]
fn close_without_work_flushes_the_receives_and_ends_in_idle() {
    let mut sim = sim();
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    a.post_recv(1, 10);
    b.post_recv(2, 10);
    close(&mut a);
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    let info = a.qp.query().unwrap();
    assert!(info.state == QpState::Closing && info.stream.is_some());
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::flushed(2, Opcode::Receive)]);
    for end in [&a, &b] {
        assert_eq!(end.events(), [AsyncEventKind::Closed]);
        let info = end.qp.query().unwrap();
        assert_eq!(
            (info.state, info.stream, info.terminate),
            (QpState::Idle, None, None)
        );
    }
    assert_usable(&mut sim, &mut a, &mut b);
}

#[test]
fn close_is_clean_whatever_the_link_loses() {
    for_each_seed(|seed| {
        // A frame that comes twice may come after the end of its connection.
        let mut sim = Sim::on_a_bad_link(seed).expecting(&["drop_no_flow"]);
        let (mut a, mut b) = sim.connected_pair();
        b.post_recv(1, 10);
        a.post_send(2, b"good bye");
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(1, 8)]);
        close(&mut a);
        sim.run_until_idle();
        assert_eq!(a.events(), [AsyncEventKind::Closed]);
        assert_eq!(b.events(), [AsyncEventKind::Closed]);
    });
}

#[test]
fn both_sides_can_close_at_once() {
    let mut sim = sim();
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    close(&mut a);
    close(&mut b);
    sim.run_until_idle();
    for end in [&a, &b] {
        assert_eq!(end.events(), [AsyncEventKind::Closed]);
        assert_eq!(end.state(), QpState::Idle);
    }
}

#[test]
fn work_of_the_send_queue_makes_it_a_bad_close() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, b) = pair_in(&mut sim, QpState::Rts);
    a.post_recv(1, 10);
    a.post_send(2, b"not begun");
    close(&mut a);
    assert_bad_close(&a);
    assert_eq!(a.sends(), [Done::flushed(2, Opcode::Send)]);
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    sim.run_until_idle();
    assert_eq!(b.events(), [AsyncEventKind::ConnectionReset]);
}

#[test]
fn read_that_is_not_answered_makes_it_a_bad_close() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, b) = pair_in(&mut sim, QpState::Rts);
    let (sink, source) = (a.target(8), b.target(8));
    a.post_read(1, sink.local(0, 8), source.remote(0));
    sim.run_for(Duration::from_micros(20));
    close(&mut a);
    assert_bad_close(&a);
    assert_eq!(a.sends(), [Done::flushed(1, Opcode::Read)]);
}

#[test]
fn read_of_the_peer_that_is_not_answered_makes_it_a_bad_close() {
    let mut sim = sim().expecting(&["drop_no_flow"]).rate(100_000_000);
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    let (sink, source) = (b.target(MIB), a.target(MIB));
    source.fill(&pattern(MIB));
    b.post_read(1, sink.local(0, MIB), source.remote(0));
    sim.run_for(Duration::from_millis(1));
    close(&mut a);
    assert_bad_close(&a);
    sim.run_until_idle();
    assert_eq!(b.sends(), [Done::flushed(1, Opcode::Read)]);
    assert_eq!(b.events(), [AsyncEventKind::ConnectionReset]);
}

#[test]
fn arrival_during_the_close_is_not_processed_and_makes_it_a_bad_close() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    let target = a.target(KIB);
    b.post_write(1, &pattern(KIB), target.remote(0));
    sim.run_for(Duration::from_micros(20));
    close(&mut a);
    assert_eq!(a.state(), QpState::Closing);
    sim.run_until_idle();
    assert_bad_close(&a);
    assert_eq!(target.to_vec(), vec![0; KIB]);
    assert_eq!(b.state(), QpState::Error);
}

#[test]
fn half_an_fpdu_makes_it_a_bad_close() {
    let mut dut = Dut::new().expecting(&["drop_no_flow"]);
    let whole = Untagged::default().fpdu(b"cut in the middle");
    dut.end.post_recv(1, 100);
    dut.peer.send(&whole[..20]);
    dut.sim.run_until_idle();
    close(&mut dut.end);
    assert_bad_close(&dut.end);
}

#[test]
fn terminate_that_arrives_during_the_close_is_kept_and_makes_it_a_bad_one() {
    let mut dut = Dut::new().expecting(&["drop_no_flow"]);
    dut.sim.run_until_idle();
    let terminate = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    close(&mut dut.end);
    dut.peer.send(&terminate.fpdu(&[0x12, 0x02, 0, 0]));
    dut.sim.run_until_idle();
    assert_bad_close(&dut.end);
    let kept = dut.end.qp.query().unwrap().terminate.unwrap();
    assert_eq!(kept.code, TermCode::ddp_untagged(2));
    assert_eq!(kept.origin, TerminateOrigin::Peer);
}

/// The way of a disconnect, which takes what the peer still sends.
#[test]
fn terminate_after_a_disconnects_fin_leads_to_error_at_once() {
    let mut dut = Dut::new().expecting(&["drop_no_flow"]);
    dut.sim.run_until_idle();
    dut.end.qp.begin_disconnect().unwrap();
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    let terminate = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    dut.peer.send(&terminate.fpdu(&[0x12, 0x02, 0, 0]));
    dut.sim.run_until_idle();
    let info = dut.end.qp.query().unwrap();
    assert_eq!((info.state, info.stream), (QpState::Error, None));
    let kept = info.terminate.unwrap();
    assert_eq!(kept.code, TermCode::ddp_untagged(2));
    let told = AsyncEventKind::TerminateReceived(kept.code);
    assert_eq!(dut.end.events(), [told]);
}

#[test]
fn peer_that_does_not_close_is_not_waited_for_for_ever() {
    let mut dut = Dut::new().expecting(&["drop_no_flow"]);
    dut.sim.run_until_idle();
    let began = dut.sim.now();
    close(&mut dut.end);
    let end = &dut.end;
    (dut.sim).run_until("Error", || end.state() == QpState::Error);
    let took = dut.sim.now().saturating_sub(began);
    assert!(took < Duration::from_secs(11), "{took:?}");
    assert_lost(&dut.end);
}

#[test]
fn link_that_fails_during_the_close_is_a_lost_connection() {
    let mut sim = sim();
    let (mut a, _b) = pair_in(&mut sim, QpState::Rts);
    sim.cut_link();
    close(&mut a);
    sim.run_until("Error", || a.state() == QpState::Error);
    assert_lost(&a);
}

#[test]
fn reset_during_the_close_is_a_lost_connection() {
    let mut dut = Dut::new().expecting(&["drop_no_flow"]);
    dut.sim.run_until_idle();
    close(&mut dut.end);
    dut.peer.abort();
    dut.sim.run_until_idle();
    assert_lost(&dut.end);
}

fn assert_lost(end: &SimEnd) {
    let events = end.events();
    assert!(
        matches!(events[..], [AsyncEventKind::ConnectionLost { .. }]),
        "{events:?}"
    );
    assert_eq!(end.state(), QpState::Error);
}

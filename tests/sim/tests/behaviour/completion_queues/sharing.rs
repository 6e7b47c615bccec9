//! Completion queues: shared, just large enough, too small, and gone.

use std::time::Duration;

use xwarp::attr::CqId;
use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};
use xwarp::{Opcode, QpConfig, QpState, RecvRequest, SendRequest, WrId};
use xwarp_sim_tests::{Done, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

fn overflow_of(cq: CqId) -> AsyncEvent {
    AsyncEvent::new(EventResource::Cq(cq), AsyncEventKind::CqOverflow)
}

fn sim() -> Sim {
    Sim::new(Seed(23)).one_way_delay(Duration::from_micros(50))
}

/// A connected pair whose first end has completion queues of these sizes.
fn pair_with(sim: &mut Sim, send_entries: usize, recv_entries: usize) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    let mut a = SimEnd::with_cqs(&sim.a(), &config, send_entries, recv_entries);
    let mut b = sim.b().end(&config);
    sim.connect(&mut a, &mut b);
    (a, b)
}

#[test]
fn queue_that_is_just_large_enough_loses_nothing() {
    let mut sim = sim();
    let (mut a, mut b) = pair_with(&mut sim, 4, 4);
    for round in 0..10 {
        for i in 0..4 {
            b.post_recv(4 * round + i, 1);
            a.post_recv(4 * round + i, 1);
            a.post_send(4 * round + i, b"x");
            b.post_send(4 * round + i, b"x");
        }
        sim.run_until_idle();
        assert_eq!(
            a.sends(),
            [0, 1, 2, 3].map(|i| Done::send(4 * round + i, 1))
        );
        assert_eq!(
            a.receives(),
            [0, 1, 2, 3].map(|i| Done::receive(4 * round + i, 1))
        );
    }
    assert!(!a.send_cq().overflowed() && !a.recv_cq().overflowed());
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_discarded_and_others_stay() {
    let mut sim = sim();
    let config = QpConfig::default();
    let mut cq = sim.a().rnic().create_cq(16).unwrap();
    let ends = [(); 2].map(|()| {
        let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
        a.qp = sim.a().pd().create_qp(&config, &cq, &cq).unwrap();
        sim.connect(&mut a, &mut b);
        (0..4).for_each(|i| b.post_recv(i, 1));
        (a, b)
    });
    let [(mut gone, _peer), (mut other, _other_peer)] = ends;
    for i in 0..4 {
        gone.post_send(i, b"x");
        other.post_send(10 + i, b"x");
        sim.run_until_idle();
    }
    let id = gone.qp.id();
    gone.qp.destroy().unwrap();
    assert_eq!(cq.discard(id), Ok(4));
    assert_eq!(cq.discard(id), Ok(0));
    let polled = std::iter::from_fn(|| cq.poll().unwrap());
    let polled: Vec<u64> = polled.map(|completion| completion.wr_id.0).collect();
    assert_eq!(polled, [10, 11, 12, 13]);
}

/// Unsignaled work completes after all if it is flushed, so that it counts, too.
#[test]
fn queue_for_all_work_has_room_for_unsignaled_work_that_is_flushed() {
    let mut sim = sim();
    let (mut a, b) = pair_with(&mut sim, 4, 4);
    let target = b.target(8);
    for round in 0..2 {
        let source = a.source(b"8 bytes!");
        for i in 0..4 {
            let write = SendRequest::write(WrId(i), source, target.remote(0));
            a.post(write.unsignaled());
        }
        if round == 0 {
            sim.run_until_idle();
            assert_eq!(a.sends(), []);
        }
    }
    a.qp.abort().unwrap();
    assert_eq!(
        a.sends(),
        [0, 1, 2, 3].map(|i| Done::flushed(i, Opcode::Write))
    );
    assert!(!a.send_cq().overflowed());
    sim.run_until_idle();
}

/// The queue pair has sent a Terminate with code 0/2/07 and without headers (verbs.md A3).
fn assert_told(end: &SimEnd) {
    let told = end.qp.query().unwrap().terminate.unwrap();
    assert_eq!(told.message, [0x02, 0x07, 0, 0]);
}

#[test]
fn overflow_is_reported_and_overwrites_no_completion() {
    let mut sim = sim().expecting(&["drop_cq_overflow", "drop_after_failure"]);
    let (mut a, mut b) = pair_with(&mut sim, 2, 8);
    let target = b.target(8);
    b.post_recv(9, 1);
    for i in 0..5 {
        a.post_write(i, b"8 bytes!", target.remote(0));
    }
    sim.run_until_idle();
    assert!(a.send_cq().overflowed());
    assert_eq!(
        a.sends(),
        [Done::write(0, 8), Done::write(1, 8)],
        "the first ones stay"
    );
    assert_eq!(a.events(), [AsyncEventKind::SendCqError]);
    let overflow = overflow_of(a.send_cq().id());
    assert_eq!(a.host().other_events(), [overflow], "told once");
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
    assert_told(&a);
    assert!(a.host().drops()["drop_cq_overflow"] > 0);
    assert!(matches!(
        b.events()[..],
        [AsyncEventKind::TerminateReceived(_)]
    ));
}

#[test]
fn overflow_of_the_receive_side_is_reported_too() {
    let mut sim = sim().expecting(&["drop_cq_overflow", "drop_after_failure"]);
    let (mut a, mut b) = pair_with(&mut sim, 8, 2);
    for i in 0..5 {
        a.post_recv(i, 1);
        b.post_send(i, b"x");
    }
    sim.run_until_idle();
    assert!(a.recv_cq().overflowed());
    assert_eq!(a.receives(), [Done::receive(0, 1), Done::receive(1, 1)]);
    assert_eq!(a.events(), [AsyncEventKind::RecvCqError]);
    let overflow = overflow_of(a.recv_cq().id());
    assert_eq!(a.host().other_events(), [overflow]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
    assert_told(&a);
}

#[test]
fn overflow_leaves_other_queue_pairs_alone() {
    let mut sim = sim().expecting(&["drop_cq_overflow", "drop_after_failure"]);
    let (mut a, b) = pair_with(&mut sim, 1, 8);
    let (mut c, d) = sim.connected_pair();
    let (first, second) = (b.target(8), d.target(8));
    for i in 0..5 {
        a.post_write(i, b"8 bytes!", first.remote(0));
        c.post_write(i, b"8 bytes!", second.remote(0));
    }
    sim.run_until_idle();
    assert_eq!(a.state(), QpState::Error);
    assert_eq!((c.state(), d.state()), (QpState::Rts, QpState::Rts));
    assert_eq!(c.sends(), [0, 1, 2, 3, 4].map(|i| Done::write(i, 8)));
}

#[test]
fn two_queue_pairs_can_share_one_queue_for_everything() {
    let mut sim = sim();
    let host = sim.a();
    let mut cq = host.rnic().create_cq(64).unwrap();
    let config = QpConfig::default();
    let mut peers = Vec::new();
    for _ in 0..2 {
        let mut qp = host.pd().create_qp(&config, &cq, &cq).unwrap();
        let mut peer = sim.b().end(&config);
        let at = peer.host().at(sim.new_port());
        let mut listener = peer.host().rnic().listen(at).unwrap();
        let mut connecting = qp.begin_connect(at, b"", Duration::from_secs(5)).unwrap();
        let request = sim.wait_for("the request", || listener.try_accept().unwrap());
        request.accept(&mut peer.qp, b"").unwrap();
        sim.wait_for("the answer", || connecting.try_finish())
            .unwrap();
        peers.push((qp, peer));
    }
    let region = host.region(16, xwarp::Access::LOCAL_READ | xwarp::Access::LOCAL_WRITE);
    for (qp, peer) in &mut peers {
        peer.post_recv(1, 8);
        qp.post_recv(RecvRequest::new(WrId(1), region.local(8, 8)))
            .unwrap();
        qp.post_send(SendRequest::send(WrId(2), region.local(0, 8)))
            .unwrap();
        peer.post_send(1, b"answered");
    }
    sim.run_until_idle();
    let mut found: Vec<_> = std::iter::from_fn(|| cq.poll().unwrap())
        .map(|completion| (completion.qp, Done::from(completion)))
        .collect();
    for (qp, _) in &peers {
        assert!(found.contains(&(qp.id(), Done::send(2, 8))));
        assert!(found.contains(&(qp.id(), Done::receive(1, 8))));
    }
    found.dedup();
    assert_eq!(found.len(), 4);
}

#[test]
fn queue_that_is_dropped_takes_its_completions_along_and_nothing_else() {
    let mut sim = sim();
    let host = sim.a();
    let config = QpConfig::default();
    let (send_cq, mut recv_cq) = (
        host.rnic().create_cq(4).unwrap(),
        host.rnic().create_cq(4).unwrap(),
    );
    let mut qp = host.pd().create_qp(&config, &send_cq, &recv_cq).unwrap();
    drop(send_cq);
    let mut peer = sim.b().end(&config);
    let at = peer.host().at(sim.new_port());
    let mut listener = peer.host().rnic().listen(at).unwrap();
    let mut connecting = qp.begin_connect(at, b"", Duration::from_secs(5)).unwrap();
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    request.accept(&mut peer.qp, b"").unwrap();
    sim.wait_for("the answer", || connecting.try_finish())
        .unwrap();
    // A queue made later must not get what the dropped one would have got.
    let mut later = host.rnic().create_cq(4).unwrap();
    let region = host.region(16, xwarp::Access::LOCAL_READ | xwarp::Access::LOCAL_WRITE);
    peer.post_recv(1, 8);
    qp.post_recv(RecvRequest::new(WrId(1), region.local(8, 8)))
        .unwrap();
    qp.post_send(SendRequest::send(WrId(2), region.local(0, 8)))
        .unwrap();
    peer.post_send(1, b"answered");
    sim.run_until_idle();
    assert_eq!(peer.receives(), [Done::receive(1, 8)]);
    assert_eq!(
        recv_cq.poll().unwrap().map(Done::from),
        Some(Done::receive(1, 8))
    );
    assert_eq!(later.poll().unwrap(), None);
}

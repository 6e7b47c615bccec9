//! Other depths of a send queue and a receive queue by Modify QP (verbs draft §6.1.3, §9.2.5.3).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::{CapabilityError, ModifyError, PostError};
use xwarp::stream::{Framing, StreamState};
use xwarp::work::Sgl;
use xwarp::{
    Opcode, QpConfig, QpState, RecvRequest, RemoteAddress, SendRequest, SrqConfig, Stag, WrId,
};
use xwarp_sim_tests::{Done, Sim, SimEnd};

use super::{end_with_srq, sim};

/// Work requests that every queue of these tests can complete.
const ENTRIES: usize = 300;

fn end(sim: &Sim, in_a: bool) -> SimEnd {
    let host = if in_a { sim.a() } else { sim.b() };
    SimEnd::with_cqs(&host, &QpConfig::default(), ENTRIES, ENTRIES)
}

fn pair(sim: &mut Sim) -> (SimEnd, SimEnd) {
    let (mut a, mut b) = (end(sim, true), end(sim, false));
    sim.connect(&mut a, &mut b);
    sim.run_until_idle();
    (a, b)
}

fn send(id: usize) -> SendRequest {
    SendRequest::send(WrId(id as u64), Sgl::new())
}

fn buffer(id: usize) -> RecvRequest {
    RecvRequest::new(WrId(id as u64), Sgl::new())
}

/// Posts to both queues until they are full; how many work requests that were.
fn fill(end: &mut SimEnd) -> (usize, usize) {
    let sends = end.qp.post_send_list((0..).map(send)).unwrap_err();
    let recvs = end.qp.post_recv_list((0..).map(buffer)).unwrap_err();
    let info = end.qp.query().unwrap();
    let full = [info.send_depth, info.recv_depth].map(PostError::TooManyWorkRequests);
    assert_eq!([sends.error, recvs.error], full);
    (sends.posted, recvs.posted)
}

fn depths_of(end: &SimEnd) -> (usize, usize) {
    let info = end.qp.query().unwrap();
    (info.send_depth, info.recv_depth)
}

fn sent(n: usize) -> Vec<Done> {
    (0..n).map(|id| Done::send(id as u64, 0)).collect()
}

fn received(n: usize) -> Vec<Done> {
    (0..n).map(|id| Done::receive(id as u64, 0)).collect()
}

#[test]
fn in_rts_both_queues_hold_what_was_asked_for_last() {
    let mut sim = sim();
    let (mut a, mut b) = pair(&mut sim);
    assert!(a.host().rnic().query().unwrap().can_modify_depths);
    for (send_depth, recv_depth) in [(200, 7), (1, 200), (128, 128), (3, 1)] {
        let (ord, ird) = (a.qp.ord(), a.qp.ird());
        let change = QpChange::to(QpState::Rts);
        let change = change.send_depth(send_depth).recv_depth(recv_depth);
        let depths = a.qp.modify(change).unwrap();
        assert_eq!(
            (depths.send_depth, depths.recv_depth),
            (send_depth, recv_depth)
        );
        assert_eq!((depths.ord, depths.ird), (ord, ird));
        assert_eq!(depths_of(&a), (send_depth, recv_depth));
        let change = QpChange::to(QpState::Rts).recv_depth(send_depth);
        b.qp.modify(change.send_depth(recv_depth)).unwrap();
        assert_eq!(fill(&mut b), (recv_depth, send_depth));
        assert_eq!(fill(&mut a), (send_depth, recv_depth));
        sim.run_until_idle();
        assert_eq!(a.sends(), sent(send_depth));
        assert_eq!(a.receives(), received(recv_depth));
        assert_eq!(b.sends(), sent(recv_depth));
        assert_eq!(b.receives(), received(send_depth));
    }
    assert_eq!((a.events(), b.events()), (vec![], vec![]));
}

#[test]
fn in_idle_what_waits_keeps_its_order_through_many_rings() {
    let mut sim = sim();
    let (mut a, mut b) = (end(&sim, true), end(&sim, false));
    for n in 0..20 {
        a.post(send(n));
        b.qp.post_recv(buffer(n)).unwrap();
        let idle = || QpChange::to(QpState::Idle);
        a.qp.modify(idle().send_depth(n + 2)).unwrap();
        b.qp.modify(idle().recv_depth(n + 2)).unwrap();
    }
    b.qp.modify(QpChange::to(QpState::Idle).recv_depth(20))
        .unwrap();
    let refused = b.qp.post_recv(buffer(20));
    assert_eq!(refused, Err(PostError::TooManyWorkRequests(20)));
    assert_eq!((depths_of(&a), depths_of(&b)), ((21, 128), (128, 20)));
    sim.connect(&mut a, &mut b);
    sim.run_until_idle();
    assert_eq!((a.sends(), b.receives()), (sent(20), received(20)));
}

#[test]
fn on_the_way_to_rts_over_a_stream_queues_can_be_resized() {
    let mut sim = sim();
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let limit = Duration::from_secs(1);
    let at_a = sim.a().rnic().connect_stream(at, limit).unwrap();
    let at_b = sim.wait_for("a stream", || listener.try_accept().unwrap());
    sim.run_until("TCP", || at_a.state() == Ok(StreamState::Established));
    let (mut a, mut b) = (end(&sim, true), end(&sim, false));
    (0..5).for_each(|id| a.post(send(id)));
    (0..5).for_each(|id| b.qp.post_recv(buffer(id)).unwrap());
    let framing = Framing::default();
    let change = QpChange::start(&at_b, framing).recv_depth(4);
    let too_many = ModifyError::TooManyPresent {
        what: "the receive queue",
        present: 5,
        wanted: 4,
    };
    assert_eq!(b.qp.modify(change), Err(too_many));
    assert_eq!((b.state(), depths_of(&b)), (QpState::Idle, (128, 128)));
    b.qp.modify(QpChange::start(&at_b, framing).recv_depth(5))
        .unwrap();
    a.qp.modify(QpChange::start(&at_a, framing).send_depth(9))
        .unwrap();
    assert_eq!((depths_of(&a), depths_of(&b)), ((9, 128), (128, 5)));
    sim.run_until_idle();
    assert_eq!((a.sends(), b.receives()), (sent(5), received(5)));
}

/// Work that is done is outstanding until its completion is polled.
#[test]
fn fewer_than_are_outstanding_is_refused_and_changes_nothing() {
    type Refusal = (fn(QpChange) -> QpChange, &'static str, usize, usize);
    let mut sim = sim();
    let (mut a, mut b) = pair(&mut sim);
    (0..6).for_each(|id| a.qp.post_recv(buffer(id)).unwrap());
    (0..6).for_each(|id| b.qp.post_recv(buffer(id)).unwrap());
    for id in 0..4 {
        a.post(send(id));
        b.post(send(id));
    }
    sim.run_until_idle();
    let before = a.qp.query().unwrap();
    #[rustfmt::skip]
    let refusals: [Refusal; 4] = [
        (|it| it.send_depth(3), "the send queue", 4, 3),
        (|it| it.recv_depth(5), "the receive queue", 6, 5),
        (|it| it.ord(1).send_depth(100).recv_depth(5), "the receive queue", 6, 5),
        (|it| it.ird(1).send_depth(1).recv_depth(100), "the send queue", 4, 1),
    ];
    for (change, what, present, wanted) in refusals {
        let refused = a.qp.modify(change(QpChange::to(QpState::Rts)));
        let too_many = ModifyError::TooManyPresent {
            what,
            present,
            wanted,
        };
        assert_eq!(refused, Err(too_many));
        assert_eq!(a.qp.query().unwrap(), before, "{what}");
    }
    // It fits exactly; and the slots that are polled are free in the new queue.
    let exactly = QpChange::to(QpState::Rts).send_depth(4).recv_depth(6);
    a.qp.modify(exactly).unwrap();
    assert_eq!(fill(&mut a), (0, 0));
    assert_eq!((a.sends(), a.receives()), (sent(4), received(4)));
    assert_eq!(fill(&mut a), (4, 4));
}

#[test]
fn refused_change_leaves_the_capacity_as_it_was() {
    let mut sim = sim();
    let (mut a, _b) = pair(&mut sim);
    let rts = || QpChange::to(QpState::Rts);
    a.qp.modify(rts().send_depth(8).recv_depth(8)).unwrap();
    (0..5).for_each(|id| a.qp.post_recv(buffer(id)).unwrap());
    assert!(a.qp.modify(rts().send_depth(2).recv_depth(4)).is_err());
    assert_eq!(a.qp.post_recv_list((5..8).map(buffer)), Ok(3));
    let full = Err(PostError::TooManyWorkRequests(8));
    assert_eq!(a.qp.post_recv(buffer(8)), full);
    assert_eq!(a.qp.post_recv(buffer(8)), full, "and again");
}

#[test]
fn depth_beyond_the_rnic_is_refused_and_changes_nothing() {
    let mut sim = sim();
    let max = sim.a().rnic().query().unwrap().max_work_requests;
    let ends = [pair(&mut sim).0, end(&sim, true)];
    for mut end in ends {
        let before = end.qp.query().unwrap();
        let change = || QpChange::to(before.state);
        for wanted in [0, max + 1, usize::MAX] {
            let capability = |what| {
                let min = 1;
                Err(ModifyError::Capability(
                    CapabilityError::check(what, wanted, min, max).unwrap_err(),
                ))
            };
            let refused = end.qp.modify(change().send_depth(wanted));
            assert_eq!(refused, capability("a send queue of depth"));
            let refused = end.qp.modify(change().recv_depth(wanted).ord(1));
            assert_eq!(refused, capability("a receive queue of depth"));
            assert_eq!(end.qp.query().unwrap(), before);
        }
        let largest = change().send_depth(max).recv_depth(max);
        let depths = end.qp.modify(largest).unwrap();
        assert_eq!((depths.send_depth, depths.recv_depth), (max, max));
    }
}

#[test]
fn queue_pair_with_a_shared_receive_queue_has_no_depth_of_it() {
    let mut sim = sim();
    let srq = sim.b().pd().create_srq(SrqConfig::default()).unwrap();
    let config = QpConfig::default().recv_depth(0);
    let (mut a, mut b) = (end(&sim, true), end_with_srq(&sim.b(), &config, &srq));
    sim.connect(&mut a, &mut b);
    let before = b.qp.query().unwrap();
    for change in [
        QpChange::to(QpState::Rts),
        QpChange::to(QpState::Rts).ord(1),
    ] {
        let refused = b.qp.modify(change.send_depth(9).recv_depth(9));
        assert!(
            matches!(refused, Err(ModifyError::InvalidModifier { .. })),
            "{refused:?}"
        );
        assert_eq!(b.qp.query().unwrap(), before);
    }
    let depths = b.qp.modify(QpChange::to(QpState::Rts).send_depth(9));
    let depths = depths.unwrap();
    assert_eq!((depths.send_depth, depths.recv_depth), (9, 0));
    assert_eq!(srq.query().unwrap().depth, SrqConfig::default().depth);
}

#[test]
fn work_in_former_rings_is_flushed_first() {
    for way in [QpState::Error, QpState::Terminate] {
        let mut sim = sim().expecting(&["drop_no_flow", "drop_after_failure"]);
        let (mut a, _b) = pair(&mut sim);
        for n in 0..6 {
            // All wait for the Read, which is not answered before the end.
            let nowhere = RemoteAddress {
                stag: Stag::PLACEHOLDER,
                to: 0,
            };
            let sink = a.target(8).local(0, 0);
            let read = SendRequest::read(WrId(0), sink, nowhere);
            a.post(if n == 0 { read } else { send(n).fenced() });
            a.qp.post_recv(buffer(n)).unwrap();
            let change = QpChange::to(QpState::Rts);
            let change = change.send_depth(7).recv_depth(6 + n);
            a.qp.modify(change).unwrap();
        }
        a.qp.modify(QpChange::to(way)).unwrap();
        let kind = |id| if id == 0 { Opcode::Read } else { Opcode::Send };
        let sends: Vec<Done> = (0..6).map(|id| Done::flushed(id, kind(id))).collect();
        let recvs: Vec<Done> = (0..6)
            .map(|id| Done::flushed(id, Opcode::Receive))
            .collect();
        assert_eq!((a.sends(), a.receives()), (sends, recvs));
        sim.run_until_idle();
        assert_eq!(depths_of(&a), (7, 11));
        a.qp.modify(QpChange::to(QpState::Idle)).unwrap();
        assert_eq!(fill(&mut a), (7, 11), "all slots are free");
    }
}

#[test]
fn depths_can_be_changed_while_a_connection_is_made() {
    let mut sim = sim();
    let (mut a, mut b) = (end(&sim, true), end(&sim, false));
    let at = b.host().at(sim.new_port());
    let mut listener = b.host().rnic().listen(at).unwrap();
    a.post(send(0));
    b.qp.post_recv(buffer(0)).unwrap();
    let limit = Duration::from_secs(10);
    let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
    let change = || QpChange::to(QpState::Idle).send_depth(1);
    a.qp.modify(change()).unwrap();
    assert_eq!(
        a.qp.modify(change().ird(3)),
        Err(ModifyError::Connecting),
        "what is being negotiated is not"
    );
    let request = sim.wait_for("a request", || listener.try_accept().unwrap());
    request.accept(&mut b.qp, b"").unwrap();
    sim.wait_for("the answer", || connecting.try_finish())
        .unwrap();
    sim.run_until_idle();
    assert_eq!((a.sends(), b.receives()), (sent(1), received(1)));
    assert_eq!(depths_of(&a), (1, 128));
}

#[test]
fn queues_whose_data_path_was_taken_are_resized_when_it_is_back() {
    let mut sim = sim();
    let (mut a, mut b) = pair(&mut sim);
    b.qp.post_recv(buffer(0)).unwrap();
    let mut path = a.qp.take_data_path().unwrap();
    let before = a.qp.query().unwrap();
    let change = || QpChange::to(QpState::Rts).ord(1).send_depth(2);
    assert_eq!(a.qp.modify(change()), Err(ModifyError::DataPathTaken));
    assert_eq!(a.qp.query().unwrap(), before);
    path.post_send(send(0)).unwrap();
    a.qp.return_data_path(path).unwrap();
    assert_eq!(a.qp.modify(change()).unwrap().send_depth, 2);
    let mut path = a.qp.take_data_path().unwrap();
    path.post_send(send(1)).unwrap();
    b.qp.post_recv(buffer(1)).unwrap();
    let full = Err(PostError::TooManyWorkRequests(2));
    assert_eq!(path.post_send(send(2)), full);
    sim.run_until_idle();
    assert_eq!((a.sends(), b.receives()), (sent(2), received(2)));
}

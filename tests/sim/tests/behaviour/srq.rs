//! Shared receive queues: whose buffer a message takes, what is told of them, and what stays when a queue pair ends.

use std::time::Duration;

use xwarp::{
    Access, AsyncEvent, AsyncEventKind, CompletionStatus, CreateError, DestroyError, EventResource,
    MemoryRegion, ModifySrqError, Opcode, PostError, QpChange, QpConfig, QpState, RecvRequest,
    ResizeError, SendRequest, Sgl, SharedReceiveQueue, SrqConfig, SrqInfo, TermCode, WrId,
};
use xwarp_netsim::Seed;
use xwarp_sim_tests::{Done, End, Host, Sim, for_each_seed};

/// Octets of a receive buffer.
const LEN: usize = 8;

fn sim() -> Sim {
    Sim::new(Seed(61)).one_way_delay(Duration::from_micros(50))
}

fn config(depth: usize, limit: usize) -> SrqConfig {
    SrqConfig {
        depth,
        limit,
        ..SrqConfig::default()
    }
}

fn queue(host: &Host, depth: usize, limit: usize) -> SharedReceiveQueue {
    host.pd().create_srq(config(depth, limit)).unwrap()
}

/// Ends of the first host that send, each to one of the second that receives into buffers of `srq`.
fn pairs(sim: &mut Sim, srq: &SharedReceiveQueue, n: usize) -> Vec<(End, End)> {
    // Its depth is not looked at.
    let takes = QpConfig {
        recv_depth: 0,
        ..QpConfig::default()
    };
    let mut pairs = Vec::new();
    for _ in 0..n {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        let (send_cq, recv_cq) = b.cqs();
        let qp = b
            .host()
            .pd()
            .create_qp_with_srq(&takes, send_cq, recv_cq, srq);
        b.qp = qp.unwrap();
        sim.connect(&mut a, &mut b);
        pairs.push((a, b));
    }
    pairs
}

/// Posts buffers, all in one region.
fn post(host: &Host, srq: &mut SharedReceiveQueue, ids: std::ops::Range<u64>) -> MemoryRegion {
    let region = host.region(LEN * 64, Access::LOCAL_WRITE);
    for id in ids {
        let sge = region.local(id * 8, 8);
        srq.post_recv(RecvRequest::new(WrId(id), sge)).unwrap();
    }
    region
}

fn full(srq: &mut SharedReceiveQueue) -> bool {
    let request = RecvRequest::new(WrId(99), Sgl::new());
    srq.post_recv(request) == Err(PostError::TooManyWorkRequests(srq.query().unwrap().depth))
}

#[test]
fn messages_of_all_queue_pairs_take_buffers_in_the_order_of_their_arrival() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 16, 0);
    let mut pairs = pairs(&mut sim, &srq, 3);
    let region = post(&sim.b(), &mut srq, 0..9);
    let order = [2, 0, 0, 1, 2, 1, 1, 1, 0];
    let mut expected = [vec![], vec![], vec![]];
    for (id, who) in (0..).zip(order) {
        let (a, _) = &mut pairs[who];
        a.post_send(id, format!("from {who} {id}").as_bytes());
        expected[who].push(Done::receive(id, 8));
        sim.run_until_idle();
    }
    for ((a, b), expected) in pairs.iter_mut().zip(expected) {
        assert_eq!(b.receives(), expected, "on its own completion queue");
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    }
    for (id, who) in (0..).zip(order) {
        let octets = region.bytes().to_vec();
        assert_eq!(
            octets[id * 8..][..8],
            *format!("from {who} {id}").as_bytes()
        );
    }
}

#[test]
fn any_one_queue_pair_may_take_all_buffers_again_and_again() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 2);
    for round in 0..10 {
        let (a, b) = &mut pairs[round % 2];
        for id in 0..4 {
            srq.post_recv(RecvRequest::new(WrId(id), Sgl::new()))
                .unwrap();
            a.post(SendRequest::send(WrId(id), Sgl::new()));
        }
        assert!(full(&mut srq));
        sim.run_until_idle();
        assert!(full(&mut srq), "taken and filled, but not polled");
        for id in 0..4 {
            let received = b.recv_cq().poll().unwrap().map(Done::from);
            assert_eq!(received, Some(Done::receive(id, 0)));
        }
        assert_eq!(a.sends().len(), 4);
    }
}

#[test]
fn a_slot_comes_back_with_every_completion_that_is_polled() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 3, 0);
    let mut pairs = pairs(&mut sim, &srq, 2);
    (0..3).for_each(|id| {
        srq.post_recv(RecvRequest::new(WrId(id), Sgl::new()))
            .unwrap();
    });
    for id in 0..20 {
        let (a, b) = &mut pairs[usize::from(id % 3 == 0)];
        a.post(SendRequest::send(WrId(id), Sgl::new()));
        sim.run_until_idle();
        assert!(full(&mut srq));
        assert_eq!(b.receives(), [Done::receive(id, 0)]);
        srq.post_recv(RecvRequest::new(WrId(id + 3), Sgl::new()))
            .unwrap();
        a.sends();
    }
}

#[test]
fn a_message_of_many_segments_takes_one_buffer() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 1);
    let (a, b) = &mut pairs[0];
    let (large, text) = (b.target(100_000), xwarp_sim_tests::pattern(100_000));
    srq.post_recv(RecvRequest::new(WrId(1), large.local(0, 100_000)))
        .unwrap();
    srq.post_recv(RecvRequest::new(WrId(2), Sgl::new()))
        .unwrap();
    a.post_send(1, &text);
    a.post(SendRequest::send(WrId(2), Sgl::new()));
    sim.run_until_idle();
    assert_eq!(
        b.receives(),
        [Done::receive(1, 100_000), Done::receive(2, 0)]
    );
    assert!(large.to_vec() == text);
}

#[test]
fn with_losses_every_buffer_completes_once_and_each_queue_pair_in_order() {
    for_each_seed(|seed| {
        let mut sim = Sim::on_a_bad_link(seed);
        let mut srq = queue(&sim.b(), 64, 0);
        let mut pairs = pairs(&mut sim, &srq, 3);
        let region = post(&sim.b(), &mut srq, 0..60);
        for n in 0..60_u64 {
            let (a, _) = &mut pairs[usize::try_from(n % 3).unwrap()];
            a.post_send(n, &n.to_be_bytes());
        }
        sim.run_until_idle();
        let octets = region.bytes().to_vec();
        let mut all = Vec::new();
        for ((_, b), who) in pairs.iter_mut().zip(0..) {
            let ids: Vec<u64> = b.receives().iter().map(|done| done.wr_id).collect();
            let text = |id: &u64| {
                let at = usize::try_from(*id).unwrap() * LEN;
                u64::from_be_bytes(octets[at..at + LEN].try_into().unwrap())
            };
            let sent: Vec<u64> = ids.iter().map(text).collect();
            assert_eq!(sent, (who..60).step_by(3).collect::<Vec<u64>>());
            all.extend(ids);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..60));
    });
}

#[test]
fn the_queue_pairs_own_receive_queue_is_none() {
    let mut sim = sim();
    let srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 1);
    let (_, b) = &mut pairs[0];
    let request = RecvRequest::new(WrId(1), Sgl::new());
    assert_eq!(b.qp.post_recv(request), Err(PostError::SharedReceiveQueue));
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn an_end_flushes_what_was_taken_and_leaves_the_rest_to_others() {
    let mut sim = sim().expecting(&["drop_no_flow", "drop_after_failure"]);
    let mut srq = queue(&sim.b(), 8, 0);
    let mut pairs = pairs(&mut sim, &srq, 2);
    let target = sim.b().target(100_000);
    srq.post_recv(RecvRequest::new(WrId(0), target.local(0, 100_000)))
        .unwrap();
    let _region = post(&sim.b(), &mut srq, 1..3);
    let (a, _) = &mut pairs[0];
    a.post_send(1, &xwarp_sim_tests::pattern(100_000));
    // Some of it is there, but not all.
    sim.run_for(Duration::from_micros(60));
    a.qp.abort().unwrap();
    sim.run_until_idle();
    assert_eq!(pairs[0].1.state(), QpState::Error);
    assert_eq!(pairs[0].1.receives(), [Done::flushed(0, Opcode::Receive)]);
    let (a, b) = &mut pairs[1];
    a.post_send(1, b"to b one");
    a.post_send(2, b"to b two");
    sim.run_until_idle();
    assert_eq!(b.receives(), [1, 2].map(|id| Done::receive(id, 8)));
}

#[test]
fn no_end_of_a_queue_pair_flushes_what_it_has_not_taken() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let mut srq = queue(&sim.b(), 8, 0);
    let mut pairs = pairs(&mut sim, &srq, 4);
    let _region = post(&sim.b(), &mut srq, 0..3);
    pairs[0].1.qp.abort().unwrap();
    pairs[1].0.qp.begin_disconnect().unwrap();
    let bad = xwarp::Sge {
        stag: xwarp::Stag(0x1234_5678),
        to: 0,
        len: 1,
    };
    pairs[2].1.post(SendRequest::send(WrId(5), bad));
    sim.run_until_idle();
    let states = [0, 1, 2].map(|i| pairs[i].1.state());
    assert_eq!(states, [QpState::Error, QpState::Idle, QpState::Error]);
    for (_, b) in &mut pairs[..3] {
        assert_eq!(b.receives(), []);
    }
    let (a, b) = &mut pairs[3];
    (0..3).for_each(|id| a.post_send(id, b"8 octets"));
    sim.run_until_idle();
    assert_eq!(b.receives(), [0, 1, 2].map(|id| Done::receive(id, 8)));
}

#[test]
fn modify_qp_flushes_no_shared_buffers_and_they_are_there_for_the_next_connection() {
    for way in [QpState::Closing, QpState::Terminate, QpState::Error] {
        let mut sim = sim().expecting(&["drop_no_flow", "drop_after_failure"]);
        let mut srq = queue(&sim.b(), 8, 0);
        let mut pairs = pairs(&mut sim, &srq, 1);
        let _region = post(&sim.b(), &mut srq, 0..1);
        sim.run_until_idle();
        let (a, b) = &mut pairs[0];
        b.qp.modify(QpChange::to(way)).unwrap();
        sim.run_until_idle();
        assert_eq!(b.receives(), [], "{way:?}");
        for end in [&mut *a, &mut *b] {
            if end.state() == QpState::Error {
                end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
            }
        }
        sim.connect(a, b);
        a.post_send(1, b"8 octets");
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(0, 8)], "{way:?}");
    }
}

#[test]
fn a_query_of_a_queue_pair_tells_where_it_takes_buffers_from() {
    let mut sim = sim();
    let srq = queue(&sim.b(), 4, 0);
    let pairs = pairs(&mut sim, &srq, 1);
    let (a, b) = &pairs[0];
    let (own, shared) = (a.qp.query().unwrap(), b.qp.query().unwrap());
    assert_eq!((own.srq, shared.srq), (None, Some(srq.id())));
    assert_eq!((own.recv_depth, shared.recv_depth), (128, 0));
}

#[test]
fn a_message_that_finds_no_buffer_ends_its_stream_alone() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let mut srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 2);
    let (a, b) = &mut pairs[0];
    a.post_send(1, b"8 octets");
    sim.run_until_idle();
    assert_eq!((b.state(), b.receives()), (QpState::Error, vec![]));
    let code = TermCode::ddp_untagged(2);
    assert_eq!(a.events(), [AsyncEventKind::TerminateReceived(code)]);
    let _region = post(&sim.b(), &mut srq, 0..1);
    let (a, b) = &mut pairs[1];
    a.post_send(1, b"8 octets");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(0, 8)]);
}

#[test]
fn buffers_are_of_the_shared_queues_domain_not_of_the_queue_pairs() {
    let outcomes = [("of the queue", true), ("of the queue pair", false)];
    for (case, fits) in outcomes {
        let mut sim = sim().expecting(&["drop_after_failure"]);
        let pd = sim.b().rnic().allocate_pd().unwrap();
        let mut srq = pd.create_srq(config(4, 0)).unwrap();
        assert_eq!(srq.query().unwrap().pd, pd.id());
        let mut pairs = pairs(&mut sim, &srq, 2);
        let of_queue = sim.b().region_in(&pd, LEN, Access::LOCAL_WRITE);
        let of_pair = sim.b().region(LEN, Access::LOCAL_WRITE);
        let region = if fits { &of_queue } else { &of_pair };
        srq.post_recv(RecvRequest::new(WrId(1), region.local(0, 8)))
            .unwrap();
        srq.post_recv(RecvRequest::new(WrId(2), of_queue.local(0, 8)))
            .unwrap();
        let (a, b) = &mut pairs[0];
        a.post_send(1, b"8 octets");
        sim.run_until_idle();
        let failed = Done::failed(1, Opcode::Receive, CompletionStatus::InvalidPd);
        let expected = if fits { Done::receive(1, 8) } else { failed };
        assert_eq!(b.receives(), [expected], "{case}");
        let (a, b) = &mut pairs[1];
        a.post_send(1, b"8 octets");
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(2, 8)], "{case}: others go on");
    }
}

#[test]
fn stag_zero_is_judged_by_the_queue_pair_that_takes_it() {
    for privileged in [true, false] {
        let mut sim = sim().expecting(&["drop_after_failure"]);
        let mut srq = queue(&sim.b(), 4, 0);
        let mut a = sim.a().end(&QpConfig::default());
        let mut b = sim.b().end(&QpConfig::default());
        let config = QpConfig {
            privileged,
            ..QpConfig::default()
        };
        let (send_cq, recv_cq) = b.cqs();
        let qp = b
            .host()
            .pd()
            .create_qp_with_srq(&config, send_cq, recv_cq, &srq);
        b.qp = qp.unwrap();
        sim.connect(&mut a, &mut b);
        let memory = sim.b().rnic().allocate_memory(LEN).unwrap();
        let to = sim.b().rnic().physical_address(&memory).unwrap();
        let sge = xwarp::Sge {
            stag: xwarp::Stag(0),
            to,
            len: 8,
        };
        srq.post_recv(RecvRequest::new(WrId(1), sge)).unwrap();
        a.post_send(1, b"8 octets");
        sim.run_until_idle();
        let failed = Done::failed(1, Opcode::Receive, CompletionStatus::InvalidStag);
        let expected = if privileged {
            Done::receive(1, 8)
        } else {
            failed
        };
        assert_eq!(b.receives(), [expected], "privileged: {privileged}");
        let state = if privileged {
            QpState::Rts
        } else {
            QpState::Error
        };
        assert_eq!(b.state(), state);
    }
}

fn limit_of(srq: &SharedReceiveQueue) -> AsyncEvent {
    AsyncEvent {
        resource: EventResource::Srq(srq.id()),
        kind: AsyncEventKind::SrqLimitReached,
    }
}

#[test]
fn the_limit_is_told_once_per_arming_when_fewer_are_left() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 16, 3);
    let reached = limit_of(&srq);
    let mut pairs = pairs(&mut sim, &srq, 2);
    let region = post(&sim.b(), &mut srq, 0..5);
    let mut told = Vec::new();
    for id in 0..4 {
        let (a, _) = &mut pairs[usize::from(id % 2 == 0)];
        a.post_send(id, b"8 octets");
        sim.run_until_idle();
        told.push(sim.b().other_events());
    }
    let once = |at| {
        (0..4).map(move |i| {
            if i == at {
                vec![reached.clone()]
            } else {
                vec![]
            }
        })
    };
    assert!(
        told.into_iter().eq(once(2)),
        "4 and 3 are left, then 2, then 1"
    );
    assert!(!srq.query().unwrap().armed);
    // Armed again, twice, it is told by the next message, with so few left, once.
    srq.arm_limit(2).unwrap();
    srq.arm_limit(4).unwrap();
    assert!(srq.query().unwrap().armed);
    let sge = region.local(0, 8);
    srq.post_recv(RecvRequest::new(WrId(9), sge)).unwrap();
    for _ in 0..2 {
        pairs[0].0.post_send(9, b"8 octets");
    }
    sim.run_until_idle();
    let reached = limit_of(&srq);
    assert_eq!(sim.b().other_events(), [reached]);
    let received: usize = pairs.iter_mut().map(|(_, b)| b.receives().len()).sum();
    assert_eq!(received, 6, "nothing else has changed");
}

#[test]
fn a_limit_of_nothing_is_never_told() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 4, 2);
    srq.arm_limit(0).unwrap();
    let mut pairs = pairs(&mut sim, &srq, 1);
    let _region = post(&sim.b(), &mut srq, 0..4);
    (0..4).for_each(|id| pairs[0].0.post_send(id, b"8 octets"));
    sim.run_until_idle();
    assert_eq!(sim.b().other_events(), []);
}

#[test]
fn what_was_asked_for_is_what_a_query_tells() {
    let sim = sim();
    let mut srq = queue(&sim.b(), 16, 5);
    let info = SrqInfo {
        pd: sim.b().pd().id(),
        depth: 16,
        sge: xwarp::MAX_SGE,
        limit: 5,
        armed: true,
    };
    assert_eq!(srq.query(), Ok(info));
    srq.resize(20).unwrap();
    srq.arm_limit(0).unwrap();
    let info = SrqInfo {
        depth: 20,
        limit: 0,
        armed: false,
        ..info
    };
    assert_eq!(srq.query(), Ok(info));
    let others: Vec<_> = (0..9).map(|_| queue(&sim.b(), 1, 0)).collect();
    assert!(
        others
            .iter()
            .all(|other| other.query().unwrap().pd == info.pd)
    );
}

#[test]
fn sizes_and_limits_that_are_not_possible_are_refused_and_change_nothing() {
    let sim = sim();
    let create = |depth, limit| sim.b().pd().create_srq(config(depth, limit)).err();
    for depth in [0, (1 << 16) + 1] {
        assert!(matches!(create(depth, 0), Some(CreateError::Capability(_))));
    }
    assert!(matches!(
        create(4, 5),
        Some(CreateError::LimitOutOfRange { limit: 5, depth: 4 })
    ));
    let mut srq = queue(&sim.b(), 8, 6);
    let before = srq.query();
    let below = ModifySrqError::BelowLimit { depth: 5, limit: 6 };
    assert_eq!(srq.resize(5), Err(below));
    let out_of_range = ModifySrqError::LimitOutOfRange { limit: 9, depth: 8 };
    assert_eq!(srq.arm_limit(9), Err(out_of_range));
    let _region = post(&sim.b(), &mut srq, 0..7);
    assert!(matches!(
        srq.resize((1 << 16) + 1),
        Err(ModifySrqError::Resize(ResizeError::Capability(_)))
    ));
    let too_many = ResizeError::TooManyPresent {
        present: 7,
        wanted: 6,
    };
    assert_eq!(srq.resize(6), Err(too_many.into()));
    assert_eq!(srq.query(), before);
    assert_eq!(srq.resize(7), Ok(()));
    assert!(full(&mut srq));
}

#[test]
fn resizing_under_load_loses_no_buffer_and_keeps_their_order() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 8, 0);
    let mut pairs = pairs(&mut sim, &srq, 2);
    let (mut posted, mut seen) = (0, Vec::new());
    for round in 0..60_u64 {
        let depth = 8 + usize::try_from(round * 7 % 13).unwrap();
        srq.resize(depth).unwrap();
        while srq
            .post_recv(RecvRequest::new(WrId(posted), Sgl::new()))
            .is_ok()
        {
            posted += 1;
        }
        for who in [0, 1] {
            let (a, b) = &mut pairs[who];
            (0..4).for_each(|id| a.post(SendRequest::send(WrId(id), Sgl::new())));
            sim.run_until_idle();
            seen.extend(b.receives().iter().map(|done| done.wr_id));
            a.sends();
        }
        // So that the next depth has room for what is left.
        while usize::try_from(posted).unwrap() - seen.len() > 8 {
            let (a, b) = &mut pairs[0];
            a.post(SendRequest::send(WrId(0), Sgl::new()));
            sim.run_until_idle();
            seen.extend(b.receives().iter().map(|done| done.wr_id));
            a.sends();
        }
    }
    assert!(seen.len() >= 480);
    assert!((0..).zip(&seen).all(|(i, id)| i == *id));
    assert_eq!(sim.b().other_events(), []);
}

#[test]
fn one_that_is_in_use_is_not_destroyed_and_what_is_posted_goes_with_it() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let mut srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 1);
    let _region = post(&sim.b(), &mut srq, 0..4);
    let refused = srq.destroy().expect_err("a refusal");
    assert_eq!(refused.error, DestroyError::InUse);
    let srq = *refused.object;
    let (mut a, mut b) = pairs.pop().unwrap();
    a.post_send(1, b"8 octets");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(0, 8)], "it is as it was");
    b.qp = b
        .host()
        .pd()
        .create_qp(&QpConfig::default(), b.cqs().0, b.cqs().1)
        .unwrap();
    assert!(srq.destroy().is_ok());
    sim.run_until_idle();
    assert_eq!(b.receives(), [], "no completion");
}

#[test]
fn they_are_limited_and_come_back_when_they_are_destroyed() {
    let sim = sim();
    let mut all = Vec::new();
    let refused = loop {
        match sim.b().pd().create_srq(config(1, 0)) {
            Ok(srq) => all.push(srq),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CreateError::Capability(it) if it.max == all.len()));
    assert!(all.pop().unwrap().destroy().is_ok());
    drop(all.pop());
    (0..2).for_each(|_| all.push(queue(&sim.b(), 1, 0)));
    assert!(sim.b().pd().create_srq(config(1, 0)).is_err());
}

#[test]
fn dropping_one_that_is_in_use_leaves_its_buffers_to_the_queue_pairs() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 1);
    let _region = post(&sim.b(), &mut srq, 0..1);
    drop(srq);
    let (a, b) = &mut pairs[0];
    a.post_send(1, b"8 octets");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(0, 8)]);
}

#[test]
fn one_of_another_rnic_is_refused() {
    let sim = sim();
    let (srq, b) = (queue(&sim.a(), 4, 0), sim.b());
    let cq = b.rnic().create_cq(4).unwrap();
    let made = b
        .pd()
        .create_qp_with_srq(&QpConfig::default(), &cq, &cq, &srq);
    assert!(matches!(made.err(), Some(CreateError::InvalidSrq)));
}

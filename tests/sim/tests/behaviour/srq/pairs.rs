//! Queue pairs at a shared receive queue: what one takes, what stays when it ends, and whose domain
//! counts (verbs draft §6.3).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::{PostError, TermCode};
use xwarp::event::AsyncEventKind;
use xwarp::work::Sgl;
use xwarp::{Access, CompletionStatus, Opcode, QpConfig, QpState, RecvRequest, SendRequest, WrId};
use xwarp_sim_tests::{Done, needs_link};

use super::{LEN, config, full, pairs, post, queue, sim};

#[test]
fn queue_pairs_own_receive_queue_is_none() {
    let mut sim = sim();
    let srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 1);
    let (_, b) = &mut pairs[0];
    let request = RecvRequest::new(WrId(1), Sgl::new());
    assert_eq!(b.qp.post_recv(request), Err(PostError::SharedReceiveQueue));
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn end_flushes_what_was_taken_and_leaves_the_rest_to_others() {
    needs_link!("it counts segments of a link's MTU");
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
    (0..3).for_each(|id| a.post_send(id, b"8 bytes!"));
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
        a.post_send(1, b"8 bytes!");
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(0, 8)], "{way:?}");
    }
}

#[test]
fn query_of_a_queue_pair_tells_where_it_takes_buffers_from() {
    let mut sim = sim();
    let srq = queue(&sim.b(), 4, 0);
    let pairs = pairs(&mut sim, &srq, 1);
    let (a, b) = &pairs[0];
    let (own, shared) = (a.qp.query().unwrap(), b.qp.query().unwrap());
    assert_eq!((own.srq, shared.srq), (None, Some(srq.id())));
    assert_eq!((own.recv_depth, shared.recv_depth), (128, 0));
}

#[test]
fn message_that_finds_no_buffer_ends_its_stream_alone() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let mut srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 2);
    let (a, b) = &mut pairs[0];
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    assert_eq!((b.state(), b.receives()), (QpState::Error, vec![]));
    let code = TermCode::ddp_untagged(2);
    assert_eq!(a.events(), [AsyncEventKind::TerminateReceived(code)]);
    let _region = post(&sim.b(), &mut srq, 0..1);
    let (a, b) = &mut pairs[1];
    a.post_send(1, b"8 bytes!");
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
        a.post_send(1, b"8 bytes!");
        sim.run_until_idle();
        let failed = Done::failed(1, Opcode::Receive, CompletionStatus::InvalidPd);
        let expected = if fits { Done::receive(1, 8) } else { failed };
        assert_eq!(b.receives(), [expected], "{case}");
        let (a, b) = &mut pairs[1];
        a.post_send(1, b"8 bytes!");
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
        let config = QpConfig::default().privileged(privileged);
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
        a.post_send(1, b"8 bytes!");
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

/// The application does not poll them, and their slots are free nevertheless.
#[test]
fn completions_that_are_discarded_free_the_slots_of_the_shared_queue() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let mut srq = queue(&sim.b(), 4, 0);
    let (mut a, mut b) = pairs(&mut sim, &srq, 1).remove(0);
    let _region = post(&sim.b(), &mut srq, 0..4);
    (0..3).for_each(|id| a.post_send(id, b"8 bytes!"));
    sim.run_until_idle();
    assert!(full(&mut srq), "they are not polled");
    let spare = sim.b().end(&QpConfig::default()).qp;
    let gone = std::mem::replace(&mut b.qp, spare);
    let id = gone.id();
    assert!(gone.destroy().is_ok());
    assert!(full(&mut srq), "they may be polled still");
    assert_eq!(b.recv_cq().discard(id), Ok(3));
    let free = || RecvRequest::new(WrId(9), Sgl::new());
    (0..3).for_each(|_| srq.post_recv(free()).unwrap());
    assert!(full(&mut srq), "one has not been taken");
    sim.run_until_idle();
}

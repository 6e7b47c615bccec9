//! Create, query, modify and destroy (verbs draft §9.2.4).

use xwarp::error::{CreateError, DestroyError, ModifySrqError, ResizeError};
use xwarp::work::Sgl;
use xwarp::{QpConfig, RecvRequest, SendRequest, WrId};
use xwarp_sim_tests::Done;

use super::{config, full, pairs, post, queue, sim};

#[test]
fn query_tells_what_was_asked_for() {
    let sim = sim();
    let mut srq = queue(&sim.b(), 16, 5);
    let info = srq.query().unwrap();
    assert_eq!(info.pd, sim.b().pd().id());
    assert_eq!(info.sge, xwarp::work::MAX_SGE);
    assert_eq!((info.depth, info.limit, info.armed), (16, 5, true));
    srq.resize(20).unwrap();
    srq.arm_limit(0).unwrap();
    let now = srq.query().unwrap();
    assert_eq!((now.pd, now.sge), (info.pd, info.sge));
    assert_eq!((now.depth, now.limit, now.armed), (20, 0, false));
    let others: Vec<_> = (0..9).map(|_| queue(&sim.b(), 1, 0)).collect();
    assert!(
        others
            .iter()
            .all(|other| other.query().unwrap().pd == info.pd)
    );
}

#[test]
fn as_many_buffers_can_be_posted_as_a_queue_was_created_for() {
    let sim = sim();
    let max = sim.b().rnic().query().unwrap().max_srq_work_requests;
    for depth in [1, 7, 100, max] {
        let mut srq = queue(&sim.b(), depth, 0);
        let mut post = || srq.post_recv(RecvRequest::new(WrId(1), Sgl::new()));
        let posted = std::iter::from_fn(|| post().ok()).count();
        assert_eq!(posted, depth);
        assert!(full(&mut srq), "of {depth}");
    }
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
    a.post_send(1, b"8 bytes!");
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
    for srq in &mut all {
        let never_completes = RecvRequest::new(WrId(1), Sgl::new());
        srq.post_recv(never_completes).unwrap();
    }
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
    a.post_send(1, b"8 bytes!");
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

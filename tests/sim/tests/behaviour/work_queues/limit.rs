//! Limit of messages in progress, of a queue pair with a shared receive queue (verbs draft §6.3.8).

use std::time::Duration;

use xwarp::attr::{QpChange, RqLimit};
use xwarp::error::{CreateError, ModifyError};
use xwarp::event::AsyncEventKind;
use xwarp::{QpConfig, QpState, RecvRequest, SendRequest, SharedReceiveQueue, SrqConfig, WrId};
use xwarp_sim_tests::{Done, Sim, SimEnd, Target, needs_link, pattern};

use super::end_with_srq;

/// Bytes of a message. It has enough segments that the first ones arrive long before the last.
const LEN: usize = 100_000;
/// A time at which a part of the message has arrived.
const SOME: Duration = Duration::from_micros(300);
const DEPTH: usize = 8;

/// A message is on the link for 0.8 ms.
fn sim() -> Sim {
    super::sim().rate(1_000_000_000)
}

fn with_limit(rq_limit: usize) -> QpConfig {
    QpConfig::default().rq_limit(rq_limit)
}

/// The limit of an end's queue pair, and whether it is armed.
fn limit_of(end: &SimEnd) -> (usize, bool) {
    let RqLimit { limit, armed, .. } = end.qp.query().unwrap().rq_limit.unwrap();
    (limit, armed)
}

fn srq(sim: &Sim) -> SharedReceiveQueue {
    let config = SrqConfig::default().depth(DEPTH);
    sim.b().pd().create_srq(config).unwrap()
}

fn pair(sim: &mut Sim, srq: &SharedReceiveQueue, rq_limit: usize) -> (SimEnd, SimEnd) {
    let mut a = sim.a().end(&QpConfig::default());
    let mut b = end_with_srq(&sim.b(), &with_limit(rq_limit), srq);
    sim.connect(&mut a, &mut b);
    (a, b)
}

/// Posts buffers, and gives their memory.
fn post(sim: &Sim, srq: &mut SharedReceiveQueue, ids: std::ops::Range<u64>) -> Target {
    let target = sim.b().target(LEN);
    for id in ids {
        let request = RecvRequest::new(WrId(id), target.local(0, LEN));
        srq.post_recv(request).unwrap();
    }
    target
}

fn arm(end: &mut SimEnd) {
    let state = end.state();
    end.qp.modify(QpChange::to(state).arm_rq_limit()).unwrap();
}

#[test]
fn create_and_modify_set_it_and_a_query_tells_it() {
    let mut sim = sim();
    let srq = srq(&sim);
    for (asked, armed) in [(0, false), (3, true), (DEPTH, true)] {
        let end = end_with_srq(&sim.b(), &with_limit(asked), &srq);
        assert_eq!(limit_of(&end), (asked, armed));
    }
    let (mut a, mut b) = (
        sim.a().end(&QpConfig::default()),
        end_with_srq(&sim.b(), &with_limit(0), &srq),
    );
    for state in [QpState::Idle, QpState::Rts] {
        let to = || QpChange::to(state);
        b.qp.modify(to().rq_limit(2)).unwrap();
        assert_eq!(limit_of(&b), (2, state == QpState::Rts), "{state:?}");
        b.qp.modify(to().arm_rq_limit()).unwrap();
        assert_eq!(limit_of(&b), (2, true));
        b.qp.modify(to().rq_limit(DEPTH).arm_rq_limit()).unwrap();
        assert_eq!(limit_of(&b), (DEPTH, true), "armed already");
        b.qp.modify(to().ord(1)).unwrap();
        assert_eq!(limit_of(&b), (DEPTH, true), "not asked for");
        if state == QpState::Idle {
            sim.connect(&mut a, &mut b);
        }
    }
    assert_eq!((b.events(), a.qp.query().unwrap().rq_limit), (vec![], None));
}

#[test]
fn more_messages_in_progress_than_the_armed_limit_are_told_once_per_arming() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim();
    let mut srq = srq(&sim);
    let (mut a, mut b) = pair(&mut sim, &srq, 0);
    let buffer = post(&sim, &mut srq, 0..6);
    let text = pattern(LEN);
    let mut message = |sim: &mut Sim, b: &mut SimEnd, id| {
        a.post_send(id, &text);
        sim.run_for(SOME);
        let during = (b.receives(), b.events());
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(id, LEN)]);
        assert_eq!(
            (b.state(), b.events()),
            (QpState::Rts, vec![]),
            "nothing more"
        );
        assert!(buffer.to_vec() == text);
        during
    };
    let reached = AsyncEventKind::RqLimitReached;
    assert_eq!(message(&mut sim, &mut b, 0), (vec![], vec![]), "not armed");
    arm(&mut b);
    assert_eq!((b.events(), limit_of(&b)), (vec![], (0, true)));
    let told = (vec![], vec![reached]);
    assert_eq!(message(&mut sim, &mut b, 1), told, "before its completion");
    assert_eq!(limit_of(&b), (0, false));
    assert_eq!(
        message(&mut sim, &mut b, 2),
        (vec![], vec![]),
        "told already"
    );
    arm(&mut b);
    arm(&mut b);
    assert_eq!(message(&mut sim, &mut b, 3), told, "armed twice, told once");
    assert_eq!(message(&mut sim, &mut b, 4), (vec![], vec![]));
    assert_eq!(sim.b().other_events(), [], "the event is the queue pair's");
}

#[test]
fn messages_that_come_one_after_the_other_exceed_no_limit_of_one() {
    let mut sim = sim();
    let mut srq = srq(&sim);
    let (mut a, mut b) = pair(&mut sim, &srq, 1);
    let _buffer = post(&sim, &mut srq, 0..8);
    (0..7).for_each(|id| a.post_send(id, &pattern(LEN)));
    a.post(SendRequest::immediate(WrId(7), [0; 8]));
    let mut received = Vec::new();
    while received.len() < 8 {
        sim.run_for(SOME);
        assert_eq!(b.events(), []);
        received.extend(b.receives());
    }
    assert_eq!(limit_of(&b), (1, true));
}

#[test]
fn message_that_is_in_progress_already_counts_when_the_limit_is_armed_or_lowered() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim();
    let mut srq = srq(&sim);
    let (mut a, mut b) = pair(&mut sim, &srq, 2);
    let _buffer = post(&sim, &mut srq, 0..2);
    a.post_send(0, &pattern(LEN));
    sim.run_for(SOME);
    assert_eq!((b.receives(), b.events()), (vec![], vec![]));
    b.qp.modify(QpChange::to(QpState::Rts).rq_limit(1)).unwrap();
    assert_eq!(b.events(), [], "one is not more than one");
    b.qp.modify(QpChange::to(QpState::Rts).rq_limit(0)).unwrap();
    assert_eq!(b.events(), [AsyncEventKind::RqLimitReached]);
    arm(&mut b);
    let told = (b.events(), limit_of(&b));
    assert_eq!(told, (vec![AsyncEventKind::RqLimitReached], (0, false)));
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(0, LEN)]);
    arm(&mut b);
    assert_eq!((b.events(), limit_of(&b)), (vec![], (0, true)), "none is");
}

#[test]
fn messages_of_other_queue_pairs_do_not_count() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim();
    let mut srq = srq(&sim);
    let mut pairs = [0, 1, 2].map(|rq_limit| pair(&mut sim, &srq, rq_limit));
    let _buffer = post(&sim, &mut srq, 0..3);
    arm(&mut pairs[0].1);
    for (a, _) in &mut pairs {
        a.post_send(1, &pattern(LEN));
    }
    sim.run_for(SOME);
    let events = pairs.each_ref().map(|(_, b)| b.events());
    assert_eq!(
        events,
        [vec![AsyncEventKind::RqLimitReached], vec![], vec![]]
    );
    sim.run_until_idle();
    for (_, b) in &mut pairs {
        assert_eq!((b.receives().len(), b.events()), (1, vec![]));
    }
}

#[test]
fn flushed_messages_are_in_progress_no_more() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim().expecting(&["drop_no_flow", "drop_after_failure"]);
    let mut srq = srq(&sim);
    let (mut a, mut b) = pair(&mut sim, &srq, 0);
    let _buffer = post(&sim, &mut srq, 0..2);
    a.post_send(0, &pattern(LEN));
    sim.run_for(SOME);
    b.qp.modify(QpChange::to(QpState::Error)).unwrap();
    sim.run_until_idle();
    assert_eq!(b.receives().len(), 1);
    for end in [&mut a, &mut b] {
        end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
        end.events();
    }
    arm(&mut b);
    sim.connect(&mut a, &mut b);
    assert_eq!((b.events(), limit_of(&b)), (vec![], (0, true)));
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    assert_eq!(b.events(), [AsyncEventKind::RqLimitReached]);
}

#[test]
fn limits_that_are_not_possible_are_refused_and_change_nothing() {
    let mut sim = sim();
    let mut srq = srq(&sim);
    let cq = sim.b().rnic().create_cq(4).unwrap();
    let create = |rq_limit| {
        let (host, config) = (sim.b(), with_limit(rq_limit));
        host.pd().create_qp_with_srq(&config, &cq, &cq, &srq).err()
    };
    let Some(CreateError::LimitOutOfRange { limit, depth }) = create(DEPTH + 1) else {
        panic!("a limit that the queue cannot reach");
    };
    assert_eq!((limit, depth), (DEPTH + 1, DEPTH));
    let own = sim.b().pd().create_qp(&with_limit(1), &cq, &cq).err();
    assert!(matches!(own, Some(CreateError::LimitWithoutSrq(1))));

    let (_a, mut b) = pair(&mut sim, &srq, 3);
    for state in [QpState::Rts, QpState::Idle] {
        if state == QpState::Idle {
            b = end_with_srq(&sim.b(), &with_limit(3), &srq);
        }
        let before = b.qp.query().unwrap();
        let change = QpChange::to(state).rq_limit(DEPTH + 1).ord(1).send_depth(3);
        let (limit, depth) = (DEPTH + 1, DEPTH);
        let out_of_range = ModifyError::LimitOutOfRange { limit, depth };
        assert_eq!(b.qp.modify(change.arm_rq_limit()), Err(out_of_range));
        assert_eq!(b.qp.query().unwrap(), before);
    }
    srq.resize(DEPTH + 1).unwrap();
    b.qp.modify(QpChange::to(QpState::Idle).rq_limit(DEPTH + 1))
        .unwrap();
}

#[test]
fn limit_of_a_queue_pair_with_a_receive_queue_of_its_own_is_refused_and_changes_nothing() {
    let mut sim = sim();
    let srq = srq(&sim);
    let (mut a, _b) = pair(&mut sim, &srq, 3);
    let before = a.qp.query().unwrap();
    for change in [
        QpChange::to(QpState::Rts).rq_limit(0),
        QpChange::to(QpState::Rts).arm_rq_limit(),
    ] {
        let refused = a.qp.modify(change.ord(1));
        assert!(
            matches!(refused, Err(ModifyError::InvalidModifier { .. })),
            "{refused:?}"
        );
        assert_eq!(a.qp.query().unwrap(), before);
    }
}

#[test]
fn limit_goes_with_no_change_to_another_state() {
    for to in [QpState::Closing, QpState::Terminate, QpState::Error] {
        let mut sim = sim().expecting(&["drop_no_flow"]);
        let srq = srq(&sim);
        let (_a, mut b) = pair(&mut sim, &srq, 3);
        let before = b.qp.query().unwrap();
        for change in [
            QpChange::to(to).rq_limit(2),
            QpChange::to(to).arm_rq_limit(),
        ] {
            let refused = b.qp.modify(change);
            assert!(
                matches!(refused, Err(ModifyError::InvalidModifier { .. })),
                "{refused:?}"
            );
            assert_eq!(b.qp.query().unwrap(), before);
        }
    }
}

//! Completion queues as objects: what they tell of themselves, other sizes under load, and their
//! end.

use std::time::Duration;

use xwarp::error::{DestroyError, ResizeError};
use xwarp::event::AsyncEventKind;
use xwarp::work::Sgl;
use xwarp::{CompletionQueue, QpConfig, QpState, SendRequest, WrId};
use xwarp_sim_tests::{Done, Sim, SimEnd, for_each_seed};
use xwarp_test_kit::netsim::{Rng, Seed};

/// A Write of no bytes.
fn nothing(wr_id: u64) -> SendRequest {
    let nowhere = xwarp::RemoteAddress {
        stag: xwarp::Stag::PLACEHOLDER,
        to: 0,
    };
    SendRequest::write(WrId(wr_id), Sgl::new(), nowhere)
}

/// A connected pair whose first end has a completion queue of this size for sends.
fn pair_with(seed: Seed, entries: usize) -> (Sim, SimEnd, SimEnd) {
    let mut sim = Sim::new(seed).one_way_delay(Duration::from_micros(50));
    let config = QpConfig::default();
    let mut a = SimEnd::with_cqs(&sim.a(), &config, entries, 8);
    let mut b = sim.b().end(&config);
    sim.connect(&mut a, &mut b);
    (sim, a, b)
}

fn too_many(present: usize, wanted: usize) -> Result<(), ResizeError> {
    Err(ResizeError::TooManyPresent { present, wanted })
}

fn poll(cq: &mut CompletionQueue, n: usize) -> Vec<u64> {
    let completions = std::iter::from_fn(|| cq.poll().unwrap()).take(n);
    completions.map(|it| it.wr_id.0).collect()
}

#[test]
fn queue_has_as_many_entries_as_were_asked_for_until_that_is_changed() {
    let (mut sim, mut a, _b) = pair_with(Seed(41), 4);
    assert_eq!(
        (
            a.send_cq().query().unwrap().entries,
            a.send_cq().query().unwrap().handler
        ),
        (4, None)
    );
    for (entries, base) in [(7, 0), (2, 7), (5, 9)] {
        a.send_cq().resize(entries).unwrap();
        assert_eq!(a.send_cq().query().unwrap().entries, entries);
        let all = base..base + entries as u64;
        all.clone().for_each(|i| a.post(nothing(i)));
        sim.run_until_idle();
        assert_eq!(poll(a.send_cq(), 9), all.collect::<Vec<u64>>());
        assert!(!a.send_cq().overflowed());
    }
}

#[test]
fn size_that_the_content_does_not_fit_into_is_refused_and_changes_nothing() {
    let (mut sim, mut a, _b) = pair_with(Seed(42), 6);
    (0..5).for_each(|i| a.post(nothing(i)));
    sim.run_until_idle();
    assert_eq!(a.send_cq().resize(4), too_many(5, 4));
    assert_eq!(a.send_cq().query().unwrap().entries, 6);
    a.post(nothing(5));
    sim.run_until_idle();
    // A size that fits exactly; what was there before stays in front of what comes then, in former
    // rings, too.
    assert_eq!(a.send_cq().resize(6), Ok(()));
    assert_eq!(poll(a.send_cq(), 2), [0, 1]);
    assert_eq!(a.send_cq().resize(3), too_many(4, 3));
    (6..8).for_each(|i| a.post(nothing(i)));
    sim.run_until_idle();
    assert_eq!(a.send_cq().resize(5), too_many(6, 5));
    assert_eq!(poll(a.send_cq(), 9), [2, 3, 4, 5, 6, 7]);
    assert_eq!(a.send_cq().resize(1), Ok(()));
    for entries in [0, (1 << 20) + 1] {
        let refused = a.send_cq().resize(entries);
        assert!(matches!(refused, Err(ResizeError::Capability(it)) if it.max == 1 << 20));
    }
    assert_eq!(
        (a.send_cq().query().unwrap().entries, a.state()),
        (1, QpState::Rts)
    );
    assert_eq!((a.events(), a.host().other_events()), (vec![], vec![]));
}

#[test]
fn resizing_under_load_loses_and_doubles_no_completion() {
    for_each_seed(|seed| {
        let (mut sim, mut a, _b) = pair_with(seed, 64);
        let mut rng = Rng::new(seed, 7);
        let mut pick = |n: u64| rng.draw() % n;
        let (mut posted, mut seen) = (0, Vec::new());
        while seen.len() < 500 {
            while posted < 500 && posted - seen.len() as u64 <= pick(32) {
                a.post(nothing(posted));
                posted += 1;
            }
            sim.run_for(Duration::from_micros(pick(200)));
            let entries = 32 + usize::try_from(pick(64)).unwrap();
            assert_eq!(a.send_cq().resize(entries), Ok(()));
            let n = usize::try_from(pick(20)).unwrap();
            seen.extend(poll(a.send_cq(), n));
        }
        assert!(seen.into_iter().eq(0..500));
        assert!(!a.send_cq().overflowed());
    });
}

#[test]
fn queue_that_is_in_use_is_not_destroyed() {
    let (mut sim, mut a, _b) = pair_with(Seed(43), 4);
    let host = a.host().clone();
    let other = host.rnic().create_cq(1).unwrap();
    a.post(nothing(1));
    sim.run_until_idle();
    let cq = std::mem::replace(a.send_cq(), other);
    let refused = cq.destroy().expect_err("a refusal");
    assert_eq!(refused.error, DestroyError::InUse);
    let mut cq = *refused.object;
    assert_eq!(cq.poll().unwrap().map(Done::from), Some(Done::write(1, 0)));
    a.post(nothing(2));
    sim.run_until_idle();
    let qp = a.qp;
    qp.destroy().map_err(|refused| refused.error).unwrap();
    assert!(cq.destroy().is_ok(), "with a completion in it");
    let free = host.rnic().create_cq(1).unwrap();
    assert!(free.destroy().is_ok(), "one that nobody ever used");
}

#[test]
fn queues_are_limited_and_come_back_when_they_are_destroyed() {
    let sim = Sim::new(Seed(44));
    let host = sim.a();
    let mut queues = Vec::new();
    let refused = loop {
        match host.rnic().create_cq(1) {
            Ok(cq) => queues.push(cq),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, xwarp::error::CreateError::Capability(it) if it.max == queues.len()));
    assert!(queues.pop().unwrap().destroy().is_ok());
    assert!(host.rnic().create_cq(1).is_ok());
}

#[test]
fn queue_may_be_smaller_than_the_work_that_could_complete_on_it() {
    let sim = Sim::new(Seed(45));
    let host = sim.a();
    let cq = host.rnic().create_cq(1).unwrap();
    let config = QpConfig::default();
    assert!(host.pd().create_qp(&config, &cq, &cq).is_ok());
}

#[test]
fn overflow_leaves_queue_pairs_of_the_same_queue_alone_that_lose_nothing() {
    let mut sim = Sim::new(Seed(46)).expecting(&["drop_cq_overflow", "drop_after_failure"]);
    let config = QpConfig::default();
    let host = sim.a();
    let mut cq = host.rnic().create_cq(2).unwrap();
    let (mut a, mut c) = (host.end(&config), host.end(&config));
    a.qp = host.pd().create_qp(&config, &cq, &cq).unwrap();
    c.qp = host.pd().create_qp(&config, &cq, &cq).unwrap();
    let (mut b, mut d) = (sim.b().end(&config), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    sim.connect(&mut c, &mut d);
    (0..3).for_each(|i| a.post(nothing(i)));
    sim.run_until_idle();
    assert_eq!((a.state(), c.state()), (QpState::Error, QpState::Rts));
    assert_eq!(a.events(), [AsyncEventKind::SendCqError]);
    assert_eq!(poll(&mut cq, 9), [0, 1]);
    c.post(nothing(7));
    sim.run_until_idle();
    assert_eq!((poll(&mut cq, 9), c.events()), (vec![7], vec![]));
}

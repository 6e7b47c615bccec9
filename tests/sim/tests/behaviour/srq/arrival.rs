//! Messages of several queue pairs take buffers of a shared receive queue in their order of arrival
//! (verbs draft §6.3.5).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::work::Sgl;
use xwarp::{QpConfig, QpState, RecvRequest, SendRequest, WrId};
use xwarp_sim_tests::{Done, Sim, for_each_seed};

use super::{LEN, full, pairs, post, queue, sim};

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
        let bytes = region.bytes().to_vec();
        assert_eq!(bytes[id * 8..][..8], *format!("from {who} {id}").as_bytes());
    }
}

#[test]
fn messages_wait_for_buffers_that_are_posted_later() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 16, 0);
    let mut pairs = pairs(&mut sim, &srq, 3);
    for (a, b) in &mut pairs {
        let change = QpChange::to(QpState::Rts).await_receives(true);
        b.qp.modify(change).unwrap();
        for id in 0..3 {
            a.post_send(id, b"8 bytes!");
        }
    }
    sim.run_for(Duration::from_millis(50));
    let _region = post(&sim.b(), &mut srq, 0..9);
    sim.run_until_idle();
    let mut taken = Vec::new();
    for (_, b) in &mut pairs {
        assert_eq!((b.events(), b.state()), (vec![], QpState::Rts));
        let received = b.receives();
        assert_eq!(received.len(), 3);
        taken.extend(received);
    }
    let mut expected: Vec<_> = (0..9).map(|id| Done::receive(id, 8)).collect();
    for done in taken {
        let place = expected.iter().position(|it| *it == done);
        expected.remove(place.expect("each buffer is taken once"));
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
fn after_a_resize_any_one_queue_pair_may_take_all_buffers_still() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 4, 0);
    let mut pairs = pairs(&mut sim, &srq, 2);
    for (round, depth) in [64, 2, 128, 1].into_iter().enumerate() {
        srq.resize(depth).unwrap();
        let (a, b) = &mut pairs[round % 2];
        let ids = 0..u64::try_from(depth).unwrap();
        for id in ids.clone() {
            srq.post_recv(RecvRequest::new(WrId(id), Sgl::new()))
                .unwrap();
            a.post(SendRequest::send(WrId(id), Sgl::new()));
        }
        assert!(full(&mut srq), "{depth} and no more");
        sim.run_until_idle();
        assert!(
            b.receives()
                .into_iter()
                .eq(ids.map(|id| Done::receive(id, 0)))
        );
        assert_eq!(a.sends().len(), depth);
    }
}

#[test]
fn slot_comes_back_with_every_completion_that_is_polled() {
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
fn slot_comes_back_with_every_completion_that_is_discarded() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 3, 0);
    let (mut a, mut b) = pairs(&mut sim, &srq, 1).remove(0);
    for id in 0..3 {
        srq.post_recv(RecvRequest::new(WrId(id), Sgl::new()))
            .unwrap();
        a.post(SendRequest::send(WrId(id), Sgl::new()));
    }
    sim.run_until_idle();
    assert!(full(&mut srq));
    let (send_cq, recv_cq) = b.cqs();
    let config = QpConfig::default().recv_depth(0);
    let next = (sim.b().pd()).create_qp_with_srq(&config, send_cq, recv_cq, &srq);
    let gone = std::mem::replace(&mut b.qp, next.unwrap());
    let id = gone.id();
    gone.destroy().unwrap();
    assert_eq!(b.recv_cq().discard(id), Ok(3));
    for id in 0..3 {
        srq.post_recv(RecvRequest::new(WrId(id), Sgl::new()))
            .unwrap();
    }
    assert!(full(&mut srq));
}

#[test]
fn message_of_many_segments_takes_one_buffer() {
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
        let bytes = region.bytes().to_vec();
        let mut all = Vec::new();
        for ((_, b), who) in pairs.iter_mut().zip(0..) {
            let ids: Vec<u64> = b.receives().iter().map(|done| done.wr_id).collect();
            let text = |id: &u64| {
                let at = usize::try_from(*id).unwrap() * LEN;
                u64::from_be_bytes(bytes[at..at + LEN].try_into().unwrap())
            };
            let sent: Vec<u64> = ids.iter().map(text).collect();
            assert_eq!(sent, (who..60).step_by(3).collect::<Vec<u64>>());
            all.extend(ids);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..60));
    });
}

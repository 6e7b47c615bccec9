//! Slots of work queues: taken by posting, free when completions were polled (verbs draft §8.2.1).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::PostError;
use xwarp::work::{Operation, Sgl};
use xwarp::{Access, QpConfig, QpState, RecvRequest, SendRequest, WorkCompletion, WrId};
use xwarp_sim_tests::{Done, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

const DEPTH: usize = 4;
const FULL: Result<(), PostError> = Err(PostError::TooManyWorkRequests(DEPTH));

fn config() -> QpConfig {
    QpConfig::default().send_depth(DEPTH).recv_depth(DEPTH)
}

fn pair() -> (Sim, SimEnd, SimEnd) {
    let mut sim = Sim::new(Seed(31)).one_way_delay(Duration::from_micros(50));
    let (a, b) = sim.connected_pair_with(&config());
    (sim, a, b)
}

/// A Write of no bytes.
fn nothing(wr_id: u64) -> SendRequest {
    let nowhere = xwarp::RemoteAddress {
        stag: xwarp::Stag::PLACEHOLDER,
        to: 0,
    };
    SendRequest::write(WrId(wr_id), Sgl::new(), nowhere)
}

#[test]
fn send_that_is_done_keeps_its_slot_until_it_is_polled() {
    let (mut sim, mut a, _b) = pair();
    for i in 0..4 {
        a.post(nothing(i));
    }
    sim.run_until_idle();
    for i in 4..20 {
        assert_eq!(a.qp.post_send(nothing(i)), FULL, "done, but not polled");
        let polled = a.send_cq().poll().unwrap().map(Done::from);
        assert_eq!(polled, Some(Done::write(i - 4, 0)));
        a.post(nothing(i));
        sim.run_until_idle();
    }
    assert_eq!(a.sends().len(), DEPTH);
}

#[test]
fn polling_into_a_slice_takes_what_fits_in_order_and_frees_those_slots_alone() {
    let (mut sim, mut a, _b) = pair();
    (0..4).for_each(|i| a.post(nothing(i)));
    sim.run_until_idle();
    let mut three = [WorkCompletion::empty(); 3];
    assert_eq!(a.send_cq().poll_into(&mut []), Ok(0));
    assert_eq!(a.send_cq().poll_into(&mut three), Ok(3));
    let done = three.map(Done::from);
    assert_eq!(
        done,
        [Done::write(0, 0), Done::write(1, 0), Done::write(2, 0)]
    );
    (4..7).for_each(|i| a.post(nothing(i)));
    assert_eq!(a.qp.post_send(nothing(7)), FULL, "one was not polled");
    sim.run_until_idle();
    let mut many = [WorkCompletion::empty(); 8];
    assert_eq!(a.send_cq().poll_into(&mut many), Ok(4));
    let rest: Vec<Done> = many[..4].iter().copied().map(Done::from).collect();
    assert_eq!(rest, [3, 4, 5, 6].map(|i| Done::write(i, 0)));
    assert!(
        many[4..]
            .iter()
            .all(|place| *place == WorkCompletion::empty())
    );
    assert_eq!(a.send_cq().poll_into(&mut many), Ok(0));
}

#[test]
fn polling_into_a_slice_frees_the_slots_of_each_queue_whose_completions_are_among_others() {
    let sim = Sim::new(Seed(31));
    let host = sim.a();
    let mut cq = host.rnic().create_cq(32).unwrap();
    let mut qps = [(); 2].map(|()| host.pd().create_qp(&config(), &cq, &cq).unwrap());
    for round in 0..3 {
        for i in 0..4 {
            for qp in &mut qps {
                qp.post_send(nothing(i)).unwrap();
            }
        }
        assert!(qps.iter_mut().all(|qp| qp.post_send(nothing(9)) == FULL));
        for qp in &mut qps {
            qp.modify(QpChange::to(QpState::Error)).unwrap();
        }
        let mut flushed = [WorkCompletion::empty(); 5];
        let taken: Vec<usize> = std::iter::from_fn(|| {
            let taken = cq.poll_into(&mut flushed).unwrap();
            (taken > 0).then_some(taken)
        })
        .collect();
        assert_eq!(taken, [5, 3], "round {round}");
        for qp in &mut qps {
            qp.modify(QpChange::to(QpState::Idle)).unwrap();
        }
    }
}

#[test]
fn receive_buffer_that_is_filled_keeps_its_slot_until_it_is_polled() {
    let (mut sim, mut a, mut b) = pair();
    let more = |b: &mut SimEnd, i| b.qp.post_recv(RecvRequest::new(WrId(i), Sgl::new()));
    for i in 0..4 {
        assert_eq!(more(&mut b, i), Ok(()));
    }
    for i in 0..12 {
        assert_eq!(more(&mut b, 4 + i), FULL);
        a.post(SendRequest::send(WrId(i), Sgl::new()));
        sim.run_until_idle();
        assert_eq!(more(&mut b, 4 + i), FULL, "filled, but not polled");
        let received = b.recv_cq().poll().unwrap().map(Done::from);
        assert_eq!(received, Some(Done::receive(i, 0)));
        assert_eq!(more(&mut b, 4 + i), Ok(()));
        assert_eq!(a.sends(), [Done::send(i, 0)]);
    }
}

#[test]
fn unsignaled_work_keeps_its_slot_until_it_is_done() {
    let (mut sim, mut a, _b) = pair();
    for round in 0..50 {
        for i in 0..4 {
            a.post(nothing(4 * round + i).unsignaled());
        }
        assert_eq!(a.qp.post_send(nothing(9)), FULL, "nothing is done yet");
        sim.run_until_idle();
    }
    assert_eq!(a.sends(), [], "and none has a completion");
}

#[test]
fn unsignaled_work_behind_a_read_is_done_when_that_is() {
    let (mut sim, mut a, b) = pair();
    let (source, sink) = (b.target(8), a.target(8));
    a.post_read(1, sink.local(0, 8), source.remote(0));
    for i in 2..5 {
        a.post(nothing(i).unsignaled());
    }
    sim.run_for(Duration::from_micros(60));
    assert_eq!(a.qp.post_send(nothing(5)), FULL, "they are sent, no more");
    sim.run_until_idle();
    for i in 5..8 {
        a.post(nothing(i));
    }
    assert_eq!(a.qp.post_send(nothing(8)), FULL, "the Read is not polled");
    assert_eq!(
        a.send_cq().poll().unwrap().map(Done::from),
        Some(Done::read(1, 8))
    );
    a.post(nothing(8));
}

#[test]
fn work_of_every_kind_can_be_unsignaled() {
    let (mut sim, mut a, mut b) = pair();
    let (far, near) = (b.target(8), a.target(8));
    let mut window = a.host().pd().allocate_window().unwrap();
    let region = a.va_region(64, Access::all(), 0x1000);
    let bind = window.bind(region.remote(0), 64, Access::REMOTE_READ);
    let (place, sge, stag) = (far.remote(0), near.local(0, 8), window.stag());
    let requests = [
        SendRequest::send(WrId(1), sge),
        SendRequest::send(WrId(1), sge).solicited(),
        SendRequest::write(WrId(1), sge, place),
        SendRequest::read(WrId(1), sge, place),
        SendRequest::immediate(WrId(1), [1; 8]),
        SendRequest::write_immediate(WrId(1), sge, place, [2; 8]),
        SendRequest::fetch_add(WrId(1), 1, place),
        SendRequest::bind(WrId(1), bind),
        SendRequest::invalidate(WrId(1), stag),
    ];
    for request in requests {
        // A second Bind of the same window would fail, and failures have a completion.
        let times = match request.operation {
            Operation::Memory(_) => 1,
            _ => DEPTH + 1,
        };
        for _ in 0..times {
            let _ = b.qp.post_recv(RecvRequest::new(WrId(1), far.local(0, 8)));
            a.post(request.clone().unsignaled());
            sim.run_until_idle();
            b.receives();
        }
        assert_eq!(a.sends(), [], "{request:?}");
        a.post(nothing(1));
        sim.run_until_idle();
        assert_eq!(a.sends().len(), 1);
    }
}

#[test]
fn each_queue_gets_back_its_own_slots() {
    let mut sim = Sim::new(Seed(32));
    let host = sim.a();
    let mut cq = host.rnic().create_cq(64).unwrap();
    let [mut first, mut second] = [0, 1].map(|_| host.pd().create_qp(&config(), &cq, &cq).unwrap());
    for i in 0..4 {
        first.post_send(nothing(i)).unwrap();
        second.post_send(nothing(i)).unwrap();
        let buffer = RecvRequest::new(WrId(i), Sgl::new());
        second.post_recv(buffer).unwrap();
    }
    first.abort().unwrap();
    sim.run_until_idle();
    assert_eq!(std::iter::from_fn(|| cq.poll().unwrap()).count(), DEPTH);
    assert_eq!(second.post_send(nothing(4)), FULL);
    let buffer = RecvRequest::new(WrId(4), Sgl::new());
    assert_eq!(second.post_recv(buffer), FULL);
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_free_nothing_of_the_next() {
    let mut sim = Sim::new(Seed(33));
    let host = sim.a();
    let mut cq = host.rnic().create_cq(64).unwrap();
    let mut gone = host.pd().create_qp(&config(), &cq, &cq).unwrap();
    for i in 0..4 {
        gone.post_send(nothing(i)).unwrap();
    }
    gone.abort().unwrap();
    sim.run_until_idle();
    let id = gone.id();
    drop(gone);
    let mut next = host.pd().create_qp(&config(), &cq, &cq).unwrap();
    assert_eq!(next.id().slot(), id.slot(), "else this shows nothing");
    assert_ne!(next.id(), id);
    for i in 0..4 {
        next.post_send(nothing(i)).unwrap();
    }
    assert_eq!(std::iter::from_fn(|| cq.poll().unwrap()).count(), DEPTH);
    assert_eq!(next.post_send(nothing(4)), FULL);
}

#[test]
fn queue_pair_that_is_idle_again_has_the_slots_back_that_were_polled() {
    let sim = Sim::new(Seed(35));
    let mut a = sim.a().end(&config());
    for i in 0..4 {
        a.post(nothing(i));
    }
    a.qp.modify(QpChange::to(QpState::Error)).unwrap();
    a.qp.modify(QpChange::to(QpState::Idle)).unwrap();
    assert_eq!(a.qp.post_send(nothing(4)), FULL, "flushed, but not polled");
    assert!(a.send_cq().poll().unwrap().is_some());
    assert_eq!(a.qp.post_send(nothing(4)), Ok(()));
    assert_eq!(a.qp.post_send(nothing(5)), FULL);
}

#[test]
fn work_whose_completion_queue_is_gone_needs_no_polling() {
    let mut sim = Sim::new(Seed(34));
    let (host, mut b) = (sim.a(), sim.b().end(&config()));
    let mut a = SimEnd::with_cqs(&host, &config(), 8, 8);
    sim.connect(&mut a, &mut b);
    sim.run_until_idle();
    let other = host.rnic().create_cq(1).unwrap();
    drop(std::mem::replace(a.send_cq(), other));
    for i in 0..40 {
        a.post(nothing(i));
        sim.run_until_idle();
    }
}

//! Completion events: which handler is called for which completion, and how often (verbs draft
//! §8.2.5).

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use xwarp::attr::CqId;
use xwarp::completion::Arm;
use xwarp::error::HandlerError;
use xwarp::event::HandlerId;
use xwarp::work::{Operation, Payload, Sgl};
use xwarp::{QpConfig, SendRequest, WrId};
use xwarp_sim_tests::{Host, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(51)).one_way_delay(Duration::from_micros(50))
}

fn handler(host: &Host) -> (HandlerId, Receiver<CqId>) {
    let (sender, calls) = channel();
    let tell = move |cq| sender.send(cq).unwrap();
    (host.rnic().add_completion_handler(tell).unwrap(), calls)
}

/// A connected pair; the completion queue that the second end receives on, and the calls of its
/// handler.
fn pair(sim: &mut Sim) -> (SimEnd, SimEnd, Receiver<CqId>) {
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let (id, calls) = handler(b.host());
    let cq = b.host().rnic().create_cq_with(64, id).unwrap();
    assert_eq!(cq.query().unwrap().handler, Some(id));
    b.qp = b.host().pd().create_qp(&config, &cq, &cq).unwrap();
    *b.recv_cq() = cq;
    sim.connect(&mut a, &mut b);
    (a, b, calls)
}

fn send(wr_id: u64) -> SendRequest {
    SendRequest::send(WrId(wr_id), Sgl::new())
}

/// What the peer does, posted one by one; how often the handler was called after each.
fn calls_of(
    sim: &mut Sim,
    a: &mut SimEnd,
    calls: &Receiver<CqId>,
    sends: &[SendRequest],
) -> Vec<usize> {
    let mut counts = Vec::new();
    for request in sends {
        a.post(request.clone());
        sim.run_until_idle();
        counts.push(calls.try_iter().count());
    }
    counts
}

#[test]
fn unarmed_queue_tells_nobody() {
    let mut sim = sim();
    let (mut a, mut b, calls) = pair(&mut sim);
    (0..2).for_each(|i| b.post_recv(i, 1));
    let sends = [send(0), send(1).solicited()];
    assert_eq!(calls_of(&mut sim, &mut a, &calls, &sends), [0, 0]);
    assert_eq!(b.receives().len(), 2);
}

#[test]
fn next_is_told_of_the_next_completion_once() {
    let mut sim = sim();
    let (mut a, mut b, calls) = pair(&mut sim);
    (0..4).for_each(|i| b.post_recv(i, 1));
    let id = b.recv_cq().id();
    // Twice is as good as once, and Solicited takes nothing away from Next.
    for kind in [Arm::Next, Arm::Next, Arm::Solicited] {
        b.recv_cq().arm(kind).unwrap();
    }
    a.post(send(0));
    sim.run_until_idle();
    assert_eq!(
        calls.try_iter().collect::<Vec<CqId>>(),
        [id],
        "with its queue"
    );
    let sends = [send(1), send(2), send(3).solicited()];
    assert_eq!(
        calls_of(&mut sim, &mut a, &calls, &sends),
        [0, 0, 0],
        "disarmed"
    );
    assert_eq!(b.receives().len(), 4, "and nobody has polled");
}

#[test]
fn every_send_type_and_signaled_work_of_this_side_fire_next() {
    let mut sim = sim();
    let (mut a, mut b, calls) = pair(&mut sim);
    let regions = [0, 1].map(|_| b.own_region(8, xwarp::Access::all()));
    let invalidate = |at: usize, solicited| {
        let operation = xwarp::work::Operation::Send {
            payload: Payload::default(),
            solicited,
            invalidate: Some(regions[at].stag()),
        };
        SendRequest::new(WrId(1), operation)
    };
    let sends = [
        send(1),
        send(1).solicited(),
        invalidate(0, false),
        invalidate(1, true),
    ];
    for request in sends {
        b.post_recv(1, 1);
        b.recv_cq().arm(Arm::Next).unwrap();
        assert_eq!(calls_of(&mut sim, &mut a, &calls, &[request]), [1]);
        b.receives();
    }
    a.post_recv(1, 1);
    a.post_recv(2, 1);
    b.recv_cq().arm(Arm::Next).unwrap();
    b.post(send(1).unsignaled());
    sim.run_until_idle();
    assert_eq!(calls.try_iter().count(), 0, "no completion, no event");
    b.post(send(2));
    sim.run_until_idle();
    assert_eq!(calls.try_iter().count(), 1);
}

#[test]
fn solicited_is_told_of_messages_that_ask_for_it() {
    let mut sim = sim();
    let (mut a, mut b, calls) = pair(&mut sim);
    (0..4).for_each(|i| b.post_recv(i, 1));
    b.recv_cq().arm(Arm::Solicited).unwrap();
    let sends = [send(0), send(1), send(2).solicited(), send(3).solicited()];
    assert_eq!(calls_of(&mut sim, &mut a, &calls, &sends), [0, 0, 1, 0]);
}

/// A peer may send several messages before this side looks: the message that asks for an event gets
/// one wherever it is among them.
#[test]
fn solicited_message_is_reported_wherever_it_is_among_those_of_one_turn() {
    for (solicited, apart) in (0..4).flat_map(|at| [(at, false), (at, true)]) {
        let mut sim = sim();
        let (mut a, mut b, calls) = pair(&mut sim);
        (0..4).for_each(|i| b.post_recv(i, 1000));
        b.recv_cq().arm(Arm::Solicited).unwrap();
        // Messages of one segment are placed as a run; Immediate Data in between cuts it.
        let request = |i: u64| match (i == solicited, apart && i == 1) {
            (asks, true) => SendRequest::new(
                WrId(i),
                Operation::Immediate {
                    data: [7; 8],
                    solicited: asks,
                },
            ),
            (true, false) => send(i).solicited(),
            (false, false) => send(i),
        };
        let list: Vec<_> = (0..4).map(request).collect();
        a.qp.post_send_list(list).unwrap();
        sim.run_until_idle();
        assert_eq!(calls.try_iter().count(), 1, "{solicited} {apart}");
        assert!(b.recv_cq().wait_event(Duration::ZERO).unwrap());
        let received = b.receives();
        assert_eq!(received.len(), 4);
        b.recv_cq().arm(Arm::Solicited).unwrap();
        assert!(
            !b.recv_cq().wait_event(Duration::ZERO).unwrap(),
            "one event for one message"
        );
    }
}

#[test]
fn send_that_invalidates_and_solicits_is_a_solicited_one() {
    let mut sim = sim();
    let (mut a, mut b, calls) = pair(&mut sim);
    let region = b.own_region(8, xwarp::Access::all());
    b.post_recv(1, 1);
    b.recv_cq().arm(Arm::Solicited).unwrap();
    let operation = xwarp::work::Operation::Send {
        payload: Payload::default(),
        solicited: true,
        invalidate: Some(region.stag()),
    };
    let request = SendRequest::new(WrId(1), operation);
    assert_eq!(calls_of(&mut sim, &mut a, &calls, &[request]), [1]);
}

#[test]
fn solicited_and_next_together_are_next() {
    let mut sim = sim();
    let (mut a, mut b, calls) = pair(&mut sim);
    b.post_recv(1, 1);
    b.recv_cq().arm(Arm::Solicited).unwrap();
    b.recv_cq().arm(Arm::Next).unwrap();
    assert_eq!(calls_of(&mut sim, &mut a, &calls, &[send(1)]), [1]);
}

#[test]
fn failures_fire_solicited() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (_a, mut b, calls) = pair(&mut sim);
    b.post_recv(1, 1);
    b.post_recv(2, 1);
    b.recv_cq().arm(Arm::Solicited).unwrap();
    b.qp.abort().unwrap();
    sim.run_until_idle();
    assert_eq!(calls.try_iter().count(), 1, "two were flushed");
}

#[test]
fn completion_that_is_there_already_fires_nothing() {
    let mut sim = sim();
    let (mut a, mut b, calls) = pair(&mut sim);
    b.post_recv(1, 1);
    b.post_recv(2, 1);
    a.post(send(1).solicited());
    sim.run_until_idle();
    b.recv_cq().arm(Arm::Next).unwrap();
    sim.run_until_idle();
    assert_eq!(calls.try_iter().count(), 0);
    assert_eq!(calls_of(&mut sim, &mut a, &calls, &[send(2)]), [1]);
}

#[test]
fn each_queue_has_its_own_handler_and_its_own_arming() {
    let mut sim = sim();
    let (mut a, mut b, first) = pair(&mut sim);
    let (mut c, mut d, second) = pair(&mut sim);
    b.post_recv(1, 1);
    d.post_recv(1, 1);
    b.recv_cq().arm(Arm::Next).unwrap();
    assert_eq!(calls_of(&mut sim, &mut c, &second, &[send(1)]), [0]);
    assert_eq!(first.try_iter().count(), 0);
    assert_eq!(calls_of(&mut sim, &mut a, &first, &[send(1)]), [1]);
    assert_eq!(second.try_iter().count(), 0);
}

#[test]
fn handlers_can_be_replaced_and_cleared() {
    let mut sim = sim();
    let (mut a, mut b, former) = pair(&mut sim);
    (0..2).for_each(|i| b.post_recv(i, 1));
    let (host, id) = (
        b.host().clone(),
        b.recv_cq().query().unwrap().handler.unwrap(),
    );
    let (sender, calls) = channel();
    let tell = move |cq| sender.send(cq).unwrap();
    host.rnic().replace_completion_handler(id, tell).unwrap();
    b.recv_cq().arm(Arm::Next).unwrap();
    assert_eq!(calls_of(&mut sim, &mut a, &calls, &[send(1)]), [1]);
    assert_eq!(former.try_iter().count(), 0);
    host.rnic().clear_completion_handler(id).unwrap();
    b.recv_cq().arm(Arm::Next).unwrap();
    assert_eq!(calls_of(&mut sim, &mut a, &calls, &[send(2)]), [0]);
    assert!(b.recv_cq().wait_event(Duration::ZERO).unwrap(), "it fired");
    let unknown = Err(HandlerError::Unknown);
    assert_eq!(host.rnic().clear_completion_handler(id), unknown);
    assert_eq!(host.rnic().replace_completion_handler(id, |_| ()), unknown);
    let refused = host.rnic().create_cq_with(1, id).err();
    assert!(matches!(
        refused,
        Some(xwarp::error::CreateError::Handler(HandlerError::Unknown))
    ));
    let (another, _calls) = handler(&host);
    assert_ne!(another, id, "an identifier is never used again");
}

#[test]
fn handlers_are_limited() {
    let sim = sim();
    let host = sim.a();
    let refused = loop {
        if let Err(error) = host.rnic().add_completion_handler(|_| ()) {
            break error;
        }
    };
    assert_eq!(refused, HandlerError::TooMany(1024));
}

#[test]
fn queue_without_a_handler_can_be_armed() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 1);
    b.recv_cq().arm(Arm::Next).unwrap();
    assert!(!b.recv_cq().wait_event(Duration::ZERO).unwrap());
    a.post(send(1));
    sim.run_until_idle();
    assert!(b.recv_cq().wait_event(Duration::ZERO).unwrap());
    assert_eq!(b.receives().len(), 1);
}

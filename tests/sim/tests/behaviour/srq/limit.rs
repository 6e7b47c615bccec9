//! The limit, and its event (verbs draft §6.3.8).

use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};
use xwarp::work::Sgl;
use xwarp::{RecvRequest, SendRequest, SharedReceiveQueue, WrId};
use xwarp_sim_tests::Done;

use super::{full, pairs, post, queue, sim};

fn limit_of(srq: &SharedReceiveQueue) -> AsyncEvent {
    AsyncEvent::new(
        EventResource::Srq(srq.id()),
        AsyncEventKind::SrqLimitReached,
    )
}

#[test]
fn limit_is_told_once_per_arming_when_fewer_are_left() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 16, 3);
    let reached = limit_of(&srq);
    let mut pairs = pairs(&mut sim, &srq, 2);
    let region = post(&sim.b(), &mut srq, 0..5);
    let mut told = Vec::new();
    for id in 0..4 {
        let (a, _) = &mut pairs[usize::from(id % 2 == 0)];
        a.post_send(id, b"8 bytes!");
        sim.run_until_idle();
        told.push(sim.b().other_events());
    }
    let once = [vec![], vec![], vec![reached], vec![]];
    assert_eq!(told, once, "4 and 3 are left, then 2, then 1");
    assert!(!srq.query().unwrap().armed);
    // Arming twice is like arming once: the next message, which leaves fewer than the limit, causes
    // one event.
    srq.arm_limit(2).unwrap();
    srq.arm_limit(4).unwrap();
    assert!(srq.query().unwrap().armed);
    let sge = region.local(0, 8);
    srq.post_recv(RecvRequest::new(WrId(9), sge)).unwrap();
    for _ in 0..2 {
        pairs[0].0.post_send(9, b"8 bytes!");
    }
    sim.run_until_idle();
    let reached = limit_of(&srq);
    assert_eq!(sim.b().other_events(), [reached]);
    let received: usize = pairs.iter_mut().map(|(_, b)| b.receives().len()).sum();
    assert_eq!(received, 6, "nothing else has changed");
}

/// Immediate Data takes a buffer by itself, not as one of a run.
#[test]
fn limit_is_reported_when_fewer_are_left_and_not_when_as_many_are() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 16, 3);
    let reached = limit_of(&srq);
    let mut pairs = pairs(&mut sim, &srq, 1);
    let _region = post(&sim.b(), &mut srq, 0..5);
    let told = [1, 2, 3].map(|id| {
        let request = SendRequest::immediate(WrId(id), [7; 8]);
        pairs[0].0.post(request);
        sim.run_until_idle();
        sim.b().other_events()
    });
    assert_eq!(told, [vec![], vec![], vec![reached]], "4, 3, 2 are left");
}

#[test]
fn limit_is_told_once_wherever_messages_that_come_together_pass_it() {
    for messages in 0..8 {
        let mut sim = sim();
        let mut srq = queue(&sim.b(), 16, 3);
        let reached = limit_of(&srq);
        let mut pairs = pairs(&mut sim, &srq, 1);
        let region = post(&sim.b(), &mut srq, 0..8);
        let (a, b) = &mut pairs[0];
        (0..messages).for_each(|id| a.post_send(id, format!("number {id}").as_bytes()));
        sim.run_until_idle();
        let told = sim.b().other_events();
        let expected = if messages > 5 { vec![reached] } else { vec![] };
        assert_eq!(told, expected, "{messages} of 8 are taken");
        assert!(
            (0..messages)
                .map(|id| Done::receive(id, 8))
                .eq(b.receives())
        );
        let bytes = region.bytes().to_vec();
        let sent = (0..messages).map(|id| format!("number {id}"));
        assert!(bytes.starts_with(sent.collect::<String>().as_bytes()));
        let free = || RecvRequest::new(WrId(9), Sgl::new());
        (0..8 + messages).for_each(|_| srq.post_recv(free()).unwrap());
        assert!(
            full(&mut srq),
            "no more than {messages} slots are free again"
        );
    }
}

#[test]
fn limit_of_nothing_is_never_told() {
    let mut sim = sim();
    let mut srq = queue(&sim.b(), 4, 2);
    srq.arm_limit(0).unwrap();
    let mut pairs = pairs(&mut sim, &srq, 1);
    let _region = post(&sim.b(), &mut srq, 0..4);
    (0..4).for_each(|id| pairs[0].0.post_send(id, b"8 bytes!"));
    sim.run_until_idle();
    assert_eq!(sim.b().other_events(), []);
}

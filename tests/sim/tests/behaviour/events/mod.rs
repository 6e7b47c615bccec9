//! The asynchronous event handler, and events that wait to be polled (verbs draft §8.3.3, §9.4.2).

mod bounded;
mod broken;
mod ends;
mod quiet;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use xwarp::attr::{QpChange, QpInfo};
use xwarp::error::{RnicEnded, RnicUnavailable};
use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};
use xwarp::work::Sgl;
use xwarp::{QpConfig, QpState, RecvRequest, WrId};
use xwarp_sim_tests::{Host, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(61)).one_way_delay(Duration::from_micros(50))
}

/// An event, and what Query QP returned in its handler.
type Call = (AsyncEvent, Option<QpInfo>);

/// What a new handler is called with from now on.
fn handler(host: &Host) -> Receiver<Call> {
    let (sender, calls) = channel();
    let tell = move |context: &xwarp::event::EventContext<'_>, event: &AsyncEvent| {
        let info = event.qp().and_then(|qp| context.query_qp(qp));
        sender.send((event.clone(), info)).unwrap();
    };
    host.rnic().set_event_handler(tell).unwrap();
    calls
}

fn told(calls: &Receiver<Call>) -> Vec<AsyncEvent> {
    calls.try_iter().map(|(event, _)| event).collect()
}

/// Has an event happen on a queue pair of the host: its peer's connection is closed. What it is.
fn happen(sim: &mut Sim) -> AsyncEvent {
    let (a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    b.qp.modify(QpChange::to(QpState::Closing)).unwrap();
    sim.run_until_idle();
    closed(&a)
}

fn closed(end: &SimEnd) -> AsyncEvent {
    AsyncEvent::new(EventResource::Qp(end.qp.id()), AsyncEventKind::Closed)
}

#[test]
fn handler_is_told_all_that_happens_from_its_setting_on_and_what_was_before_waits() {
    let mut sim = sim();
    let host = sim.a();
    let before = happen(&mut sim);
    let calls = handler(&host);
    let events = [happen(&mut sim), happen(&mut sim)];
    assert_eq!(told(&calls), events);
    assert_eq!(host.rnic().events().try_next().unwrap(), Some(before));
    assert_eq!(
        host.rnic().events().try_next().unwrap(),
        None,
        "each is told once"
    );
}

#[test]
fn later_handler_takes_the_place_of_the_one_before() {
    let mut sim = sim();
    let host = sim.a();
    let first = handler(&host);
    let one = happen(&mut sim);
    let second = handler(&host);
    let two = happen(&mut sim);
    assert_eq!((told(&first), told(&second)), (vec![one], vec![two]));
    assert_eq!(host.rnic().events().try_next().unwrap(), None);
}

#[test]
fn without_a_handler_nobody_is_called_and_events_wait() {
    let mut sim = sim();
    let host = sim.a();
    let calls = handler(&host);
    host.rnic().clear_event_handler().unwrap();
    let event = happen(&mut sim);
    assert_eq!(told(&calls), []);
    assert_eq!(host.rnic().events().try_next().unwrap(), Some(event));
    let again = handler(&host);
    let event = happen(&mut sim);
    assert_eq!(told(&again), [event]);
}

#[test]
fn each_rnic_has_a_handler_of_its_own() {
    let mut sim = sim();
    let (at_a, at_b) = (handler(&sim.a()), handler(&sim.b()));
    let (a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    b.qp.modify(QpChange::to(QpState::Closing)).unwrap();
    sim.run_until_idle();
    assert_eq!(told(&at_a), [closed(&a)]);
    assert_eq!(told(&at_b), [closed(&b)]);
}

#[test]
fn set_that_is_refused_loses_no_event() {
    let mut sim = sim();
    let host = sim.a();
    let event = happen(&mut sim);
    host.rnic().close().unwrap();
    let refused = host.rnic().set_event_handler(|_, _| ());
    assert_eq!(refused, Err(RnicUnavailable::Closed));
    assert_eq!(
        host.rnic().clear_event_handler(),
        Err(RnicUnavailable::Closed)
    );
    assert_eq!(host.rnic().events().try_next().unwrap(), Some(event));
    let waited = host.rnic().events().wait(Duration::from_mins(1));
    let closed = RnicEnded::Unavailable(RnicUnavailable::Closed);
    assert_eq!(waited, Err(closed), "nothing happens any more");
    // What it had open is not closed in an orderly way for the peer.
    std::mem::forget(sim);
}

#[test]
fn handler_that_panics_is_cleared_and_its_event_is_not_lost() {
    let mut sim = sim();
    let host = sim.a();
    host.rnic()
        .set_event_handler(|_, event| panic!("a handler that cannot bear {event:?}"))
        .unwrap();
    let events = [happen(&mut sim), happen(&mut sim)];
    let polled: Vec<AsyncEvent> =
        std::iter::from_fn(|| host.rnic().events().try_next().unwrap()).collect();
    assert_eq!(polled, events);
}

#[test]
fn handler_that_is_called_after_a_verb_sees_what_the_verb_has_done() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, b) = sim.connected_pair();
    sim.run_until_idle();
    let calls = handler(&sim.a());
    a.post_send(1, b"not begun");
    a.qp.modify(QpChange::to(QpState::Closing)).unwrap();
    // The handler is called after the connection was reset and the queue pair is in Error (verbs
    // draft §6.2.5).
    let (event, info) = calls.try_recv().unwrap();
    assert!(matches!(event.kind, AsyncEventKind::BadClose { .. }));
    let info = info.unwrap();
    assert_eq!((info.state, info.stream), (QpState::Error, None));
    sim.run_until_idle();
    assert_eq!(b.events(), [AsyncEventKind::ConnectionReset]);
}

#[test]
fn handler_sees_idle_when_a_close_is_complete() {
    let mut sim = sim();
    let calls = handler(&sim.a());
    happen(&mut sim);
    let (_, info) = calls.try_recv().unwrap();
    let info = info.unwrap();
    assert_eq!((info.state, info.stream), (QpState::Idle, None));
}

#[test]
fn handler_asks_in_vain_for_a_queue_pair_that_is_gone() {
    let sim = sim();
    let host = sim.a();
    let end = SimEnd::with_cqs(&host, &QpConfig::default(), 1, 1);
    let (mut end, gone) = (end, host.end(&QpConfig::default()).qp.id());
    let (sender, calls) = channel();
    let ask = move |context: &xwarp::event::EventContext<'_>, event: &AsyncEvent| {
        let asked = (event.resource, context.query_qp(gone).is_some());
        sender.send(asked).unwrap();
    };
    host.rnic().set_event_handler(ask).unwrap();
    for id in 0..2 {
        let receive = RecvRequest::new(WrId(id), Sgl::new());
        end.qp.post_recv(receive).unwrap();
    }
    end.qp.modify(QpChange::to(QpState::Error)).unwrap();
    let overflow = EventResource::Cq(end.recv_cq().id());
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [(overflow, false)]);
}

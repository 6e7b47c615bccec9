//! Events that the application does not take: the RNIC keeps no more than it was opened for,
//! whatever peers do (RFC 5042 §2.2.7).

use std::time::Duration;

use xwarp::QpState;
use xwarp::attr::{QpId, TerminateOrigin};
use xwarp::error::TermCode;
use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};
use xwarp_sim_tests::{Done, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

use super::handler;

/// Events that may wait.
const FEW: usize = 8;

fn sim() -> Sim {
    Sim::with_max_events(Seed(67), FEW)
        .one_way_delay(Duration::from_micros(50))
        .expecting(&["drop_refused_segment", "drop_after_failure", "drop_events"])
}

/// A peer makes a connection to B and breaks the rules, so that B ends it. B's end of it.
fn broken_by_its_peer(sim: &mut Sim) -> SimEnd {
    let (mut a, b) = sim.connected_pair();
    a.post_send(1, b"nobody has asked for it");
    sim.run_until_idle();
    a.events();
    assert_eq!(b.state(), QpState::Error);
    b
}

fn is_terminated(event: &AsyncEvent, qp: QpId) -> bool {
    let terminated = matches!(event.kind, AsyncEventKind::Terminated { .. });
    terminated && event.resource == EventResource::Qp(qp)
}

fn is_lost(event: &AsyncEvent, lost: u64) -> bool {
    let kind = AsyncEventKind::EventsLost { count: lost };
    (event.resource, &event.kind) == (EventResource::Rnic, &kind)
}

fn polled(sim: &Sim) -> Vec<AsyncEvent> {
    let host = sim.b();
    std::iter::from_fn(|| host.rnic().events().try_next().ok().flatten()).collect()
}

#[test]
fn server_that_takes_no_events_keeps_as_many_as_it_was_opened_for() {
    let mut sim = sim();
    assert_eq!(sim.b().rnic().query().unwrap().max_events, FEW);
    let (mut c, mut d) = sim.connected_pair();
    let broken: Vec<SimEnd> = (0..20 * FEW)
        .map(|_| broken_by_its_peer(&mut sim))
        .collect();
    let lost = broken.len() - FEW;
    let counted = sim.b().rnic().counters().unwrap().rdma.drop_events;
    assert_eq!(counted, lost as u64);

    let events = polled(&sim);
    assert_eq!(
        events.len(),
        FEW + 1,
        "the oldest, and what tells of all others"
    );
    for (event, end) in events.iter().zip(&broken[..FEW]) {
        assert!(is_terminated(event, end.qp.id()), "{event:?}");
    }
    assert!(is_lost(&events[FEW], lost as u64), "{:?}", events[FEW]);

    // What was lost can be asked.
    for end in &broken {
        let terminate = end.qp.query().unwrap().terminate.unwrap();
        let ended = (terminate.origin, terminate.code);
        assert_eq!(ended, (TerminateOrigin::Local, TermCode::ddp_untagged(2)));
    }
    // Nothing has waited for a taker, and there is room again.
    d.post_recv(1, 10);
    c.post_send(1, b"still here");
    sim.run_until_idle();
    assert_eq!(d.receives(), [Done::receive(1, 10)]);
    let next = broken_by_its_peer(&mut sim);
    let events = polled(&sim);
    assert!(events.len() == 1 && is_terminated(&events[0], next.qp.id()));
}

#[test]
fn second_gap_is_told_again() {
    let mut sim = sim();
    for lost in [1, 3] {
        for _ in 0..FEW + lost {
            broken_by_its_peer(&mut sim);
        }
        let events = polled(&sim);
        assert_eq!(events.len(), FEW + 1);
        assert!(is_lost(&events[FEW], lost as u64), "{:?}", events[FEW]);
    }
}

#[test]
fn handler_is_told_all_events_however_few_may_wait() {
    let mut sim = sim();
    let calls = handler(&sim.b());
    let broken: Vec<SimEnd> = (0..3 * FEW).map(|_| broken_by_its_peer(&mut sim)).collect();
    let told = super::told(&calls);
    assert_eq!(told.len(), broken.len());
    assert!(
        told.iter()
            .zip(&broken)
            .all(|(event, end)| is_terminated(event, end.qp.id()))
    );
    assert_eq!(polled(&sim), []);
    assert_eq!(sim.b().rnic().counters().unwrap().rdma.drop_events, 0);
}

//! The states of a queue pair, and what Modify QP and Query QP make and tell of them (verbs draft
//! §6.1 to §6.2).

mod attributes;
mod blamed;
mod blocking;
mod closing;
mod errors;
mod handover;
mod identity;
mod modify;
mod roles;
mod terminate;

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::event::AsyncEventKind;
use xwarp::{QpConfig, QpState};
use xwarp_sim_tests::{Done, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

const STATES: [QpState; 5] = [
    QpState::Idle,
    QpState::Rts,
    QpState::Closing,
    QpState::Terminate,
    QpState::Error,
];

fn sim() -> Sim {
    Sim::new(Seed(41)).one_way_delay(Duration::from_micros(50))
}

/// A queue pair in `state`; in Closing and Terminate nothing of what it does has happened yet. And
/// its peer.
fn pair_in(sim: &mut Sim, state: QpState) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    if state == QpState::Idle {
        return (sim.a().end(&config), sim.b().end(&config));
    }
    let (mut a, b) = sim.connected_pair();
    sim.run_until_idle();
    assert_eq!(a.sends(), []);
    if state != QpState::Rts {
        a.qp.modify(QpChange::to(state)).unwrap();
    }
    assert_eq!(a.state(), state);
    (a, b)
}

/// Connects the ends, and shows that both can send.
fn assert_usable(sim: &mut Sim, a: &mut SimEnd, b: &mut SimEnd) {
    a.post_recv(90, 10);
    b.post_recv(91, 10);
    sim.connect(a, b);
    a.post_send(92, b"hello");
    b.post_send(93, b"hi");
    sim.run_until_idle();
    assert_eq!(a.receives(), [Done::receive(90, 2)]);
    assert_eq!(b.receives(), [Done::receive(91, 5)]);
    assert_eq!(a.sends(), [Done::send(92, 5)]);
    assert_eq!(b.sends(), [Done::send(93, 2)]);
}

fn is_bad_close(events: &[AsyncEventKind]) -> bool {
    matches!(events, [AsyncEventKind::BadClose { .. }])
}

//! A queue pair whose end is quiet notices that its peer is gone only by work of its own.

use xwarp::attr::QpChange;
use xwarp::event::AsyncEventKind::{self, Closed, ConnectionReset};
use xwarp::{Opcode, QpConfig, QpState};
use xwarp_sim_tests::{Done, Sim, SimEnd};

use super::sim;

/// Two ends, of which the second ends quietly. It has two buffers posted.
fn connected(sim: &mut Sim) -> (SimEnd, SimEnd) {
    let config = QpConfig::default().report_ends(true).flush_late_posts(true);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    b.qp.modify(QpChange::to(QpState::Rts).quiet_end(true))
        .unwrap();
    b.post_recv(1, 8);
    b.post_recv(2, 8);
    sim.run_until_idle();
    (a, b)
}

type Ways = [(&'static str, fn(&mut SimEnd), AsyncEventKind); 2];

const WAYS: Ways = [
    ("close", |a| a.qp.begin_disconnect().unwrap(), Closed),
    ("reset", |a| a.qp.abort().unwrap(), ConnectionReset),
];

#[test]
fn buffers_stay_posted_and_take_the_messages_of_the_next_connection() {
    for (case, end, event) in WAYS {
        let mut sim = sim().expecting(&["drop_no_flow"]);
        let (mut a, mut b) = connected(&mut sim);
        a.post_send(1, b"one");
        sim.run_until_idle();
        end(&mut a);
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(1, 3)], "{case}");
        assert_eq!(
            (b.events(), b.state()),
            (vec![event], QpState::Idle),
            "{case}"
        );
        a.qp.abort().unwrap();
        a.qp.modify(QpChange::to(QpState::Idle)).unwrap();
        sim.connect(&mut a, &mut b);
        a.post_send(2, b"two");
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(2, 3)], "{case}");
    }
}

#[test]
fn work_that_is_posted_after_the_end_waits_until_it_is_flushed() {
    for (case, end, _) in WAYS {
        let mut sim = sim().expecting(&["drop_no_flow"]);
        let (mut a, mut b) = connected(&mut sim);
        end(&mut a);
        sim.run_until_idle();
        assert!(!b.qp.query().unwrap().has_sends, "{case}");
        b.post_send(3, b"late");
        sim.run_until_idle();
        assert_eq!((b.sends(), b.receives()), (vec![], vec![]), "{case}");
        assert!(b.qp.query().unwrap().has_sends, "{case}");
        b.qp.abort().unwrap();
        assert_eq!(b.sends(), [Done::flushed(3, Opcode::Send)], "{case}");
        let flushed = [1, 2].map(|wr_id| Done::flushed(wr_id, Opcode::Receive));
        assert_eq!(b.receives(), flushed, "{case}");
    }
}

/// The side that learns of the close last may post in between.
#[test]
fn work_that_is_posted_during_the_close_waits() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim);
    a.qp.begin_disconnect().unwrap();
    sim.run_until("it closes", || b.state() == QpState::Closing);
    b.post_send(3, b"late");
    sim.run_until_idle();
    assert_eq!((b.events(), b.state()), (vec![Closed], QpState::Idle));
    assert_eq!((b.sends(), b.receives()), (vec![], vec![]));
    assert!(b.qp.query().unwrap().has_sends);
}

#[test]
fn lost_request_is_no_quiet_end() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b) = connected(&mut sim);
    let (source, sink) = (a.target(64), b.target(64));
    b.post_read(3, sink.local(0, 64), source.remote(0));
    a.qp.abort().unwrap();
    sim.run_until_idle();
    assert_eq!(
        (b.events(), b.state()),
        (vec![ConnectionReset], QpState::Error)
    );
    assert_eq!(b.sends(), [Done::flushed(3, Opcode::Read)]);
    assert_eq!(b.receives().len(), 2, "they are flushed");
}

/// It has completed when TCP had it, so no completion can report that it is lost.
#[test]
fn message_that_the_peer_has_not_acknowledged_is_no_quiet_end() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b) = connected(&mut sim);
    a.post_recv(4, 8);
    b.post_send(3, b"lost");
    a.qp.abort().unwrap();
    sim.run_until_idle();
    assert_eq!(b.sends(), [Done::send(3, 4)]);
    assert_eq!(
        (b.events(), b.state()),
        (vec![ConnectionReset], QpState::Error)
    );
    assert_eq!(b.receives().len(), 2, "they are flushed");
}

#[test]
fn peer_that_no_longer_answers_is_lost_quietly() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim);
    a.qp.begin_disconnect().unwrap();
    sim.run_until("it closes", || b.state() == QpState::Closing);
    sim.cut_link();
    sim.run_until_idle();
    assert_eq!(b.state(), QpState::Idle);
    assert!(matches!(
        b.events()[..],
        [AsyncEventKind::ConnectionLost { .. }]
    ));
    assert_eq!(b.receives(), []);
}

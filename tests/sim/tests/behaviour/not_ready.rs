//! Messages that find no receive buffer wait for one, if the application asks for that.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::event::AsyncEventKind::{self, BadClose, Closed, ConnectionLost, ConnectionReset};
use xwarp::{QpConfig, QpState};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, for_each_seed, pattern};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(67)).one_way_delay(Duration::from_micros(50))
}

/// Two ends, of which the second has messages wait.
fn connected(sim: &mut Sim) -> (SimEnd, SimEnd) {
    let config = QpConfig::default().report_ends(true);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    let change = QpChange::to(QpState::Rts).await_receives(true);
    b.qp.modify(change).unwrap();
    sim.run_until_idle();
    (a, b)
}

fn waits(end: &SimEnd) -> u64 {
    end.host().rnic().counters().unwrap().rdma.rnr_waits
}

#[test]
fn messages_arrive_in_order_as_buffers_are_posted() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim);
    for (wr_id, text) in [(1, b"one"), (2, b"two"), (3, b"six")] {
        a.post_send(wr_id, text);
    }
    sim.run_for(Duration::from_millis(20));
    assert_eq!((b.receives(), b.events()), (vec![], vec![]));
    assert_eq!((b.state(), waits(&b)), (QpState::Rts, 1));
    for (wr_id, text) in [(1, b"one"), (2, b"two"), (3, b"six")] {
        b.post_recv(wr_id, 8);
        sim.run_for(Duration::from_millis(20));
        assert_eq!(b.receives(), [Done::receive(wr_id, 3)]);
        assert_eq!(&b.buffer(wr_id)[..3], text);
    }
    assert_eq!(waits(&b), 3);
}

/// It is longer than a segment, and so is what is behind it.
#[test]
fn all_later_messages_wait_behind_a_long_one() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim);
    let target = b.target(2 * MIB);
    a.post_send(1, &pattern(64 * KIB));
    a.post_write(2, &pattern(2 * MIB), target.remote(0));
    sim.run_for(Duration::from_millis(100));
    assert!(
        target.to_vec().iter().all(|byte| *byte == 0),
        "nothing is placed"
    );
    b.post_recv(1, 64 * KIB);
    sim.run_for(Duration::from_secs(2));
    assert_eq!(b.receives(), [Done::receive(1, 64 * KIB)]);
    assert!(b.buffer(1) == pattern(64 * KIB));
    assert!(target.to_vec() == pattern(2 * MIB));
    assert_eq!(
        a.sends(),
        [Done::send(1, 64 * KIB), Done::write(2, 2 * MIB)]
    );
}

/// TCP's FIN is behind them.
#[test]
fn peer_that_closes_is_heard_after_the_messages_that_wait() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim);
    a.post_send(1, b"one");
    a.post_send(2, b"two");
    a.qp.begin_disconnect().unwrap();
    sim.run_for(Duration::from_millis(20));
    assert_eq!((b.receives(), b.events()), (vec![], vec![]));
    for wr_id in [1, 2] {
        b.post_recv(wr_id, 8);
        sim.run_for(Duration::from_millis(20));
        assert_eq!(b.receives(), [Done::receive(wr_id, 3)]);
    }
    sim.run_until_idle();
    assert_eq!((a.events(), b.events()), (vec![Closed], vec![Closed]));
}

/// qperf's server stops posting buffers before its client stops sending, and both wait for the end.
#[test]
fn close_behind_a_message_that_finds_no_buffer_ends_in_two_seconds() {
    let mut sim = sim();
    let (mut a, b) = connected(&mut sim);
    a.post_send(1, b"one");
    a.qp.begin_disconnect().unwrap();
    sim.run_for(Duration::from_millis(1900));
    assert_eq!((a.events(), b.events()), (vec![], vec![]));
    sim.run_for(Duration::from_millis(200));
    let reason = "the peer closed behind a message that finds no receive buffer";
    assert_eq!(b.events(), [BadClose { reason }]);
    let reason = "the peer reset the connection";
    assert_eq!(a.events(), [ConnectionLost { reason }]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
}

/// The FIN is never sent.
#[test]
fn close_for_which_the_window_has_no_room_ends_in_two_seconds() {
    let mut sim = sim();
    let (mut a, b) = connected(&mut sim);
    for wr_id in 1..=4 {
        a.post_send(wr_id, &pattern(4 * MIB));
    }
    a.qp.begin_disconnect().unwrap();
    sim.run_for(Duration::from_millis(1900));
    assert_eq!((a.events(), b.events()), (vec![], vec![]));
    sim.run_for(Duration::from_secs(1));
    let reason = "the peer has no receive buffers for what was sent before the close";
    assert_eq!(a.events(), [ConnectionLost { reason }]);
    assert_eq!(b.events(), [ConnectionReset]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
}

#[test]
fn receiver_that_is_slow_gets_all_that_was_sent_before_the_close() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim);
    for wr_id in 1..=6 {
        a.post_send(wr_id, &pattern(4 * MIB));
    }
    a.qp.begin_disconnect().unwrap();
    for wr_id in 1..=6 {
        sim.run_for(Duration::from_millis(1700));
        b.post_recv(wr_id, 4 * MIB);
    }
    sim.run_until_idle();
    let expected: Vec<_> = (1..=6).map(|wr_id| Done::receive(wr_id, 4 * MIB)).collect();
    assert_eq!(b.receives(), expected);
    assert_eq!((a.events(), b.events()), (vec![Closed], vec![Closed]));
}

#[test]
fn message_that_waits_is_lost_with_its_connection() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b) = connected(&mut sim);
    b.qp.modify(QpChange::to(QpState::Rts).quiet_end(true))
        .unwrap();
    a.post_send(1, b"one");
    sim.run_for(Duration::from_millis(20));
    a.qp.abort().unwrap();
    sim.run_until_idle();
    assert_eq!(
        (b.events(), b.state()),
        (vec![ConnectionReset], QpState::Error)
    );
}

#[test]
fn immediate_data_waits_for_a_buffer_behind_its_write() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim);
    let target = b.target(8);
    a.post_write(1, b"written!", target.remote(0));
    a.post(xwarp::SendRequest::immediate(xwarp::WrId(2), *b"8 bytes!"));
    sim.run_for(Duration::from_millis(20));
    assert_eq!(target.to_vec(), b"written!");
    assert_eq!(b.receives(), []);
    b.post_recv(5, 0);
    sim.run_for(Duration::from_millis(20));
    assert_eq!(b.receives().len(), 1);
}

#[test]
fn link_that_loses_frames_changes_nothing() {
    for_each_seed(|seed| {
        let mut sim = Sim::new(seed)
            .one_way_delay(Duration::from_micros(50))
            .loss(0.02);
        let (mut a, mut b) = connected(&mut sim);
        for wr_id in 1..=20 {
            a.post_send(wr_id, &pattern(4 * KIB));
        }
        for wr_id in 1..=20 {
            sim.run_for(Duration::from_millis(3));
            b.post_recv(wr_id, 4 * KIB);
        }
        sim.run_until_idle();
        let expected: Vec<_> = (1..=20)
            .map(|wr_id| Done::receive(wr_id, 4 * KIB))
            .collect();
        assert_eq!(b.receives(), expected);
        assert_eq!(b.events(), Vec::<AsyncEventKind>::new());
    });
}

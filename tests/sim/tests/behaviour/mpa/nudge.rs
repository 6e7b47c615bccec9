//! A peer that has overlooked our first message is woken by RDMA Writes of no bytes, which mean
//! nothing to one that has not.

use std::time::Duration;

use xwarp::cm::MpaConfig;
use xwarp::{QpConfig, QpState, Stag};
use xwarp_sim_tests::wire::{Tagged, Untagged, reply, ulpdus};
use xwarp_sim_tests::{Done, KIB, pattern};

use super::{CRC, Initiating, Responding, connected, exchange, pair, without_nudge};

const SECOND: Duration = Duration::from_secs(1);

fn wake_up() -> Vec<u8> {
    Tagged::write(Stag(1), 0).ulpdu(b"")
}

/// An initiator whose peer has replied, and has a message of ours.
fn with_a_message(mpa: MpaConfig) -> Initiating {
    let mut initiating = Initiating::new(mpa, &QpConfig::default());
    initiating.answered(&reply(CRC, 1, b"")).unwrap();
    initiating.sim.run_for(SECOND);
    assert!(initiating.sent().is_empty(), "nobody is woken for nothing");
    initiating.end.post_send(1, b"hello");
    initiating
}

#[test]
fn silent_peer_is_woken_four_times() {
    let mut initiating = with_a_message(MpaConfig::default());
    let hello = Untagged::default().ulpdu(b"hello");
    // Each time is twice as far from the one before: 5, 15, 35 and 75 ms after the message, and a
    // millisecond on the way.
    for (millis, times) in [(5, 0), (10, 1), (20, 2), (41, 4), (10_000, 4)] {
        let before = ulpdus(&initiating.sent()).len();
        initiating.sim.run_for(Duration::from_millis(millis));
        let mut expected = vec![hello.clone()];
        expected.resize(1 + times, wake_up());
        let sent = ulpdus(&initiating.sent());
        assert_eq!(sent, expected, "{before} FPDUs before");
    }
    let counters = initiating.sim.a().rnic().counters().unwrap().rdma;
    assert_eq!((counters.first_fpdu_retries, counters.fpdus_out), (4, 5));
    assert_eq!(initiating.end.sends(), [Done::send(1, 5)]);
    assert_eq!(initiating.end.state(), QpState::Rts);
}

#[test]
fn peer_that_has_sent_an_fpdu_is_left_alone() {
    let mut initiating = with_a_message(MpaConfig::default());
    initiating.end.post_recv(2, 5);
    initiating.sim.run_for(Duration::from_millis(4));
    let answer = Untagged::default().fpdu(b"there");
    initiating.peer.send(&answer);
    initiating.sim.run_for(SECOND);
    assert_eq!(ulpdus(&initiating.sent()).len(), 1);
    assert_eq!(initiating.end.receives(), [Done::receive(2, 5)]);
}

#[test]
fn nobody_is_woken_where_that_is_switched_off() {
    let mut initiating = with_a_message(without_nudge());
    initiating.sim.run_for(SECOND);
    assert_eq!(ulpdus(&initiating.sent()).len(), 1);
}

#[test]
fn responder_wakes_nobody() {
    let mut responding = Responding::new(MpaConfig::default());
    let request = xwarp_sim_tests::wire::request(CRC, 1, b"");
    let (mut end, answer) = responding.accepted(&request, &QpConfig::default());
    let first = Untagged::default().fpdu(b"");
    end.post_recv(1, 0);
    responding.peer.send(&first);
    end.post_send(2, b"once");
    responding.sim.run_for(SECOND);
    let sent = responding.peer.received().split_off(answer.len());
    assert_eq!(ulpdus(&sent), [Untagged::default().ulpdu(b"once")]);
}

#[test]
fn rnic_that_is_woken_for_nothing_goes_on_as_before() {
    let mut sim = pair(MpaConfig::default(), MpaConfig::default());
    let (mut a, mut b) = connected(&mut sim, &QpConfig::default(), &QpConfig::default());
    b.post_recv(1, 64 * KIB);
    a.post_send(2, &pattern(64 * KIB));
    sim.run_for(SECOND);
    assert_eq!(
        sim.a().rnic().counters().unwrap().rdma.first_fpdu_retries,
        4
    );
    assert_eq!(b.receives(), [Done::receive(1, 64 * KIB)]);
    assert_eq!(a.sends(), [Done::send(2, 64 * KIB)]);
    exchange(&mut sim, &mut a, &mut b);
}

//! Transitions that Modify QP takes, and what they need (verbs draft figures 4 and 5).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::ModifyError;
use xwarp::{Opcode, QpState};
use xwarp_sim_tests::{Done, MIB, pattern};
use xwarp_test_kit::netsim::Direction;

use super::{STATES, assert_usable, pair_in, sim};

/// The transitions that need nothing but the state.
const LEGAL: [(QpState, QpState); 7] = [
    (QpState::Idle, QpState::Idle),
    (QpState::Idle, QpState::Error),
    (QpState::Rts, QpState::Rts),
    (QpState::Rts, QpState::Closing),
    (QpState::Rts, QpState::Terminate),
    (QpState::Rts, QpState::Error),
    (QpState::Error, QpState::Idle),
];

#[test]
fn only_the_transitions_of_the_draft_can_be_asked_for() {
    for from in STATES {
        for to in STATES {
            let mut sim = sim();
            let (mut a, _b) = pair_in(&mut sim, from);
            let before = a.qp.query().unwrap();
            assert_eq!(before.state, from);
            let modified = a.qp.modify(QpChange::to(to));
            if LEGAL.contains(&(from, to)) {
                modified.unwrap();
                assert_eq!(a.qp.query().unwrap().state, to, "from {from:?}");
                continue;
            }
            let error = modified.unwrap_err();
            if (from, to) == (QpState::Idle, QpState::Rts) {
                assert!(
                    matches!(error, ModifyError::InvalidModifier { .. }),
                    "{error}"
                );
            } else {
                assert_eq!(error, ModifyError::InvalidStateChange { from, to });
            }
            assert_eq!(a.qp.query().unwrap(), before, "to {to:?}");
        }
    }
}

#[test]
fn without_a_stream_there_is_no_way_to_rts() {
    let mut sim = sim();
    let (mut a, _b) = pair_in(&mut sim, QpState::Idle);
    let before = a.qp.query().unwrap();
    let error = a.qp.modify(QpChange::to(QpState::Rts).ord(1)).unwrap_err();
    assert!(
        matches!(error, ModifyError::InvalidModifier { .. }),
        "{error}"
    );
    assert_eq!(a.qp.query().unwrap(), before, "the ORD is as it was");
}

#[test]
fn attributes_go_only_with_idle_and_rts_and_are_refused_with_all_else() {
    for (from, to) in LEGAL {
        let mut sim = sim();
        let (mut a, _b) = pair_in(&mut sim, from);
        let before = a.qp.query().unwrap();
        let to_depth: [fn(QpChange) -> QpChange; 4] = [
            |it| it.ord(2),
            |it| it.ird(2),
            |it| it.send_depth(200),
            |it| it.recv_depth(200),
        ];
        for change in to_depth.map(|change| change(QpChange::to(to))) {
            let modified = a.qp.modify(change);
            if from == to {
                modified.unwrap();
                continue;
            }
            let error = modified.unwrap_err();
            assert!(
                matches!(error, ModifyError::InvalidModifier { from: f, to: t, .. } if (f, t) == (from, to)),
                "{error}"
            );
            assert_eq!(a.qp.query().unwrap(), before);
        }
    }
}

#[test]
fn queue_pair_that_a_disconnect_closes_cannot_be_modified() {
    let mut sim = sim();
    let (mut a, _b) = pair_in(&mut sim, QpState::Rts);
    a.qp.begin_disconnect().unwrap();
    for to in STATES {
        let from = QpState::Closing;
        let error = a.qp.modify(QpChange::to(to)).unwrap_err();
        assert_eq!(error, ModifyError::InvalidStateChange { from, to });
    }
    sim.run_until_idle();
    assert_eq!(a.state(), QpState::Idle);
}

#[test]
fn work_of_an_idle_queue_pair_waits_and_is_flushed_on_the_way_to_error() {
    let mut sim = sim();
    let (mut a, _b) = pair_in(&mut sim, QpState::Idle);
    for id in 0..3 {
        a.post_recv(id, 10);
        a.post_send(10 + id, b"waits");
    }
    sim.run_until_idle();
    assert_eq!((a.sends(), a.receives()), (vec![], vec![]));
    a.qp.modify(QpChange::to(QpState::Error)).unwrap();
    assert_eq!(
        a.sends(),
        [10, 11, 12].map(|id| Done::flushed(id, Opcode::Send))
    );
    assert_eq!(
        a.receives(),
        [0, 1, 2].map(|id| Done::flushed(id, Opcode::Receive))
    );
    assert_eq!(a.events(), [], "the application knows what it did");
}

/// Verbs draft §6.2.1: the application posts, and has not noticed that the peer has closed.
#[test]
fn work_that_is_posted_after_an_unnoticed_close_waits_in_idle() {
    let mut sim = sim();
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    b.qp.modify(QpChange::to(QpState::Closing)).unwrap();
    sim.run_until_idle();
    assert_eq!(a.state(), QpState::Idle);
    a.post_send(1, b"too late");
    a.post_recv(2, 10);
    sim.run_until_idle();
    assert_eq!((a.sends(), a.receives()), (vec![], vec![]));
    a.qp.modify(QpChange::to(QpState::Error)).unwrap();
    assert_eq!(a.sends(), [Done::flushed(1, Opcode::Send)]);
    assert_eq!(a.receives(), [Done::flushed(2, Opcode::Receive)]);
    a.qp.modify(QpChange::to(QpState::Idle)).unwrap();
    assert_usable(&mut sim, &mut a, &mut b);
}

#[test]
fn from_error_a_queue_pair_comes_back_to_idle_and_can_be_connected_again() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b) = pair_in(&mut sim, QpState::Error);
    sim.run_until_idle();
    assert_eq!(b.state(), QpState::Error);
    for end in [&mut a, &mut b] {
        end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
        let info = end.qp.query().unwrap();
        assert_eq!((info.state, info.stream), (QpState::Idle, None));
    }
    assert_usable(&mut sim, &mut a, &mut b);
}

#[test]
fn modify_to_error_resets_and_flushes_at_once() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, b) = pair_in(&mut sim, QpState::Rts);
    let (sink, source) = (a.target(8), b.target(8));
    a.post_recv(1, 100);
    a.post_read(2, sink.local(0, 8), source.remote(0));
    a.qp.modify(QpChange::to(QpState::Error)).unwrap();
    assert_eq!(a.sends(), [Done::flushed(2, Opcode::Read)]);
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    let info = a.qp.query().unwrap();
    assert_eq!((info.stream, info.terminate), (None, None));
    sim.run_until_idle();
    assert_eq!(b.events(), [xwarp::event::AsyncEventKind::ConnectionReset]);
    assert_eq!(b.qp.query().unwrap().terminate, None, "none was sent");
    assert_eq!(a.events(), []);
}

/// Puts a queue pair into a state with each kind of message under way: nothing more of it is
/// placed, and none becomes whole. How many frames with data it sends then.
fn frames_after(state: QpState) -> usize {
    /// Bytes of the headers of a frame, TCP's timestamps included.
    const HEADERS: usize = 14 + 20 + 32;
    let later = Rc::new(Cell::new(0));
    for message in ["its own Write", "the peer's Read", "the peer's Write"] {
        let mut sim = sim().expecting(&["drop_no_flow", "drop_after_failure"]);
        let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
        let (near, far) = (a.target(MIB), b.target(MIB));
        near.fill(&pattern(MIB));
        let mut sink = &far;
        match message {
            "its own Write" => a.post_write(1, &pattern(MIB), far.remote(0)),
            "the peer's Read" => b.post_read(1, far.local(0, MIB), near.remote(0)),
            _ => {
                near.fill(&vec![0; MIB]);
                b.post_write(1, &pattern(MIB), near.remote(0));
                sink = &near;
            }
        }
        sim.run_for(Duration::from_micros(250));
        let placed = sink.to_vec();
        assert!(placed != vec![0; MIB] && placed != pattern(MIB));
        a.qp.modify(QpChange::to(state)).unwrap();
        let seen = Rc::clone(&later);
        sim.link().observe(move |sighting| {
            let is_data = sighting.frame.len() > HEADERS;
            let counts = is_data && sighting.direction == Direction::AToB;
            seen.set(seen.get() + usize::from(counts));
        });
        sim.run_until_idle();
        assert!(sink.to_vec() != pattern(MIB), "{message}");
        if message == "the peer's Write" {
            assert!(near.to_vec() == placed, "nothing more is placed");
        }
        assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
    }
    later.get()
}

/// Verbs draft §6.2.2.4.
#[test]
fn modify_to_error_stops_messages_that_are_under_way() {
    assert_eq!(frames_after(QpState::Error), 0);
}

/// Verbs draft §6.2.3: what TCP has taken before is still sent, and the Terminate of each of the
/// three.
#[test]
fn modify_to_terminate_stops_messages_that_are_under_way() {
    let frames = frames_after(QpState::Terminate);
    assert!((3..300).contains(&frames), "{frames} frames");
}

#[test]
fn queue_pair_can_be_destroyed_in_every_state_with_work_outstanding() {
    for state in STATES {
        let mut sim = sim().expecting(&["drop_no_flow", "drop_after_failure"]);
        let (mut a, b) = pair_in(&mut sim, state);
        if matches!(state, QpState::Idle | QpState::Rts) {
            a.post_recv(1, 10);
            a.post_send(2, b"never sent");
        }
        let (host, id) = (a.host().clone(), a.qp.id());
        a.qp.destroy().unwrap();
        sim.run_until_idle();
        assert_eq!(host.events(id), []);
        drop(b);
    }
}

#[test]
fn nothing_can_be_posted_in_closing_terminate_and_error() {
    for state in [QpState::Closing, QpState::Terminate, QpState::Error] {
        let mut sim = sim();
        let (mut a, _b) = pair_in(&mut sim, state);
        let source = a.source(b"too late");
        let posted =
            a.qp.post_send(xwarp::SendRequest::send(xwarp::WrId(1), source));
        assert_eq!(posted, Err(xwarp::error::PostError::InvalidState(state)));
        let posted =
            a.qp.post_recv(xwarp::RecvRequest::new(xwarp::WrId(1), source));
        assert_eq!(posted, Err(xwarp::error::PostError::InvalidState(state)));
        sim.run_until_idle();
        assert_eq!((a.sends(), a.receives()), (vec![], vec![]));
    }
}

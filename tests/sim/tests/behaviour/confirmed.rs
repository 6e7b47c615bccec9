//! Sends and Writes that complete when the peer has handled them.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::event::AsyncEventKind::Closed;
use xwarp::{Access, Opcode, QpConfig, QpState, SendRequest, Stag, WrId};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, Target, for_each_seed, needs_link, pattern};
use xwarp_test_kit::netsim::{Direction, Seed};

use crate::refused::wrong_key;

const ONE_WAY: Duration = Duration::from_micros(50);

fn sim() -> Sim {
    Sim::new(Seed(79)).one_way_delay(ONE_WAY)
}

fn confirming() -> QpConfig {
    QpConfig::default().confirm_sends(true)
}

/// Two connected ends without unfinished work.
fn connected(sim: &mut Sim, config: &QpConfig) -> (SimEnd, SimEnd) {
    let (a, b) = sim.connected_pair_with(config);
    sim.run_until("the first word is confirmed", || {
        !a.qp.query().unwrap().has_sends
    });
    (a, b)
}

/// Posts a Send and a Write of `len` bytes each. Returns the place of the Write.
fn post_both(a: &mut SimEnd, b: &mut SimEnd, len: usize) -> Target {
    let target = b.target(len);
    b.post_recv(1, len);
    a.post_send(1, &pattern(len));
    a.post_write(2, &pattern(len), target.remote(0));
    target
}

#[test]
fn they_complete_after_a_round_trip_and_in_order() {
    for len in [0, 5, 64 * KIB] {
        let mut sim = sim();
        let (mut a, mut b) = connected(&mut sim, &confirming());
        let _place = post_both(&mut a, &mut b, len);
        sim.run_until("the Send arrives", || {
            b.receives() == [Done::receive(1, len)]
        });
        assert_eq!(a.sends(), []);
        sim.run_for(5 * ONE_WAY);
        assert_eq!(
            a.sends(),
            [Done::send(1, len), Done::write(2, len)],
            "{len}"
        );
    }
}

/// They used to complete while the message waited.
#[test]
fn send_completes_once_there_is_a_buffer_for_it() {
    let mut sim = sim();
    let config = confirming().await_receives(true);
    let (mut a, mut b) = connected(&mut sim, &config);
    a.post_send(1, b"early");
    sim.run_for(Duration::from_millis(500));
    assert_eq!(a.sends(), []);
    b.post_recv(1, 8);
    sim.run_for(Duration::from_millis(50));
    assert_eq!(a.sends(), [Done::send(1, 5)]);
}

#[test]
fn write_that_is_refused_ends_with_that_and_earlier_ones_succeed() {
    for len in [8, 256 * KIB] {
        let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
        let (mut a, b) = connected(&mut sim, &confirming());
        let (target, wrong) = (b.target(len), wrong_key(b.host()).address);
        for wr_id in [1, 2] {
            a.post_write(wr_id, &pattern(len), target.remote(0));
        }
        a.post_write(3, &pattern(8), wrong);
        for wr_id in [4, 5] {
            a.post_write(wr_id, &pattern(len), target.remote(0));
        }
        sim.run_until_idle();
        let expected = [
            Done::write(1, len),
            Done::write(2, len),
            Done::refused(3, Opcode::Write),
            Done::flushed(4, Opcode::Write),
            Done::flushed(5, Opcode::Write),
        ];
        assert_eq!(a.sends(), expected, "{len}");
    }
}

/// A region that the peer has taken back.
#[test]
fn write_to_a_region_that_is_gone_ends_with_that() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (mut a, b) = connected(&mut sim, &confirming());
    let region = b.region(KIB, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let remote = region.remote(0);
    a.post_write(1, b"while it is there", remote);
    sim.run_for(Duration::from_millis(1));
    assert_eq!(a.sends(), [Done::write(1, 17)]);
    drop(region);
    a.post_write(2, b"no more", remote);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::refused(2, Opcode::Write)]);
}

#[test]
fn message_that_is_too_long_for_its_buffer_ends_with_that() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (mut a, mut b) = connected(&mut sim, &confirming());
    for (wr_id, len) in [(1, 8), (2, 4), (3, 8)] {
        b.post_recv(wr_id, len);
    }
    let target = b.target(8);
    let write = |a: &mut SimEnd, wr_id| {
        let source = a.source(b"written");
        let request = SendRequest::write_immediate(WrId(wr_id), source, target.remote(0), [0; 8]);
        a.post(request);
    };
    write(&mut a, 1);
    a.post_send(2, b"too long");
    write(&mut a, 3);
    sim.run_until_idle();
    let expected = [
        Done::success(1, Opcode::WriteImmediate, 7),
        Done::refused(2, Opcode::Send),
        Done::flushed(3, Opcode::WriteImmediate),
    ];
    assert_eq!(a.sends(), expected);
}

/// Of what is in flight behind it, some takes a receive buffer, too, or will.
#[test]
fn message_that_is_too_long_is_found_among_all_that_is_in_flight() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (mut a, mut b) = connected(&mut sim, &confirming());
    let target = b.target(MIB);
    b.post_recv(1, 4);
    a.post_send(1, b"too long");
    a.post_write(2, b"plain", target.remote(0));
    let source = a.source(&pattern(MIB));
    a.post(SendRequest::write_immediate(
        WrId(3),
        source,
        target.remote(0),
        [0; 8],
    ));
    sim.run_until_idle();
    let expected = [
        Done::refused(1, Opcode::Send),
        Done::flushed(2, Opcode::Write),
        Done::flushed(3, Opcode::WriteImmediate),
    ];
    assert_eq!(a.sends(), expected);
}

/// The application may wait for the first of them before it posts more.
#[test]
fn first_of_many_writes_completes_while_the_last_ones_wait() {
    needs_link!("a slow link");
    let mut sim = sim().rate(1_000_000_000);
    let (mut a, b) = connected(&mut sim, &confirming());
    let target = b.target(MIB);
    for wr_id in 0..16 {
        a.post_write(wr_id, &pattern(MIB), target.remote(0));
    }
    let mut done = Vec::new();
    sim.run_until("the first one completes", || {
        done.extend(a.sends());
        !done.is_empty()
    });
    assert!(done.len() < 8, "{done:?}");
}

/// TCP delivers what is in front of an error of this side.
#[test]
fn work_before_an_error_of_this_side_succeeds() {
    let mut sim = sim().expecting(&["drop_after_failure"]);
    let (mut a, mut b) = connected(&mut sim, &confirming());
    let _place = post_both(&mut a, &mut b, 8);
    let mut wrong = a.source(b"no region");
    wrong.stag = Stag(wrong.stag.0 ^ 1);
    a.post(SendRequest::send(WrId(3), wrong));
    a.post_send(4, b"never");
    sim.run_until_idle();
    let [done @ .., failed, flushed] = &a.sends()[..] else {
        panic!("no completions")
    };
    assert_eq!(done, [Done::send(1, 8), Done::write(2, 8)]);
    assert_eq!((failed.wr_id, failed.outcome.is_err()), (3, true));
    assert_eq!(*flushed, Done::flushed(4, Opcode::Send));
    assert_eq!(b.receives()[0], Done::receive(1, 8));
}

/// What waits for all earlier work waits for its confirmation, which is asked for at once.
#[test]
fn local_fence_waits_for_the_confirmation() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming());
    let region = a.va_region(KIB, Access::all(), 0x1000);
    let mut window = a.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 64, Access::REMOTE_READ);
    a.post(SendRequest::bind(WrId(9), bind).unsignaled());
    for round in 0..2 {
        b.post_recv(round, 8);
        a.post_send(round, b"message");
    }
    a.post(SendRequest::invalidate(WrId(2), bind.window).locally_fenced());
    sim.run_for(10 * ONE_WAY);
    let expected = [Done::send(0, 7), Done::send(1, 7), Done::invalidate(2)];
    assert_eq!(a.sends(), expected);
}

/// The send queue is full of work without a completion.
#[test]
fn unsignaled_work_frees_its_slots() {
    let mut sim = sim();
    let (mut a, b) = connected(&mut sim, &confirming().send_depth(4));
    let target = b.target(8);
    for round in 0..20 {
        let source = a.source(b"unseen");
        a.post(SendRequest::write(WrId(round), source, target.remote(0)).unsignaled());
        if round % 4 == 3 {
            sim.run_for(5 * ONE_WAY);
        }
    }
    assert_eq!(a.sends(), []);
}

#[test]
fn responses_to_requests_confirm_what_was_sent_before() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming());
    let source = b.region(8, Access::all());
    let host = b.host().clone();
    let arrived = || host.rnic().counters().unwrap().rdma.fpdus_in;
    let before = arrived();
    for round in 0..20 {
        let (send, read) = (2 * round, 2 * round + 1);
        b.post_recv(send, 8);
        a.post_send(send, b"message");
        let sink = a.own_region(8, Access::all());
        a.post_read(read, sink.local(0, 8), source.remote(0));
        sim.run_for(5 * ONE_WAY);
        assert_eq!(a.sends(), [Done::send(send, 7), Done::read(read, 8)]);
    }
    assert_eq!(arrived() - before, 40, "no other Read is sent");
}

#[test]
fn many_messages_complete_once_each_on_any_link() {
    for_each_seed(|seed| {
        let mut sim = Sim::on_a_bad_link(seed);
        let config = confirming().send_depth(16).ord(2).ird(2);
        let (mut a, mut b) = connected(&mut sim, &config);
        let target = b.region(64 * KIB, Access::all());
        let sink = a.own_region(64 * KIB, Access::all());
        let lens = [1, 700, 3000, 40 * KIB, 0, 64 * KIB];
        let mut expected = Vec::new();
        let mut done = Vec::new();
        for wr_id in 0..200 {
            let len = lens[usize::try_from(wr_id).unwrap() % lens.len()];
            while expected.len() - done.len() == 16 {
                sim.run_for(Duration::from_millis(1));
                done.extend(a.sends());
            }
            match wr_id % 5 {
                0 | 1 => {
                    b.post_recv(wr_id, len);
                    a.post_send(wr_id, &pattern(len));
                    expected.push(Done::send(wr_id, len));
                }
                2 | 3 => {
                    a.post_write(wr_id, &pattern(len), target.remote(0));
                    expected.push(Done::write(wr_id, len));
                }
                _ => {
                    let len = len.max(1);
                    let sge = sink.local(0, u32::try_from(len).unwrap());
                    a.post_read(wr_id, sge, target.remote(0));
                    expected.push(Done::read(wr_id, len));
                }
            }
            b.receives();
        }
        sim.run_until("all is done", || {
            done.extend(a.sends());
            done.len() == expected.len()
        });
        assert_eq!(done, expected);
    });
}

/// What is sent behind the peer's FIN is handled, but no Read is answered.
#[test]
fn peer_that_has_closed_takes_no_confirmation_away() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming());
    b.post_recv(1, 8);
    b.qp.begin_disconnect().unwrap();
    a.post_send(1, b"crossing");
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(1, 8)]);
    assert_eq!(b.receives(), [Done::receive(1, 8)]);
    assert_eq!((a.events(), b.events()), (vec![Closed], vec![Closed]));
}

/// It completes when it is sent then, and its memory is the application's no sooner.
#[test]
fn message_that_is_being_sent_when_the_peer_closes_is_sent_to_its_end() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming());
    let target = b.target(8 * MIB);
    let source = a.own_region(8 * MIB, Access::LOCAL_READ);
    source.bytes().write(0, &pattern(8 * MIB)).unwrap();
    let len = u32::try_from(8 * MIB).unwrap();
    a.post(SendRequest::write(
        WrId(1),
        source.local(0, len),
        target.remote(0),
    ));
    sim.run_for(10 * ONE_WAY);
    b.qp.begin_disconnect().unwrap();
    sim.run_until("the Write completes", || {
        a.sends() == [Done::write(1, 8 * MIB)]
    });
    drop(source);
    sim.run_until_idle();
    assert!(target.to_vec() == pattern(8 * MIB));
    assert_eq!((a.events(), b.events()), (vec![Closed], vec![Closed]));
}

#[test]
fn own_close_comes_behind_the_confirmation() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming());
    let _place = post_both(&mut a, &mut b, 64 * KIB);
    a.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert_eq!(
        a.sends(),
        [Done::send(1, 64 * KIB), Done::write(2, 64 * KIB)]
    );
    assert_eq!((a.events(), b.events()), (vec![Closed], vec![Closed]));
}

#[test]
fn work_of_a_peer_that_is_gone_is_flushed() {
    needs_link!("a cut link");
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming().quiet_end(true));
    sim.cut_link();
    let _place = post_both(&mut a, &mut b, 8);
    sim.run_until_idle();
    let expected = [
        Done::flushed(1, Opcode::Send),
        Done::flushed(2, Opcode::Write),
    ];
    assert_eq!((a.sends(), a.state()), (expected.into(), QpState::Error));
}

/// The peer's TCP has acknowledged the message, and only the response is missing.
#[test]
fn reset_behind_the_peers_acknowledgement_is_no_failure() {
    needs_link!("a cut link");
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, b) = connected(&mut sim, &confirming().quiet_end(true));
    let target = b.target(MIB);
    // Frames with a header of FPDUs are longer than those of TCP alone.
    sim.link()
        .lane(Direction::BToA)
        .drop_if(|frame| frame.len() > 80);
    a.post_write(1, &pattern(MIB), target.remote(0));
    sim.run_until("the Write is placed", || target.to_vec() == pattern(MIB));
    sim.run_for(Duration::from_millis(100));
    assert_eq!(a.sends(), []);
    assert!(b.qp.destroy().is_ok());
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
}

/// A Read needs ORD, and so does the confirmation.
#[test]
fn without_ord_they_complete_when_they_are_sent() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming().ord(0));
    let _place = post_both(&mut a, &mut b, 8);
    sim.run_for(Duration::from_micros(10));
    assert_eq!(a.sends(), [Done::send(1, 8), Done::write(2, 8)]);
}

#[test]
fn next_connection_confirms_once_that_is_switched_on() {
    let mut sim = sim();
    let (mut a, mut b) = (
        sim.a().end(&QpConfig::default()),
        sim.b().end(&QpConfig::default()),
    );
    let change = QpChange::to(QpState::Idle).confirm_sends(true);
    a.qp.modify(change).unwrap();
    assert!(a.qp.query().unwrap().confirm_sends);
    sim.connect(&mut a, &mut b);
    sim.run_for(5 * ONE_WAY);
    let _place = post_both(&mut a, &mut b, 8);
    sim.run_for(ONE_WAY);
    assert_eq!(a.sends(), []);
    sim.run_for(5 * ONE_WAY);
    assert_eq!(a.sends(), [Done::send(1, 8), Done::write(2, 8)]);
}

/// Only the queue pair's own Read awaits a response then.
#[test]
fn ord_that_is_taken_away_ends_the_confirmation() {
    let mut sim = sim();
    let (mut a, mut b) = connected(&mut sim, &confirming());
    let _place = post_both(&mut a, &mut b, 8);
    sim.run_for(ONE_WAY);
    a.qp.modify(QpChange::to(QpState::Rts).ord(0)).unwrap();
    assert_eq!(a.sends(), [Done::send(1, 8), Done::write(2, 8)]);
    let _place = post_both(&mut a, &mut b, 8);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(1, 8), Done::write(2, 8)]);
    assert_eq!(a.state(), QpState::Rts);
}

//! Queue pairs that are their own peers, as UCX and NIXL make them for a process's messages to
//! itself.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::stream::{Framing, LlpStream, StreamState};
use xwarp::{CompletionStatus, Opcode, QpConfig, QpState, SendRequest, WrId};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

use crate::refused::wrong_key;

fn sim() -> Sim {
    Sim::new(Seed(81))
}

/// As a queue pair that a program brings up by hand.
fn by_hand() -> QpConfig {
    QpConfig::default()
        .confirm_sends(true)
        .send_immediates(true)
        .await_receives(true)
        .quiet_end(true)
}

fn loopback(sim: &mut Sim) -> LlpStream {
    let host = sim.a();
    let address = host.at(0).ip();
    let stream = host.rnic().connect_loopback(address).unwrap();
    sim.run_until("it is connected", || {
        stream.state() == Ok(StreamState::Established)
    });
    stream
}

/// A queue pair of host A with its own peer.
fn connected(sim: &mut Sim, config: &QpConfig) -> SimEnd {
    let mut end = sim.a().end(config);
    let stream = loopback(sim);
    let start = QpChange::start(&stream, Framing::default());
    end.qp.modify(start).unwrap();
    end
}

#[test]
fn stream_receives_what_it_sends() {
    let mut sim = sim();
    let mut stream = loopback(&mut sim);
    assert_eq!(stream.write(b"to myself").unwrap(), 9);
    sim.run_until_idle();
    let mut bytes = [0; 16];
    assert_eq!(stream.read(&mut bytes).unwrap(), 9);
    assert_eq!(&bytes[..9], b"to myself");
}

#[test]
fn every_operation_moves_its_bytes() {
    for config in [QpConfig::default(), by_hand()] {
        for len in [1, 64 * KIB, 4 * MIB] {
            let mut sim = sim();
            let mut end = connected(&mut sim, &config);
            let target = end.target(len);
            end.post_recv(1, len);
            end.post_send(1, &pattern(len));
            end.post_write(2, &pattern(len), target.remote(0));
            sim.run_until_idle();
            assert_eq!(end.sends(), [Done::send(1, len), Done::write(2, len)]);
            assert_eq!(end.receives(), [Done::receive(1, len)]);
            assert!(end.buffer(1) == pattern(len) && target.to_vec() == pattern(len));
            let sink = end.target(len);
            let sge = sink.local(0, len);
            end.post_read(3, sge, target.remote(0));
            sim.run_until_idle();
            assert_eq!(end.sends(), [Done::read(3, len)]);
            assert!(sink.to_vec() == pattern(len));
        }
    }
}

#[test]
fn atomic_operation_is_executed() {
    let mut sim = sim();
    let mut end = connected(&mut sim, &by_hand());
    let counter = end.target(8);
    counter.fill(&7u64.to_ne_bytes());
    end.post(SendRequest::fetch_add(WrId(1), 5, counter.remote(0)));
    sim.run_until_idle();
    assert_eq!(end.sends(), [Done::fetch_add(1)]);
    assert_eq!(counter.to_vec(), 12u64.to_ne_bytes());
}

/// More Reads than may be outstanding, in both directions at once.
#[test]
fn many_reads_and_writes_of_one_queue_pair_take_their_turns() {
    let mut sim = sim();
    let mut end = connected(&mut sim, &by_hand());
    let target = end.target(64 * KIB);
    let sink = end.target(64 * KIB);
    let mut expected = Vec::new();
    for wr_id in 0..60 {
        if wr_id % 2 == 0 {
            end.post_write(wr_id, &pattern(64 * KIB), target.remote(0));
            expected.push(Done::write(wr_id, 64 * KIB));
        } else {
            end.post_read(wr_id, sink.local(0, 64 * KIB), target.remote(0));
            expected.push(Done::read(wr_id, 64 * KIB));
        }
    }
    sim.run_until_idle();
    assert_eq!(end.sends(), expected);
    assert!(sink.to_vec() == pattern(64 * KIB));
}

#[test]
fn message_without_a_buffer_waits_and_what_follows_it_too() {
    let mut sim = sim();
    let mut end = connected(&mut sim, &by_hand());
    let target = end.target(8);
    end.post_send(1, b"early");
    end.post_write(2, b"later", target.remote(0));
    sim.run_for(Duration::from_secs(1));
    assert_eq!((end.sends(), target.to_vec()), (Vec::new(), vec![0; 8]));
    end.post_recv(1, 8);
    sim.run_until_idle();
    assert_eq!(end.sends(), [Done::send(1, 5), Done::write(2, 5)]);
    assert_eq!(end.receives(), [Done::receive(1, 5)]);
}

/// The end that refuses is the end that sent.
#[test]
fn refused_request_ends_with_that() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let mut end = connected(&mut sim, &by_hand());
    let (target, wrong) = (end.target(8), wrong_key(end.host()).address);
    end.post_write(1, b"accepted", target.remote(0));
    end.post_write(2, b"refused", wrong);
    end.post_write(3, b"flushed", target.remote(0));
    sim.run_until_idle();
    let expected = [
        Done::write(1, 8),
        Done::refused(2, Opcode::Write),
        Done::flushed(3, Opcode::Write),
    ];
    assert_eq!(end.sends(), expected);
    assert_eq!(target.to_vec(), b"accepted");
}

#[test]
fn refused_read_ends_with_that() {
    for config in [QpConfig::default(), by_hand()] {
        let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
        let mut end = connected(&mut sim, &config);
        let wrong = wrong_key(end.host()).address;
        let sink = end.target(8);
        end.post_read(1, sink.local(0, 8), wrong);
        end.post_read(2, sink.local(0, 8), wrong);
        sim.run_until_idle();
        let expected = [
            Done::refused(1, Opcode::Read),
            Done::flushed(2, Opcode::Read),
        ];
        assert_eq!(end.sends(), expected);
    }
}

#[test]
fn send_that_is_too_long_fails_at_both_queues() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let mut end = connected(&mut sim, &by_hand());
    end.post_recv(1, 4);
    end.post_send(1, b"too long");
    sim.run_until_idle();
    assert_eq!(end.sends(), [Done::refused(1, Opcode::Send)]);
    let expected = Done::failed(1, Opcode::Receive, CompletionStatus::BaseBounds);
    assert_eq!(end.receives(), [expected]);
}

#[test]
fn close_ends_it_and_its_memory_is_free() {
    for config in [QpConfig::default(), by_hand()] {
        let mut sim = sim();
        let mut end = connected(&mut sim, &config);
        let target = end.target(MIB);
        end.post_write(1, &pattern(MIB), target.remote(0));
        end.qp.begin_disconnect().unwrap();
        sim.run_until_idle();
        assert_eq!(end.sends(), [Done::write(1, MIB)]);
        assert_eq!(end.state(), QpState::Idle);
        assert!(target.to_vec() == pattern(MIB));
        drop(target);
        assert!(end.qp.destroy().is_ok());
    }
}

#[test]
fn it_can_be_its_own_peer_again() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let mut end = connected(&mut sim, &by_hand());
    for round in 1..4 {
        end.post_recv(round, 8);
        end.post_send(round, b"in turn");
        sim.run_until_idle();
        assert_eq!(end.sends(), [Done::send(round, 7)]);
        assert_eq!(end.receives(), [Done::receive(round, 7)]);
        end.qp.abort().unwrap();
        end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
        let stream = loopback(&mut sim);
        let start = QpChange::start(&stream, Framing::default());
        end.qp.modify(start).unwrap();
    }
}

//! Sends with immediate data, which both ends of a connection must know of each other.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::PostError;
use xwarp::work::Sgl;
use xwarp::{CompletionStatus, Opcode, QpConfig, QpState, SendRequest, WrId};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(71)).one_way_delay(Duration::from_micros(50))
}

fn knowing() -> QpConfig {
    QpConfig::default().send_immediates(true)
}

fn post(end: &mut SimEnd, wr_id: u64, bytes: &[u8], data: [u8; 4]) {
    let source = end.source(bytes);
    end.post(SendRequest::send_immediate(WrId(wr_id), source, data));
}

#[test]
fn message_is_in_the_buffer_and_its_data_in_the_completion() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair_with(&knowing());
    for (wr_id, len) in [(1, 0), (2, 5), (3, 64 * KIB)] {
        b.post_recv(wr_id, 64 * KIB);
        let [.., last] = wr_id.to_be_bytes();
        let data = [1, 2, 3, last];
        post(&mut a, wr_id, &pattern(len), data);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(
            a.sends(),
            [Done::success(wr_id, Opcode::SendImmediate, len)]
        );
        let done = b.recv_cq().poll().unwrap().expect("a completion");
        assert_eq!(
            Done::from(done),
            Done::success(wr_id, Opcode::ReceiveImmediate, len)
        );
        assert_eq!(done.immediate, Some([1, 2, 3, last, 0, 0, 0, 0]));
        assert!(!done.solicited);
        assert!(b.buffer(wr_id)[..len] == pattern(len));
    }
    // Those before and behind it are as ever.
    b.post_recv(4, 8);
    a.post_send(4, b"plain");
    sim.run_for(Duration::from_secs(1));
    assert_eq!(b.receives(), [Done::receive(4, 5)]);
}

/// The lengths that receives completed by Immediate Data report.
fn reported(end: &mut SimEnd) -> Vec<u32> {
    let next = || end.recv_cq().poll().unwrap();
    let of_immediates = std::iter::from_fn(next).filter(|it| it.opcode == Opcode::Receive);
    of_immediates.map(|it| it.byte_len).collect()
}

/// As `ibv_wc.byte_len` of a Write with immediate data. A Write without such data, a Send and a
/// Read do not count.
#[test]
fn immediate_data_report_the_length_of_the_write_before_them() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair_with(&knowing());
    let (target, sink) = (b.target(256 * KIB), a.target(KIB));
    let lens = [5, 0, 1448, 100_000, 256 * KIB, 1];
    for (wr_id, len) in (10..).zip(lens) {
        b.post_recv(wr_id, 8);
        a.post_write(1, &pattern(KIB), target.remote(0));
        let source = a.source(&pattern(len));
        let both = SendRequest::write_immediate(WrId(2), source, target.remote(0), [7; 8]);
        a.post(both);
        a.post_read(3, sink.local(0, KIB), target.remote(0));
    }
    b.post_recv(1, 8);
    b.post_recv(2, 8);
    a.post_write(4, &pattern(KIB), target.remote(0));
    a.post_send(5, b"between");
    a.post(SendRequest::immediate(WrId(6), [7; 8]));
    sim.run_for(Duration::from_secs(5));
    let expected = [5, 0, 1448, 100_000, 262_144, 1, 7, 0];
    assert_eq!(reported(&mut b), expected);
}

/// RFC 7306 does not report it, and a peer that has no more than that may have sent the Write for
/// another reason.
#[test]
fn immediate_data_report_no_length_by_default() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let target = b.target(8);
    b.post_recv(1, 8);
    let source = a.source(b"unknown");
    let both = SendRequest::write_immediate(WrId(2), source, target.remote(0), [7; 8]);
    a.post(both);
    sim.run_for(Duration::from_secs(1));
    let reported = reported(&mut b);
    assert_eq!(reported.last(), Some(&0), "{reported:?}");
}

#[test]
fn solicited_one_is_so() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair_with(&knowing());
    b.post_recv(1, 8);
    let source = a.source(b"event");
    a.post(SendRequest::send_immediate(WrId(1), source, [9; 4]).solicited());
    sim.run_until_idle();
    let done = b.recv_cq().poll().unwrap().expect("a completion");
    assert_eq!(
        (done.opcode, done.solicited),
        (Opcode::ReceiveImmediate, true)
    );
}

#[test]
fn end_that_does_not_know_them_neither_posts_nor_accepts_them() {
    let mut sim = sim().expecting(&["drop_refused_segment"]);
    let (mut a, mut b) = (sim.a().end(&knowing()), sim.b().end(&QpConfig::default()));
    sim.connect(&mut a, &mut b);
    let refused =
        b.qp.post_send(SendRequest::send_immediate(WrId(1), Sgl::new(), [0; 4]));
    assert_eq!(refused, Err(PostError::SendImmediatesDisabled));
    b.post_recv(1, 8);
    post(&mut a, 1, b"what", [0; 4]);
    sim.run_until_idle();
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
    assert_eq!(b.receives(), [Done::flushed(1, Opcode::Receive)]);
}

#[test]
fn next_connection_has_them_once_they_are_switched_on() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    for end in [&mut a, &mut b] {
        let change = QpChange::to(QpState::Idle).send_immediates(true);
        end.qp.modify(change).unwrap();
        assert!(end.qp.query().unwrap().send_immediates);
    }
    // It waits for the connection.
    post(&mut a, 1, b"early", [7; 4]);
    b.post_recv(1, 8);
    sim.connect(&mut a, &mut b);
    sim.run_until_idle();
    assert_eq!(
        b.receives(),
        [Done::success(1, Opcode::ReceiveImmediate, 5)]
    );
}

/// The stream was begun without them.
#[test]
fn one_that_was_switched_on_too_late_fails_here() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let change = QpChange::to(QpState::Rts).send_immediates(true);
    a.qp.modify(change).unwrap();
    b.post_recv(1, 8);
    post(&mut a, 1, b"late", [7; 4]);
    sim.run_until_idle();
    let status = CompletionStatus::NotInVersion;
    assert_eq!(a.sends(), [Done::failed(1, Opcode::SendImmediate, status)]);
}

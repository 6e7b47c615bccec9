//! Ends of connections: each is reported once, without delay, after receives are flushed.

use std::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use xwarp_test_kit::{TIMEOUT, eventually};

use super::refused_with;
use crate::abi::Zeroed;
use crate::abi::cm::rdma_conn_param;
use crate::abi::numbers::{
    IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_WC_SUCCESS, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
};
use crate::backend::POLL_TIME;
use crate::backend::connection_event::ConnectionEvent;
use crate::cm::connecting::{rdma_accept, rdma_disconnect};
use crate::cm::life::rdma_destroy_id;
use crate::cm::numbers::EventKind::{DeviceRemoval, Disconnected, Established, Rejected};
use crate::cm::qp::rdma_destroy_qp;
use crate::cm::testbed::{
    Bed, Connection, assert_flushed, at_b, await_message, await_state, modify, polled, post_recv,
    post_with_wrong_key, send, shown, state,
};
use crate::entry::lock;
use crate::verbs::qp::ibv_destroy_qp;

/// Identifiers of the receives that wait at each end. The one of B has no memory.
const AT_A: u64 = 10;
const AT_B: u64 = 20;

/// Operations that end a connection, and the receives that their own completions report.
type Case = (&'static str, fn(Connection), Option<u64>);

/// Work that fails at its own side, and the operation that the program of A requests.
const CASES: [Case; 6] = [
    ("orderly", |it| assert_eq!(rdma_disconnect(it.a), 0), None),
    (
        "wrong local key",
        |it| post_with_wrong_key(it.a, IBV_WR_RDMA_WRITE),
        None,
    ),
    (
        "wrong key of a sink",
        |it| post_with_wrong_key(it.a, IBV_WR_RDMA_READ),
        None,
    ),
    (
        "buffer of the peer too short",
        |it| send(it.a, 8),
        Some(AT_B),
    ),
    ("error by Modify QP", |it| modify(it.a, IBV_QPS_ERR), None),
    (
        "reset by Modify QP",
        |it| modify(it.a, IBV_QPS_RESET),
        Some(AT_A),
    ),
];

#[test]
fn every_end_is_reported_to_both_programs_after_their_receives_are_flushed() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    for (case, end, not_flushed) in CASES {
        println!("{case}");
        let ends = bed.connect(listener);
        post_recv(ends.a, AT_A);
        post_recv(ends.b, AT_B);
        end(ends);
        for (host, id, wr_id) in [(&bed.a, ends.a, AT_A), (&bed.b, ends.b, AT_B)] {
            host.expect(Disconnected, id);
            if not_flushed != Some(wr_id) {
                assert_flushed(id, wr_id);
                assert_eq!(state(id), IBV_QPS_ERR);
            }
            assert_eq!(rdma_disconnect(id), 0, "as over the kernel's iWARP");
            assert!(host.is_quiet(), "an end is reported once");
            rdma_destroy_qp(id);
        }
    }
    assert!(bed.a.is_quiet() && bed.b.is_quiet());
}

/// Reads beyond the agreed depth also end the connection.
#[test]
fn read_beyond_the_depth_is_reported_as_the_end() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let a = bed.a.connecting(0);
    let b = bed.b.requested(listener);
    bed.b.accept(b);
    bed.a.expect(Established, a);
    post_with_wrong_key(a, IBV_WR_RDMA_READ);
    bed.a.expect(Disconnected, a);
    bed.b.expect(Disconnected, b);
}

#[test]
fn failure_of_the_rnic_ends_connections_before_the_device_is_removed() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let ends = bed.connect(listener);
    bed.fail_a();
    bed.a.expect(Disconnected, ends.a);
    bed.a.expect(DeviceRemoval, ends.a);
    assert!(bed.a.is_quiet());
}

/// How either end treats a message that finds no receive buffer, by its own parameters:
/// librdmacm's, a number of retries, and none.
#[test]
fn message_waits_for_a_receive_unless_no_retry_is_wanted() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let mut six = rdma_conn_param::zeroed();
    six.rnr_retry_count = 6;
    let none = rdma_conn_param::zeroed();
    for (param, waits) in [(None, true), (Some(&six), true), (Some(&none), false)] {
        let a = bed.a.connecting_with(param);
        let b = bed.b.requested(listener);
        bed.b.accept_with(b, param);
        bed.a.expect(Established, a);
        for (from, to) in [(a, b), (b, a)] {
            send(from, 0);
            if !waits {
                break;
            }
            let sent = shown(from, |it| it.send_cq);
            eventually("it is sent", || polled(from, sent).is_some());
            post_recv(to, 1);
            await_message(to);
        }
        if !waits {
            bed.a.expect(Disconnected, a);
            bed.b.expect(Disconnected, b);
        }
        assert!(bed.a.is_quiet() && bed.b.is_quiet());
        rdma_destroy_qp(b);
        rdma_destroy_qp(a);
        assert_eq!((rdma_destroy_id(b), rdma_destroy_id(a)), (0, 0));
    }
}

/// A program that destroys the queue pair at the end of its connection would lose the message.
#[test]
fn end_waits_for_completions_that_are_not_polled() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let ends = bed.connect(listener);
    post_recv(ends.b, AT_B);
    send(ends.a, 0);
    let at_a = shown(ends.a, |it| it.send_cq);
    eventually("the message is acknowledged", || {
        polled(ends.a, at_a).is_some()
    });
    let since = Instant::now();
    modify(ends.a, IBV_QPS_ERR);
    bed.b.expect(Disconnected, ends.b);
    assert!(since.elapsed() >= POLL_TIME, "the end is held back");
    let at_b = shown(ends.b, |it| it.recv_cq);
    assert!(polled(ends.b, at_b).is_some_and(|it| it.status == IBV_WC_SUCCESS));
}

/// The thread that reports is delayed until the connection has ended.
#[test]
fn connection_that_ends_at_once_is_reported_as_established_first() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let held = bed.hold_up_a();
    let a = bed.a.connecting(1);
    let b = bed.b.requested(listener);
    bed.b.accept(b);
    await_state(a, IBV_QPS_RTS);
    assert_eq!(ibv_destroy_qp(shown(b, |it| it.qp)), 0);
    await_state(a, IBV_QPS_ERR);
    drop(held);
    bed.a.expect(Established, a);
    bed.a.expect(Disconnected, a);
}

/// The thread that destroyed the queue pair reported the end, before the connection was reported.
#[test]
fn connection_whose_queue_pair_is_destroyed_is_reported_as_established_first() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let a = bed.a.routed(at_b());
    let (event, reported) = mpsc::channel();
    let (made, is_made) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let ends = Mutex::new((event, made, released));
    let callback = move |it| {
        let (event, made, released) = &*lock(&ends);
        let is_connected = matches!(it, ConnectionEvent::Connected { .. });
        if is_connected {
            made.send(()).expect("the test waits");
            // An error says that it is released.
            let _: Result<(), _> = released.recv();
        }
        event.send(is_connected).expect("the test waits");
    };
    Bed::connect_to_b(a, Arc::new(callback));
    let b = bed.b.requested(listener);
    bed.b.accept(b);
    is_made.recv_timeout(TIMEOUT).expect("a connection");
    let qp = shown(a, |it| it.qp).expose_provenance();
    let destroyer = thread::spawn(move || ibv_destroy_qp(with_exposed_provenance_mut(qp)));
    eventually("it is destroyed", || destroyer.is_finished());
    drop(release);
    assert_eq!(destroyer.join().expect("no panic"), 0);
    assert_eq!(reported.recv_timeout(TIMEOUT), Ok(true));
    assert_eq!(reported.recv_timeout(TIMEOUT), Ok(false));
    assert_eq!(rdma_destroy_id(a), 0);
}

#[test]
fn attempt_that_is_given_up_has_no_event() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let a = bed.a.connecting(1);
    let b = bed.b.requested(listener);
    rdma_destroy_qp(a);
    assert!(bed.a.is_quiet(), "it was never connected");
    // The next peer connects after the first one's end.
    bed.connect(listener);
    refused_with(Errno::ECONNRESET, rdma_accept(b, None));
    rdma_destroy_qp(b);
    assert!(bed.b.is_quiet(), "an accept that has failed has no event");
}

#[test]
fn peer_that_is_not_answered_is_rejected() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let a = bed.a.connecting(1);
    let b = bed.b.requested(listener);
    rdma_destroy_qp(b);
    assert_eq!(rdma_destroy_id(b), 0);
    bed.a.expect(Rejected, a);
    assert_eq!(rdma_destroy_id(listener), 0);
}

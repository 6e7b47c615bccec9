//! Threads that use handles while another one destroys them.

use std::ffi::c_void;
use std::ptr::{self, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::errno::Errno;
use xwarp_test_kit::{eventually, spawn_numbered, thread_sleeps};

use super::testbed::{Bed, qp_attr, request};
use crate::abi::Zeroed;
use crate::abi::numbers::IBV_WR_RDMA_WRITE;
use crate::abi::verbs::{ibv_cq, ibv_recv_wr, ibv_wc};
use crate::verbs::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::verbs::cq_events::{ibv_ack_cq_events, ibv_get_cq_event};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp};

const INVALID: i32 = Errno::EINVAL as i32;
/// Rounds that the threads have begun before the handle is destroyed.
const ROUNDS: usize = 50;

/// Waits until this many rounds were begun.
fn await_rounds(rounds: &AtomicUsize, wanted: usize) {
    while rounds.load(Ordering::Relaxed) < wanted {
        thread::yield_now();
    }
}

/// Posts to a queue pair until that is refused for good.
fn post_until_destroyed(post: impl Fn() -> i32, rounds: &AtomicUsize) {
    loop {
        rounds.fetch_add(1, Ordering::Relaxed);
        match post() {
            INVALID => return,
            failed => assert!(failed == 0 || failed == Errno::ENOMEM as i32, "{failed}"),
        }
    }
}

#[test]
fn posting_to_a_queue_pair_ends_when_it_is_destroyed() {
    let bed = Bed::unconnected();
    let cq = ibv_create_cq(bed.a.context, 1 << 10, ptr::null_mut(), ptr::null_mut(), 0);
    let qp = ibv_create_qp(bed.a.pd, Some(&mut qp_attr(cq)));
    let peer = ibv_create_qp(bed.b.pd, Some(&mut qp_attr(bed.b.cq)));
    bed.connect(qp, peer);
    let (address, target, rounds) = (qp.expose_provenance(), bed.b.remote(0), AtomicUsize::new(0));
    let (ops, rounds) = (bed.a.ops(), &rounds);
    let (send, receive) = (
        ops.post_send.expect("a slot"),
        ops.post_recv.expect("a slot"),
    );
    let post_write = move || {
        let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut []);
        wr.wr = target;
        send(with_exposed_provenance_mut(address), &raw mut wr, None)
    };
    let post_buffer = move || {
        let mut wr = ibv_recv_wr::zeroed();
        receive(with_exposed_provenance_mut(address), &raw mut wr, None)
    };
    thread::scope(|scope| {
        // A thread that panics makes the scope panic.
        scope.spawn(move || post_until_destroyed(post_write, rounds));
        scope.spawn(move || post_until_destroyed(post_write, rounds));
        scope.spawn(move || post_until_destroyed(post_buffer, rounds));
        await_rounds(rounds, ROUNDS);
        assert_eq!(ibv_destroy_qp(qp), 0);
    });
    assert_eq!([ibv_destroy_qp(peer), ibv_destroy_cq(cq)], [0, 0]);
    bed.end();
}

#[test]
fn polling_a_completion_queue_fails_when_it_is_destroyed() {
    let bed = Bed::unconnected();
    let cq = ibv_create_cq(bed.a.context, 16, ptr::null_mut(), ptr::null_mut(), 0);
    let (address, rounds) = (cq.expose_provenance(), AtomicUsize::new(0));
    let (poll, started) = (bed.a.ops().poll_cq.expect("a slot"), &rounds);
    let polling = move || {
        let cq: *mut ibv_cq = with_exposed_provenance_mut(address);
        let mut places = [ibv_wc::zeroed(); 4];
        loop {
            started.fetch_add(1, Ordering::Relaxed);
            match poll(cq, 4, places.as_mut_ptr()) {
                0 => {}
                failed => return failed,
            }
        }
    };
    thread::scope(|scope| {
        let threads = [0; 3].map(|_| scope.spawn(polling));
        await_rounds(started, ROUNDS);
        assert_eq!(ibv_destroy_cq(cq), 0);
        let ends = threads.map(|it| it.join().expect("no panic"));
        assert_eq!(ends, [-1; 3]);
    });
    bed.end();
}

#[test]
fn one_of_two_threads_that_destroy_an_object_succeeds() {
    let bed = Bed::unconnected();
    for _ in 0..ROUNDS {
        let mr = ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), 64, 0);
        let address = mr.expose_provenance();
        let end = move || ibv_dereg_mr(with_exposed_provenance_mut(address));
        let mut ends = thread::scope(|scope| {
            [scope.spawn(end), scope.spawn(end)].map(|it| it.join().expect("no panic"))
        });
        ends.sort_unstable();
        assert_eq!(ends, [0, INVALID]);
    }
    bed.end();
}

#[test]
fn destroying_a_completion_queue_waits_until_its_event_is_acknowledged() {
    let bed = Bed::unconnected();
    let cq = ibv_create_cq(bed.a.context, 16, ptr::null_mut(), bed.a.channel, 0);
    let qp = ibv_create_qp(bed.a.pd, Some(&mut qp_attr(cq)));
    let peer = ibv_create_qp(bed.b.pd, Some(&mut qp_attr(bed.b.cq)));
    bed.connect(qp, peer);
    let ops = bed.a.ops();
    assert_eq!(ops.req_notify_cq.expect("a slot")(cq, 0), 0);
    let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut []);
    wr.wr = bed.b.remote(0);
    assert_eq!(ops.post_send.expect("a slot")(qp, &raw mut wr, None), 0);
    let (mut told, mut context) = (ptr::null_mut(), ptr::null_mut::<c_void>());
    let got = ibv_get_cq_event(bed.a.channel, Some(&mut told), Some(&mut context));
    assert_eq!((got, told), (0, cq));
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_qp(peer)], [0, 0]);
    let address = cq.expose_provenance();
    thread::scope(|scope| {
        let end = move || ibv_destroy_cq(with_exposed_provenance_mut(address));
        let (number, ended) = spawn_numbered(scope, end);
        let (poll, mut place) = (ops.poll_cq.expect("a slot"), ibv_wc::zeroed());
        // The object is destroyed when it waits.
        while poll(cq, 1, &raw mut place) >= 0 {
            thread::yield_now();
        }
        eventually("it waits", || thread_sleeps(number));
        assert!(!ended.is_finished());
        ibv_ack_cq_events(cq, 1);
        assert_eq!(ended.join().expect("no panic"), 0);
    });
    bed.end();
}

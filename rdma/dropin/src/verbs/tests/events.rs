//! Asynchronous events: the object that each names, and the acknowledgments that destroying it
//! awaits.

use std::ptr::{self, without_provenance_mut};
use std::thread;

use xwarp_test_kit::{eventually, spawn_numbered, thread_sleeps};

use super::testbed::{Bed, LEN, qp_attr, request};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_FATAL, IBV_QP_STATE, IBV_QPS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WR_RDMA_WRITE,
};
use crate::abi::verbs::{
    ibv_async_event, ibv_context, ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};
use crate::backend::{EventTarget, Happening};
use crate::object::Object;
use crate::verbs::async_events::{ibv_ack_async_event, ibv_get_async_event};
use crate::verbs::context::Context;
use crate::verbs::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp};

/// Raises this event on the device of a context.
fn happens(context: *mut ibv_context, happening: Happening) {
    let context = Object::<Context>::find(context).expect("it lives");
    context.body().device().targets().notify(happening);
}

#[test]
fn events_of_the_device_name_its_port() {
    let bed = Bed::unconnected();
    let port = without_provenance_mut(1);
    for (happening, event) in [
        (Happening::PortError, IBV_EVENT_PORT_ERR),
        (Happening::PortActive, IBV_EVENT_PORT_ACTIVE),
        (Happening::DeviceFatal, IBV_EVENT_DEVICE_FATAL),
    ] {
        happens(bed.a.context, happening);
        bed.a.expect_event(port, event);
    }
    bed.b.expect_no_event();
    bed.end();
}

/// A queue pair of the first host that completes on `cq`, connected to another of the second, and
/// the latter.
fn connected(bed: &Bed, cq: *mut ibv_cq) -> [*mut ibv_qp; 2] {
    let qp = ibv_create_qp(bed.a.pd, Some(&mut qp_attr(cq)));
    let peer = ibv_create_qp(bed.b.pd, Some(&mut qp_attr(bed.b.cq)));
    bed.connect(qp, peer);
    [qp, peer]
}

/// Posts a Write of `length` bytes to the end of the second host's memory.
fn write_at_the_end(bed: &Bed, qp: *mut ibv_qp, length: u32) {
    let mut piece = [bed.a.sge(0, length)];
    let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut piece);
    wr.wr = bed.b.remote(LEN);
    let post = bed.a.ops().post_send.expect("a slot");
    assert_eq!(post(qp, &raw mut wr, None), 0);
}

#[test]
fn completion_queue_without_room_is_told_with_its_queue_pair() {
    let bed = Bed::unconnected();
    let cq = ibv_create_cq(bed.a.context, 1, ptr::null_mut(), ptr::null_mut(), 0);
    let [qp, peer] = connected(&bed, cq);
    for _ in 0..2 {
        write_at_the_end(&bed, qp, 0);
    }
    bed.a.expect_event(cq.cast(), IBV_EVENT_CQ_ERR);
    bed.a.expect_event(qp.cast(), IBV_EVENT_QP_FATAL);
    let ends = [ibv_destroy_qp(qp), ibv_destroy_qp(peer), ibv_destroy_cq(cq)];
    assert_eq!(ends, [0; 3]);
    bed.end();
}

/// The connection manager reports that. The kernel's siw raises no asynchronous event for it,
/// either.
#[test]
fn connection_that_the_peer_resets_is_no_event_of_its_queue_pair() {
    let bed = Bed::new();
    bed.a.post_recv(7, bed.a.sge(0, 100));
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_ERR;
    assert_eq!(
        ibv_modify_qp(bed.b.qp, Some(&attr), IBV_QP_STATE.cast_signed()),
        0
    );
    assert_eq!(bed.a.completion().status, IBV_WC_WR_FLUSH_ERR);
    bed.a.expect_no_event();
    bed.end();
}

#[test]
fn destroying_a_queue_pair_waits_until_its_event_is_acknowledged() {
    let bed = Bed::unconnected();
    let [qp, peer] = connected(&bed, bed.a.cq);
    write_at_the_end(&bed, qp, 4);
    let mut event = ibv_async_event::zeroed();
    assert_eq!(ibv_get_async_event(bed.a.context, Some(&mut event)), 0);
    assert_eq!(event.element, qp.cast());
    let address = qp.expose_provenance();
    thread::scope(|scope| {
        let end = move || ibv_destroy_qp(ptr::with_exposed_provenance_mut(address));
        let (number, ended) = spawn_numbered(scope, end);
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        // The object is destroyed when it waits.
        while ibv_query_qp(qp, Some(&mut attr), 0, Some(&mut init)) == 0 {
            thread::yield_now();
        }
        eventually("it waits", || thread_sleeps(number));
        assert!(!ended.is_finished());
        ibv_ack_async_event(Some(&event));
        assert_eq!(ended.join().expect("no panic"), 0);
    });
    assert_eq!(ibv_destroy_qp(peer), 0);
    bed.end();
}

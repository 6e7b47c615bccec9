//! Shared receive queues: limit, depth, and queue pairs that take from them.

use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, Host, qp_attr, request};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_QP_STATE, IBV_QPS_ERR,
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_WR_SEND,
};
use crate::abi::verbs::{
    ibv_qp, ibv_qp_attr, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp};
use crate::verbs::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};

/// A queue of 8 on the first host, and a queue pair that takes from it.
fn shared(bed: &Bed) -> (*mut ibv_srq, *mut ibv_qp) {
    let mut init = ibv_srq_init_attr::zeroed();
    (init.attr.max_wr, init.attr.max_sge) = (8, 1);
    let srq = ibv_create_srq(bed.a.pd, Some(&mut init));
    let mut attr = qp_attr(bed.a.cq);
    attr.srq = srq;
    let qp = ibv_create_qp(bed.a.pd, Some(&mut attr));
    assert!(!srq.is_null() && !qp.is_null());
    // Sizes requested for a receive queue are ignored.
    assert_eq!((attr.cap.max_recv_wr, attr.cap.max_recv_sge), (0, 0));
    (srq, qp)
}

/// Posts a buffer; returns the error number.
fn post(host: &Host, srq: *mut ibv_srq) -> i32 {
    let mut wr = ibv_recv_wr::zeroed();
    host.ops().post_srq_recv.expect("a slot")(srq, &raw mut wr, None)
}

/// Changes depth and limit, as the mask selects.
fn modify(srq: *mut ibv_srq, mask: u32, max_wr: u32, srq_limit: u32) -> i32 {
    let attr = ibv_srq_attr {
        max_wr,
        max_sge: 0,
        srq_limit,
    };
    ibv_modify_srq(srq, Some(&attr), mask.cast_signed())
}

/// Depth and limit as the queue reports them.
fn sizes(srq: *mut ibv_srq) -> (u32, u32) {
    let mut now = ibv_srq_attr::zeroed();
    assert_eq!(ibv_query_srq(srq, Some(&mut now)), 0);
    (now.max_wr, now.srq_limit)
}

#[test]
fn limit_is_told_once_when_fewer_buffers_are_left() {
    let bed = Bed::unconnected();
    let (srq, qp) = shared(&bed);
    assert_eq!(ibv_destroy_srq(srq), Errno::EBUSY as i32);
    bed.connect(qp, bed.b.qp);
    assert_eq!([post(&bed.a, srq), post(&bed.a, srq)], [0, 0]);
    assert_eq!(modify(srq, IBV_SRQ_LIMIT, 0, 2), 0);
    assert_eq!(sizes(srq), (8, 2));
    assert_eq!(bed.b.post_send(&mut request(1, IBV_WR_SEND, &mut [])), 0);
    bed.a.expect_event(srq.cast(), IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_eq!(sizes(srq), (8, 0));
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_srq(srq)], [0, 0]);
    bed.end();
}

#[test]
fn depth_and_limit_are_changed_together_or_not_at_all() {
    let bed = Bed::unconnected();
    let (srq, qp) = shared(&bed);
    let both = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
    for _ in 0..8 {
        assert_eq!(post(&bed.a, srq), 0);
    }
    assert_eq!(post(&bed.a, srq), Errno::ENOMEM as i32);
    assert_eq!(modify(srq, both, 16, 6), 0);
    assert_eq!(sizes(srq), (16, 6));
    assert_eq!(post(&bed.a, srq), 0);
    let refused = [
        modify(srq, both, 4, 5),
        modify(srq, both, 32, 33),
        modify(srq, both, 5, 5),
        modify(srq, IBV_SRQ_MAX_WR, 5, 0),
        modify(srq, IBV_SRQ_LIMIT, 0, 17),
        modify(srq, IBV_SRQ_LIMIT << 1, 0, 0),
    ];
    assert_eq!(refused, [Errno::EINVAL as i32; 6]);
    assert_eq!(sizes(srq), (16, 6));
    // Less than the armed limit, so the new limit is set first.
    assert_eq!(modify(srq, IBV_SRQ_LIMIT, 0, 16), 0);
    assert_eq!(modify(srq, both, 5, 5), Errno::EINVAL as i32);
    assert_eq!(sizes(srq), (16, 16));
    assert_eq!(modify(srq, both, 9, 3), 0);
    assert_eq!(sizes(srq), (9, 3));
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_srq(srq)], [0, 0]);
    bed.end();
}

#[test]
fn last_receive_is_told_once_the_queue_pair_is_in_error() {
    let bed = Bed::unconnected();
    let (srq, qp) = shared(&bed);
    bed.connect(qp, bed.b.qp);
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_ERR;
    let mask = IBV_QP_STATE.cast_signed();
    for _ in 0..2 {
        assert_eq!(ibv_modify_qp(qp, Some(&attr), mask), 0);
    }
    bed.a.expect_event(qp.cast(), IBV_EVENT_QP_LAST_WQE_REACHED);
    bed.a.expect_no_event();
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_srq(srq)], [0, 0]);
    bed.end();
}

#[test]
fn buffers_without_a_meaning_are_refused() {
    let bed = Bed::unconnected();
    let (srq, qp) = shared(&bed);
    let (mut sges, mut wr) = ([bed.a.sge(0, 4); 2], ibv_recv_wr::zeroed());
    (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), 2);
    let posts = bed.a.ops().post_srq_recv.expect("a slot");
    let mut bad = ptr::null_mut();
    assert_eq!(
        posts(srq, &raw mut wr, Some(&mut bad)),
        Errno::EINVAL as i32
    );
    assert_eq!(bad, &raw mut wr);
    // A queue pair with a shared receive queue has none of its own.
    let own = bed.a.ops().post_recv.expect("a slot");
    (wr.num_sge, bad) = (1, ptr::null_mut());
    assert_eq!(own(qp, &raw mut wr, Some(&mut bad)), Errno::EINVAL as i32);
    assert_eq!(bad, &raw mut wr);
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_srq(srq)], [0, 0]);
    bed.end();
}

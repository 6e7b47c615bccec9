//! Attributes of queue pairs: each bit of Modify QP's mask takes effect, is kept as a hint, or is
//! refused. States as programs see them.

use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, qp_attr};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CAP, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN,
    IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR,
    IBV_QPS_RTS, IBV_WC_WR_FLUSH_ERR,
};
use crate::abi::verbs::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq_attr, ibv_srq_init_attr};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp};
use crate::verbs::srq::{ibv_create_srq, ibv_destroy_srq, ibv_query_srq};

const DONE: i32 = 0;
const INVALID: i32 = Errno::EINVAL as i32;
const UNSUPPORTED: i32 = Errno::EOPNOTSUPP as i32;

/// Changes attributes as `change` says.
fn modify(qp: *mut ibv_qp, mask: u32, change: impl FnOnce(&mut ibv_qp_attr)) -> i32 {
    let mut attr = ibv_qp_attr::zeroed();
    change(&mut attr);
    ibv_modify_qp(qp, Some(&attr), mask.cast_signed())
}

fn to(qp: *mut ibv_qp, state: u32) -> i32 {
    modify(qp, IBV_QP_STATE, |attr| attr.qp_state = state)
}

fn query(qp: *mut ibv_qp) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    assert_eq!(ibv_query_qp(qp, Some(&mut attr), 0, Some(&mut init)), 0);
    attr
}

/// The state in the struct.
fn shown(qp: *mut ibv_qp) -> u32 {
    // SAFETY: the queue pair lives.
    unsafe { (*qp).state }
}

/// As of the kernel's siw, by rdma-core's own test of an iWARP NIC.
#[test]
fn new_queue_pair_is_in_init_and_keeps_its_access_flags() {
    let bed = Bed::unconnected();
    let qp = ibv_create_qp(bed.a.pd, Some(&mut qp_attr(bed.a.cq)));
    assert_eq!(
        (shown(qp), query(qp).qp_state),
        (IBV_QPS_RESET, IBV_QPS_INIT)
    );
    let flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    let modified = modify(qp, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, |attr| {
        (attr.qp_state, attr.qp_access_flags) = (IBV_QPS_INIT, flags);
    });
    let now = query(qp);
    assert_eq!((modified, now.qp_state), (DONE, IBV_QPS_INIT));
    assert_eq!((shown(qp), now.qp_access_flags), (IBV_QPS_INIT, flags));
    assert_eq!([to(qp, IBV_QPS_RTR), to(qp, IBV_QPS_RESET)], [DONE; 2]);
    assert_eq!(
        (shown(qp), query(qp).qp_state),
        (IBV_QPS_RESET, IBV_QPS_INIT)
    );
    assert_eq!(ibv_destroy_qp(qp), 0);
    bed.end();
}

/// Changes to the attributes that a program passes.
type Change = fn(&mut ibv_qp_attr);

/// Bits of the mask, attributes, and what Modify QP returns of an unconnected queue pair.
const MASKS: [(u32, Change, i32); 26] = [
    (IBV_QP_AV, |_| {}, INVALID),
    (IBV_QP_DEST_QPN, |_| {}, INVALID),
    (IBV_QP_PATH_MTU, |_| {}, INVALID),
    (IBV_QP_RQ_PSN, |_| {}, INVALID),
    (IBV_QP_SQ_PSN, |_| {}, INVALID),
    (IBV_QP_ALT_PATH, |_| {}, UNSUPPORTED),
    (IBV_QP_PATH_MIG_STATE, |_| {}, UNSUPPORTED),
    (IBV_QP_EN_SQD_ASYNC_NOTIFY, |_| {}, UNSUPPORTED),
    (IBV_QP_CAP, |_| {}, UNSUPPORTED),
    (IBV_QP_RATE_LIMIT, |_| {}, UNSUPPORTED),
    (1 << 21, |_| {}, UNSUPPORTED),
    (1 << 31, |_| {}, UNSUPPORTED),
    (IBV_QP_QKEY, |_| {}, INVALID),
    (IBV_QP_PORT, |attr| attr.port_num = 1, DONE),
    (IBV_QP_PORT, |attr| attr.port_num = 2, INVALID),
    (IBV_QP_PKEY_INDEX, |_| {}, DONE),
    (IBV_QP_PKEY_INDEX, |attr| attr.pkey_index = 1, INVALID),
    (
        IBV_QP_ACCESS_FLAGS,
        |attr| attr.qp_access_flags = 0x1f,
        DONE,
    ),
    (
        IBV_QP_ACCESS_FLAGS,
        |attr| attr.qp_access_flags = 1 << 19,
        INVALID,
    ),
    (IBV_QP_TIMEOUT, |attr| attr.timeout = 32, INVALID),
    (IBV_QP_RETRY_CNT, |attr| attr.retry_cnt = 8, INVALID),
    (IBV_QP_RNR_RETRY, |attr| attr.rnr_retry = 8, INVALID),
    (
        IBV_QP_MIN_RNR_TIMER,
        |attr| attr.min_rnr_timer = 32,
        INVALID,
    ),
    (IBV_QP_STATE, |attr| attr.qp_state = 7, INVALID),
    (IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_RTS, INVALID),
    (0, |_| {}, DONE),
];

#[test]
fn each_bit_of_the_mask_is_done_or_refused() {
    let bed = Bed::unconnected();
    for (mask, change, expected) in MASKS {
        assert_eq!(modify(bed.a.qp, mask, change), expected, "{mask:#x}");
    }
    assert_eq!(query(bed.a.qp).qp_state, IBV_QPS_INIT);
    bed.end();
}

/// As the kernel's iWARP takes them: libfabric sets one of a connected queue pair.
#[test]
fn hints_for_infiniband_are_kept() {
    let bed = Bed::new();
    let mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER;
    let set = |attr: &mut ibv_qp_attr| {
        (attr.timeout, attr.retry_cnt) = (14, 7);
        (attr.rnr_retry, attr.min_rnr_timer) = (6, 12);
    };
    assert_eq!(modify(bed.a.qp, mask, set), DONE);
    let now = query(bed.a.qp);
    assert_eq!((now.timeout, now.retry_cnt), (14, 7));
    assert_eq!((now.rnr_retry, now.min_rnr_timer), (6, 12));
    bed.end();
}

#[test]
fn change_from_another_state_than_the_present_one_is_refused() {
    let bed = Bed::new();
    let from = |qp, state| {
        let mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
        modify(qp, mask, |attr| {
            (attr.cur_qp_state, attr.qp_state) = (state, IBV_QPS_ERR);
        })
    };
    for wrong in [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_ERR] {
        assert_eq!(from(bed.a.qp, wrong), INVALID, "{wrong}");
    }
    assert_eq!(query(bed.a.qp).qp_state, IBV_QPS_RTS);
    assert_eq!(from(bed.a.qp, IBV_QPS_RTS), DONE);
    assert_eq!(query(bed.a.qp).qp_state, IBV_QPS_ERR);
    for (name, is_it) in [(IBV_QPS_RTR, INVALID), (IBV_QPS_RESET, DONE)] {
        let qp = ibv_create_qp(bed.a.pd, Some(&mut qp_attr(bed.a.cq)));
        assert_eq!(from(qp, name), is_it, "a new one is not {name}");
        assert_eq!(ibv_destroy_qp(qp), 0);
    }
    bed.end();
}

/// Depths go with a change of state to Error or out of it. A queue pair in Error takes none.
#[test]
fn state_and_depths_are_changed_together_or_not_at_all() {
    let bed = Bed::unconnected();
    let change = |to, depth| {
        let both = IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC;
        let done = modify(bed.a.qp, both, |attr| {
            (attr.qp_state, attr.max_rd_atomic) = (to, depth);
        });
        let now = query(bed.a.qp);
        (done, now.qp_state, now.max_rd_atomic)
    };
    assert_eq!(change(IBV_QPS_RTS, 7), (INVALID, IBV_QPS_INIT, 32));
    assert_eq!(change(IBV_QPS_ERR, 9), (DONE, IBV_QPS_ERR, 9));
    assert_eq!(change(IBV_QPS_ERR, 11), (INVALID, IBV_QPS_ERR, 9));
    assert_eq!(change(IBV_QPS_RESET, 5), (DONE, IBV_QPS_INIT, 5));
    bed.end();
}

#[test]
fn reset_ends_the_connection_before_another_can_be_made() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 100));
    bed.a.post_recv(8, bed.a.sge(0, 100));
    assert_eq!(to(bed.a.qp, IBV_QPS_RESET), DONE);
    let flushed = bed.b.completion();
    assert_eq!((flushed.wr_id, flushed.status), (7, IBV_WC_WR_FLUSH_ERR));
    assert_eq!(query(bed.b.qp).qp_state, IBV_QPS_ERR);
    assert_eq!(query(bed.a.qp).qp_state, IBV_QPS_INIT);
    assert_eq!(to(bed.b.qp, IBV_QPS_RESET), DONE);
    bed.connect(bed.a.qp, bed.b.qp);
    assert_eq!(query(bed.a.qp).qp_state, IBV_QPS_RTS);
    bed.end();
}

/// A queue pair on a shared receive queue reports its last receive once for each time that it comes
/// into Error after a reset.
#[test]
fn last_receive_is_reported_once_per_reset_and_a_limit_is_not_armed_at_creation() {
    let bed = Bed::unconnected();
    let mut init = ibv_srq_init_attr::zeroed();
    (init.attr.max_wr, init.attr.max_sge, init.attr.srq_limit) = (8, 1, 4);
    let srq = ibv_create_srq(bed.a.pd, Some(&mut init));
    let mut now = ibv_srq_attr::zeroed();
    assert_eq!((ibv_query_srq(srq, Some(&mut now)), now.srq_limit), (0, 0));
    let mut attr = qp_attr(bed.a.cq);
    attr.srq = srq;
    let qp = ibv_create_qp(bed.a.pd, Some(&mut attr));
    assert_ne!(qp, ptr::null_mut());
    for _ in 0..3 {
        assert_eq!([to(qp, IBV_QPS_ERR), to(qp, IBV_QPS_ERR)], [DONE; 2]);
        bed.a.expect_event(qp.cast(), IBV_EVENT_QP_LAST_WQE_REACHED);
        bed.a.expect_no_event();
        assert_eq!(to(qp, IBV_QPS_RESET), DONE);
    }
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_srq(srq)], [0, 0]);
    bed.end();
}

//! The later ways to post and to poll: one call for each part.

use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, handle, qp_attr};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_SEND, IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WC_RECV, IBV_WC_SEND,
    IBV_WC_SUCCESS,
};
use crate::abi::verbs::{
    ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_qp_ex, ibv_qp_init_attr_ex, verbs_context,
};
use crate::verbs::cq::ibv_destroy_cq;
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp};
use crate::verbs::qp_ex::ibv_qp_to_qp_ex;

/// The slots in front of a context.
fn later(bed: &Bed) -> verbs_context {
    let offset = std::mem::offset_of!(verbs_context, context);
    let start = bed
        .a
        .context
        .wrapping_byte_sub(offset)
        .cast::<verbs_context>();
    // SAFETY: the context lives, and is a part of that struct.
    unsafe { *start }
}

#[test]
fn send_is_put_together_and_its_completion_is_read_in_parts() {
    let bed = Bed::unconnected();
    let slots = later(&bed);
    let mut attr = ibv_cq_init_attr_ex::zeroed();
    attr.cqe = 16;
    let cq = slots.create_cq_ex.expect("a slot")(bed.a.context, Some(&mut attr));
    let mut init = ibv_qp_init_attr_ex::zeroed();
    let base = qp_attr(cq.cast());
    (init.send_cq, init.recv_cq, init.cap) = (base.send_cq, base.recv_cq, base.cap);
    (init.qp_type, init.pd) = (IBV_QPT_RC, bed.a.pd);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
    let qp = slots.create_qp_ex.expect("a slot")(bed.a.context, Some(&mut init));
    bed.pair.connect(handle(qp), handle(bed.b.qp));
    bed.b.post_recv(7, bed.b.sge(0, 64));
    post_inline(ibv_qp_to_qp_ex(qp), b"in parts");
    let received = bed.b.success();
    assert_eq!(
        (received.opcode, &bed.b.read(0)),
        (IBV_WC_RECV, b"in parts")
    );
    // SAFETY: the completion queue lives.
    let slots = unsafe { *cq };
    let start = ibv_poll_cq_attr::zeroed();
    while slots.start_poll.expect("a slot")(cq, Some(&start)) == Errno::ENOENT as i32 {}
    // SAFETY: the completion queue lives.
    let now = unsafe { *cq };
    assert_eq!((now.wr_id, now.status), (5, IBV_WC_SUCCESS));
    assert_eq!(slots.read_opcode.expect("a slot")(cq), IBV_WC_SEND);
    assert_eq!(slots.next_poll.expect("a slot")(cq), Errno::ENOENT as i32);
    slots.end_poll.expect("a slot")(cq);
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_cq(cq.cast())], [0, 0]);
    bed.end();
}

/// Posts a signaled Send named 5 of these bytes.
fn post_inline(qp: *mut ibv_qp_ex, bytes: &[u8]) {
    // SAFETY: the queue pair lives.
    let slots = unsafe { *qp };
    slots.wr_start.expect("a slot")(qp);
    // SAFETY: it lives, and this field is the program's to set.
    unsafe { (*qp).wr_id = 5 };
    // SAFETY: as above.
    unsafe { (*qp).wr_flags = IBV_SEND_SIGNALED };
    slots.wr_send.expect("a slot")(qp);
    let data = bytes.as_ptr().cast();
    slots.wr_set_inline_data.expect("a slot")(qp, data, bytes.len());
    assert_eq!(slots.wr_complete.expect("a slot")(qp), 0);
}

#[test]
fn queue_pair_without_operations_has_no_such_functions() {
    let bed = Bed::unconnected();
    assert_eq!(ibv_qp_to_qp_ex(bed.a.qp), ptr::null_mut());
    let mut datagrams = qp_attr(bed.a.cq);
    datagrams.qp_type = IBV_QPT_RC + 2;
    assert!(ibv_create_qp(bed.a.pd, Some(&mut datagrams)).is_null());
    assert_eq!(Errno::last(), Errno::EOPNOTSUPP);
    bed.end();
}

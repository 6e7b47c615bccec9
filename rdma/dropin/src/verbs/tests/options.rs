//! Options and flags of verbs: each takes effect, or is refused by the error number of its manual
//! page. None is accepted and ignored.

use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, Host, qp_attr, request};
use super::windows::Window;
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_CQ_INIT_ATTR_MASK_FLAGS,
    IBV_CQ_INIT_ATTR_MASK_PD, IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_SEND,
    IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_TSO, IBV_QP_INIT_ATTR_CREATE_FLAGS,
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_INIT_ATTR_XRCD, IBV_QPT_RC, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_IP_CSUM,
    IBV_SEND_SOLICITED, IBV_SRQ_INIT_ATTR_PD, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
};
use crate::abi::verbs::{
    ibv_cq_init_attr_ex, ibv_parent_domain_init_attr, ibv_qp_ex, ibv_qp_init_attr_ex,
    ibv_query_device_ex_input, ibv_srq_init_attr_ex, ibv_td_init_attr,
};
use crate::entry::Result;
use crate::verbs::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_iova2};
use crate::verbs::pd::ibv_dealloc_pd;
use crate::verbs::qp::ibv_destroy_qp;
use crate::verbs::qp_ex::ibv_qp_to_qp_ex;
use crate::verbs::srq::ibv_destroy_srq;

const INVALID: Result<()> = Err(Errno::EINVAL);
const UNSUPPORTED: Result<()> = Err(Errno::EOPNOTSUPP);

/// Result of a function that sets errno. The object that it created is destroyed.
fn made<T>(object: *mut T, end: extern "C" fn(*mut T) -> i32) -> Result<()> {
    if object.is_null() {
        return Err(Errno::last());
    }
    assert_eq!(end(object), 0);
    Ok(())
}

/// Result of a function that returns an error number.
fn returned(number: i32) -> Result<()> {
    (number == 0)
        .then_some(())
        .ok_or_else(|| Errno::from_raw(number))
}

#[test]
fn access_flags_of_a_region() {
    let bed = Bed::unconnected();
    let local = IBV_ACCESS_LOCAL_WRITE;
    let cases = [
        (local | IBV_ACCESS_OPTIONAL_RANGE, Ok(())),
        (local | IBV_ACCESS_HUGETLB, Ok(())),
        (
            local | IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_ATOMIC,
            Ok(()),
        ),
        (local | IBV_ACCESS_ON_DEMAND, UNSUPPORTED),
        (IBV_ACCESS_REMOTE_WRITE, INVALID),
        (IBV_ACCESS_REMOTE_ATOMIC, INVALID),
        // Flushes to persistent memory, and the bit in front of the optional ones.
        (local | 1 << 8, INVALID),
        (local | 1 << 9, INVALID),
        (local | 1 << 19, INVALID),
        (local | 1 << 30, INVALID),
    ];
    for (flags, expected) in cases {
        let mr = ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), 64, flags.cast_signed());
        assert_eq!(made(mr, ibv_dereg_mr), expected, "{flags:#x}");
    }
    bed.end();
}

/// A region's offsets begin where the program requests, or at 0. Inline functions of the header
/// pass the address.
#[test]
fn offset_of_a_region_whose_offsets_begin_at_0() {
    let bed = Bed::unconnected();
    let flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
    let own = bed.a.memory.addr() as u64;
    for (offset, expected) in [
        (0, Ok(())),
        (own, Ok(())),
        (own + 1, INVALID),
        (1 << 40, INVALID),
    ] {
        let mr = ibv_reg_mr_iova2(bed.a.pd, bed.a.memory.cast(), 64, offset, flags);
        assert_eq!(made(mr, ibv_dereg_mr), expected, "{offset:#x}");
    }
    bed.end();
}

#[test]
fn objects_of_another_context_are_refused_where_a_context_is_named() {
    let bed = Bed::unconnected();
    let (later, other) = (bed.a.later(), bed.b.context);
    let mut attr = extended(&bed.a, 0, 0);
    let qp = later.create_qp_ex.expect("a slot")(other, Some(&mut attr));
    assert_eq!(made(qp, ibv_destroy_qp), INVALID);
    let mut attr = ibv_srq_init_attr_ex::zeroed();
    (attr.attr.max_wr, attr.comp_mask, attr.pd) = (4, IBV_SRQ_INIT_ATTR_PD, bed.a.pd);
    let srq = later.create_srq_ex.expect("a slot")(other, Some(&mut attr));
    assert_eq!(made(srq, ibv_destroy_srq), INVALID);
    let td = later.alloc_td.expect("a slot")(other, Some(&ibv_td_init_attr { comp_mask: 0 }));
    let mut attr = ibv_parent_domain_init_attr::zeroed();
    (attr.pd, attr.td) = (bed.a.pd, td);
    let domain = later.alloc_parent_domain.expect("a slot")(bed.a.context, Some(&attr));
    assert_eq!(made(domain, ibv_dealloc_pd), INVALID);
    assert_eq!(made(td, later.dealloc_td.expect("a slot")), Ok(()));
    bed.end();
}

#[test]
fn access_flags_of_a_window() {
    let bed = Bed::new();
    let window = Window::of(&bed.b);
    let cases = [
        (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND, INVALID),
        (IBV_ACCESS_REMOTE_READ | 1 << 20, INVALID),
        (IBV_ACCESS_REMOTE_ATOMIC, UNSUPPORTED),
        (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE, Ok(())),
    ];
    for (rights, expected) in cases {
        let mut wr = window.bind(&bed.b, bed.b.mr, 512, rights);
        // It has no data that could be inline.
        wr.send_flags |= IBV_SEND_INLINE;
        assert_eq!(returned(bed.b.post_send(&mut wr)), INVALID);
        wr.send_flags &= !IBV_SEND_INLINE;
        let posted = returned(bed.b.post_send(&mut wr));
        assert_eq!(posted, expected, "{rights:#x}");
    }
    bed.b.success();
    window.end(&bed.b);
    bed.end();
}

#[test]
fn flags_and_opcodes_of_a_send_request() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let cases = [
        (IBV_WR_SEND, IBV_SEND_IP_CSUM, INVALID),
        (IBV_WR_RDMA_WRITE, IBV_SEND_IP_CSUM, INVALID),
        (IBV_WR_SEND, IBV_SEND_INLINE | 1 << 5, INVALID),
        (IBV_WR_RDMA_WRITE, 1 << 31, INVALID),
        (IBV_WR_SEND_WITH_IMM, 0, UNSUPPORTED),
        (99, 0, UNSUPPORTED),
        (IBV_WR_RDMA_WRITE, IBV_SEND_SOLICITED, Ok(())),
        (IBV_WR_SEND, IBV_SEND_SOLICITED | IBV_SEND_FENCE, Ok(())),
    ];
    for (opcode, flags, expected) in cases {
        let mut piece = [bed.a.sge(0, 4)];
        let mut wr = request(1, opcode, &mut piece);
        (wr.wr, wr.send_flags) = (bed.b.remote(64), wr.send_flags | flags);
        let posted = returned(bed.a.post_send(&mut wr));
        assert_eq!(posted, expected, "{opcode} {flags:#x}");
    }
    bed.b.success();
    bed.end();
}

#[test]
fn masks_of_a_completion_queue() {
    let bed = Bed::unconnected();
    let [own, foreign] = [bed.a.pd, bed.b.pd];
    let (flags, domain) = (IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD);
    let cases = [
        (flags, 1, 0, ptr::null_mut(), 0, Ok(())),
        (flags, 2, 0, ptr::null_mut(), 0, UNSUPPORTED),
        (0, 2, 0, ptr::null_mut(), 0, Ok(())),
        (domain, 0, 0, own, 0, Ok(())),
        (domain, 0, 0, foreign, 0, INVALID),
        (domain, 0, 0, ptr::null_mut(), 0, INVALID),
        (1 << 2, 0, 0, ptr::null_mut(), 0, UNSUPPORTED),
        (0, 0, 0x7f, ptr::null_mut(), 0, Ok(())),
        (0, 0, 1 << 8, ptr::null_mut(), 0, UNSUPPORTED),
        (0, 0, 1 << 13, ptr::null_mut(), 0, UNSUPPORTED),
        (0, 0, 0, ptr::null_mut(), 1, INVALID),
    ];
    for (case, (comp_mask, flags, wc_flags, parent_domain, vector, expected)) in
        cases.into_iter().enumerate()
    {
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        (attr.cqe, attr.comp_mask, attr.flags) = (4, comp_mask, flags);
        (attr.wc_flags, attr.comp_vector) = (wc_flags, vector);
        attr.parent_domain = parent_domain;
        let cq = bed.a.later().create_cq_ex.expect("a slot")(bed.a.context, Some(&mut attr));
        let ended = made(cq.cast(), ibv_destroy_cq);
        assert_eq!(ended, expected, "case {case}");
    }
    let vector = ibv_create_cq(bed.a.context, 4, ptr::null_mut(), ptr::null_mut(), 1);
    assert_eq!(made(vector, ibv_destroy_cq), INVALID);
    bed.end();
}

/// Attributes for an extended queue pair.
fn extended(host: &Host, comp_mask: u32, operations: u64) -> ibv_qp_init_attr_ex {
    let plain = qp_attr(host.cq);
    let mut attr = ibv_qp_init_attr_ex::zeroed();
    (attr.send_cq, attr.recv_cq, attr.pd) = (host.cq, host.cq, host.pd);
    (attr.qp_type, attr.cap) = (IBV_QPT_RC, plain.cap);
    attr.comp_mask = comp_mask | IBV_QP_INIT_ATTR_PD;
    attr.send_ops_flags = operations;
    attr
}

#[test]
fn masks_of_a_queue_pair() {
    let bed = Bed::unconnected();
    let operations = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let cases = [
        (operations, sends, 0, 0, Ok(())),
        (operations, IBV_QP_EX_WITH_TSO, 0, 0, UNSUPPORTED),
        (operations, IBV_QP_EX_WITH_ATOMIC_WRITE, 0, 0, UNSUPPORTED),
        (operations, 1 << 63, 0, 0, UNSUPPORTED),
        (IBV_QP_INIT_ATTR_CREATE_FLAGS, 0, 0, 0, Ok(())),
        (IBV_QP_INIT_ATTR_CREATE_FLAGS, 0, 1 << 10, 0, UNSUPPORTED),
        (IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0, 0, 0, Ok(())),
        (IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0, 0, 64, UNSUPPORTED),
        (IBV_QP_INIT_ATTR_XRCD, 0, 0, 0, UNSUPPORTED),
        (1 << 4, 0, 0, 0, UNSUPPORTED),
        (1 << 7, 0, 0, 0, UNSUPPORTED),
    ];
    for (case, (mask, operations, flags, header, expected)) in cases.into_iter().enumerate() {
        let mut attr = extended(&bed.a, mask, operations);
        (attr.create_flags, attr.max_tso_header) = (flags, header);
        let qp = bed.a.later().create_qp_ex.expect("a slot")(bed.a.context, Some(&mut attr));
        assert_eq!(made(qp, ibv_destroy_qp), expected, "case {case}");
    }
    bed.end();
}

/// Some libraries request it whether they send such messages or not. No slot is empty that an
/// inline function of the header calls.
#[test]
fn operations_that_iwarp_does_not_have_are_refused_when_a_batch_is_posted() {
    let bed = Bed::unconnected();
    let sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let mut attr = extended(&bed.a, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, sends);
    let qp = bed.a.later().create_qp_ex.expect("a slot")(bed.a.context, Some(&mut attr));
    let posted = ibv_qp_to_qp_ex(qp);
    // SAFETY: the queue pair lives.
    let slots = unsafe { *posted };
    let refused: [&dyn Fn(*mut ibv_qp_ex); 5] = [
        &|qp| slots.wr_send_imm.expect("a slot")(qp, 1),
        &|qp| slots.wr_send_tso.expect("a slot")(qp, ptr::null(), 0, 1),
        &|qp| slots.wr_atomic_write.expect("a slot")(qp, 1, 8, ptr::null()),
        &|qp| slots.wr_set_ud_addr.expect("a slot")(qp, ptr::null_mut(), 1, 1),
        &|qp| slots.wr_set_xrc_srqn.expect("a slot")(qp, 1),
    ];
    let [start, send] = [slots.wr_start, slots.wr_send].map(|it| it.expect("a slot"));
    let complete = slots.wr_complete.expect("a slot");
    for add in refused {
        start(posted);
        send(posted);
        add(posted);
        slots.wr_set_sge.expect("a slot")(posted, bed.a.key(), bed.a.sge(0, 0).addr, 4);
        assert_eq!(returned(complete(posted)), UNSUPPORTED);
        start(posted);
        assert_eq!(returned(complete(posted)), Ok(()));
    }
    assert_eq!(ibv_destroy_qp(qp), 0);
    bed.end();
}

#[test]
fn flags_of_a_request_in_parts() {
    let bed = Bed::unconnected();
    let mut attr = extended(&bed.a, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND);
    let qp = bed.a.later().create_qp_ex.expect("a slot")(bed.a.context, Some(&mut attr));
    let posted = ibv_qp_to_qp_ex(qp);
    // SAFETY: the queue pair lives.
    let slots = unsafe { *posted };
    let add: [&dyn Fn(*mut ibv_qp_ex); 2] = [&|qp| slots.wr_send.expect("a slot")(qp), &|qp| {
        slots.wr_rdma_write.expect("a slot")(qp, 1, 8);
    }];
    let cases = [
        (IBV_SEND_IP_CSUM, INVALID),
        (1 << 31, INVALID),
        (
            IBV_SEND_FENCE | IBV_SEND_INLINE | IBV_SEND_SOLICITED,
            Ok(()),
        ),
    ];
    for (flags, expected) in cases {
        for add in add {
            slots.wr_start.expect("a slot")(posted);
            // SAFETY: the queue pair lives.
            unsafe { (*posted).wr_flags = flags };
            add(posted);
            slots.wr_set_sge.expect("a slot")(posted, bed.a.key(), bed.a.sge(0, 0).addr, 4);
            let done = returned(slots.wr_complete.expect("a slot")(posted));
            assert_eq!(done, expected, "{flags:#x}");
        }
    }
    assert_eq!(ibv_destroy_qp(qp), 0);
    bed.end();
}

#[test]
fn masks_of_domains_and_of_a_shared_receive_queue() {
    let bed = Bed::unconnected();
    let later = bed.a.later();
    let allocate = later.alloc_parent_domain.expect("a slot");
    for (mask, expected) in [
        (0, Ok(())),
        (1, UNSUPPORTED),
        (2, Ok(())),
        (3, UNSUPPORTED),
        (4, INVALID),
    ] {
        let mut attr = ibv_parent_domain_init_attr::zeroed();
        (attr.pd, attr.comp_mask) = (bed.a.pd, mask);
        let domain = made(allocate(bed.a.context, Some(&attr)), ibv_dealloc_pd);
        assert_eq!(domain, expected, "{mask}");
    }
    let td =
        later.alloc_td.expect("a slot")(bed.a.context, Some(&ibv_td_init_attr { comp_mask: 1 }));
    assert_eq!(made(td, later.dealloc_td.expect("a slot")), UNSUPPORTED);
    for (mask, expected) in [(0, INVALID), (2, Ok(())), (4 | 2, UNSUPPORTED)] {
        let mut attr = ibv_srq_init_attr_ex::zeroed();
        (attr.attr.max_wr, attr.comp_mask, attr.pd) = (4, mask, bed.a.pd);
        let srq = later.create_srq_ex.expect("a slot")(bed.a.context, Some(&mut attr));
        assert_eq!(made(srq, ibv_destroy_srq), expected, "{mask}");
    }
    assert_eq!(IBV_SRQ_INIT_ATTR_PD, 2);
    bed.end();
}

#[test]
fn advice_and_questions() {
    let bed = Bed::unconnected();
    let later = bed.a.later();
    let advise = later.advise_mr.expect("a slot");
    let unsupported = Err(Errno::ENOTSUP);
    for (advice, flags, expected) in [
        (0, 0, Ok(())),
        (2, 1, Ok(())),
        (3, 0, unsupported),
        (0, 2, INVALID),
    ] {
        let advised = advise(bed.a.pd, advice, flags, ptr::null_mut(), 0);
        assert_eq!(returned(advised), expected, "{advice} {flags}");
    }
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    let query = later.query_device_ex.expect("a slot");
    let asked = query(bed.a.context, &raw const input, ptr::null_mut(), 1 << 10);
    assert_eq!(returned(asked), INVALID);
    bed.end();
}

//! Regions, windows and shared receive queues.

use std::num::NonZeroUsize;
use std::ptr;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::testbed::{Bed, LEN, handle, qp_attr, request};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_EVENT_SRQ_LIMIT_REACHED, IBV_MW_TYPE_1, IBV_REREG_MR_CHANGE_ACCESS, IBV_SEND_SIGNALED,
    IBV_SRQ_LIMIT, IBV_WC_BIND_MW, IBV_WC_SUCCESS, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
};
use crate::abi::verbs::{
    Rdma, Target, ibv_async_event, ibv_mr, ibv_mw_bind, ibv_recv_wr, ibv_srq_attr,
    ibv_srq_init_attr,
};
use crate::verbs::async_events::{ibv_ack_async_event, ibv_get_async_event};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_iova2, ibv_rereg_mr};
use crate::verbs::pd::ibv_dealloc_pd;
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp};
use crate::verbs::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};

/// A mapping of pages of its own.
fn mapping() -> ptr::NonNull<std::ffi::c_void> {
    let len = NonZeroUsize::new(LEN).expect("a length");
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the kernel chooses a free place.
    unsafe { mmap_anonymous(None, len, protection, MapFlags::MAP_PRIVATE) }.expect("memory")
}

fn rkey(mr: *mut ibv_mr) -> u32 {
    // SAFETY: the region lives.
    unsafe { (*mr).rkey }
}

#[test]
fn memory_that_is_not_there_or_not_writable_is_refused() {
    let bed = Bed::unconnected();
    let (map, write) = (mapping(), IBV_ACCESS_LOCAL_WRITE.cast_signed());
    // SAFETY: nothing refers to the mapping.
    unsafe { mprotect(map, LEN, ProtFlags::PROT_READ) }.expect("a mapping");
    assert!(ibv_reg_mr(bed.a.pd, map.as_ptr(), LEN, write).is_null());
    assert_eq!(Errno::last(), Errno::EACCES);
    let read_only = ibv_reg_mr(bed.a.pd, map.as_ptr(), LEN, 0);
    assert_eq!(ibv_dereg_mr(read_only), 0);
    // SAFETY: nothing refers to the mapping.
    unsafe { munmap(map, LEN) }.expect("a mapping");
    assert!(ibv_reg_mr(bed.a.pd, map.as_ptr(), LEN, write).is_null());
    assert_eq!(Errno::last(), Errno::EFAULT);
    assert!(ibv_reg_mr(bed.a.pd, ptr::null_mut(), LEN, write).is_null());
    assert_eq!(Errno::last(), Errno::EFAULT);
    assert!(ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), usize::MAX, write).is_null());
    assert!(ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), 0, write).is_null());
    assert_eq!(Errno::last(), Errno::EINVAL);
    let remote = IBV_ACCESS_REMOTE_WRITE.cast_signed();
    assert!(ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), 8, remote).is_null());
    assert_eq!(Errno::last(), Errno::EINVAL);
    let on_demand = IBV_ACCESS_ON_DEMAND.cast_signed();
    assert!(ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), 8, on_demand).is_null());
    assert_eq!(Errno::last(), Errno::EOPNOTSUPP);
    bed.end();
}

#[test]
fn memory_that_was_unmapped_while_registered_ends_the_connection() {
    let bed = Bed::new();
    let (map, rights) = (mapping(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    let mr = ibv_reg_mr(bed.b.pd, map.as_ptr(), LEN, rights.cast_signed());
    // SAFETY: nothing refers to the mapping.
    unsafe { munmap(map, LEN) }.expect("a mapping");
    let mut piece = [bed.a.sge(0, 64)];
    let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut piece);
    wr.wr = Target {
        rdma: Rdma {
            remote_addr: map.as_ptr().addr() as u64,
            rkey: rkey(mr),
        },
    };
    assert_eq!(bed.a.post_send(&mut wr), 0);
    let mut event = ibv_async_event::zeroed();
    assert_eq!(ibv_get_async_event(bed.b.context, Some(&mut event)), 0);
    assert_eq!(event.element, bed.b.qp.cast());
    ibv_ack_async_event(Some(&event));
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn region_has_the_offsets_that_it_was_registered_with() {
    let bed = Bed::new();
    bed.b.write(256, b"here");
    let start = bed.b.memory.wrapping_add(256);
    let mr = ibv_reg_mr_iova2(bed.b.pd, start.cast(), 64, 0x10_000, IBV_ACCESS_REMOTE_READ);
    let mut sink = [bed.a.sge(0, 4)];
    let mut wr = request(1, IBV_WR_RDMA_READ, &mut sink);
    wr.wr = Target {
        rdma: Rdma {
            remote_addr: 0x10_000,
            rkey: rkey(mr),
        },
    };
    assert_eq!(bed.a.post_send(&mut wr), 0);
    bed.a.success();
    assert_eq!(&bed.a.read(0), b"here");
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn region_that_was_registered_anew_has_another_key() {
    let bed = Bed::unconnected();
    let mr = ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), 64, 0);
    let before = rkey(mr);
    let flags = IBV_REREG_MR_CHANGE_ACCESS.cast_signed();
    let rights = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE).cast_signed();
    let (pd, addr) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(ibv_rereg_mr(mr, flags, pd, addr, 0, rights), 0);
    assert_ne!(rkey(mr), before);
    assert_eq!(ibv_rereg_mr(mr, 0, pd, addr, 0, rights), -1);
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn window_of_type_1_is_bound_and_bound_again() {
    let bed = Bed::new();
    let ops = bed.b.ops();
    let mw = ops.alloc_mw.expect("a slot")(bed.b.pd, IBV_MW_TYPE_1);
    let mut bind = ibv_mw_bind::zeroed();
    (bind.wr_id, bind.send_flags) = (9, IBV_SEND_SIGNALED);
    (bind.bind_info.mr, bind.bind_info.length) = (bed.b.mr, 64);
    bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    for offset in [0, 128] {
        bind.bind_info.addr = bed.b.sge(offset, 0).addr;
        assert_eq!(ops.bind_mw.expect("a slot")(bed.b.qp, mw, Some(&bind)), 0);
        let bound = bed.b.success();
        assert_eq!((bound.wr_id, bound.opcode), (9, IBV_WC_BIND_MW));
        let mut piece = [bed.a.sge(0, 4)];
        let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut piece);
        // SAFETY: the window lives.
        let rkey = unsafe { (*mw).rkey };
        let remote_addr = bind.bind_info.addr;
        wr.wr = Target {
            rdma: Rdma { remote_addr, rkey },
        };
        assert_eq!(bed.a.post_send(&mut wr), 0);
        assert_eq!(bed.a.success().status, IBV_WC_SUCCESS);
    }
    assert_eq!(ibv_dealloc_pd(bed.b.pd), Errno::EBUSY as i32);
    assert_eq!(ops.dealloc_mw.expect("a slot")(mw), 0);
    bed.end();
}

#[test]
fn shared_receive_queue_tells_its_limit() {
    let bed = Bed::unconnected();
    let mut init = ibv_srq_init_attr::zeroed();
    (init.attr.max_wr, init.attr.max_sge) = (8, 1);
    let srq = ibv_create_srq(bed.a.pd, Some(&mut init));
    let mut attr = qp_attr(bed.a.cq);
    attr.srq = srq;
    let qp = ibv_create_qp(bed.a.pd, Some(&mut attr));
    assert_eq!(ibv_destroy_srq(srq), Errno::EBUSY as i32);
    bed.pair.connect(handle(qp), handle(bed.b.qp));
    let mut wr = ibv_recv_wr::zeroed();
    let post = bed.a.ops().post_srq_recv.expect("a slot");
    assert_eq!(
        [post(srq, &raw mut wr, None), post(srq, &raw mut wr, None)],
        [0, 0]
    );
    init.attr.srq_limit = 2;
    let mask = IBV_SRQ_LIMIT.cast_signed();
    assert_eq!(ibv_modify_srq(srq, Some(&init.attr), mask), 0);
    assert_eq!(bed.b.post_send(&mut request(1, IBV_WR_SEND, &mut [])), 0);
    let mut event = ibv_async_event::zeroed();
    assert_eq!(ibv_get_async_event(bed.a.context, Some(&mut event)), 0);
    let told = (event.element, event.event_type);
    assert_eq!(told, (srq.cast(), IBV_EVENT_SRQ_LIMIT_REACHED));
    ibv_ack_async_event(Some(&event));
    let mut now = ibv_srq_attr::zeroed();
    assert_eq!(ibv_query_srq(srq, Some(&mut now)), 0);
    assert_eq!((now.max_wr, now.srq_limit), (8, 0));
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_srq(srq)], [0, 0]);
    bed.end();
}

//! Registered memory: the memory that is accepted, and what unmapping it causes.

use std::num::NonZeroUsize;
use std::ptr;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::testbed::{Bed, LEN, request, rkey};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
};
use crate::abi::verbs::{Rdma, Target, ibv_async_event};
use crate::verbs::async_events::{ibv_ack_async_event, ibv_get_async_event};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_mr_iova2};

/// A mapping of pages of its own.
fn mapping() -> ptr::NonNull<std::ffi::c_void> {
    let len = NonZeroUsize::new(LEN).expect("a length");
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the kernel chooses a free place.
    unsafe { mmap_anonymous(None, len, protection, MapFlags::MAP_PRIVATE) }.expect("memory")
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
    let right = IBV_ACCESS_REMOTE_READ;
    let first = |iova| ibv_reg_mr_iova(bed.b.pd, start.cast(), 64, iova, right.cast_signed());
    let second = |iova| ibv_reg_mr_iova2(bed.b.pd, start.cast(), 64, iova, right);
    let regions = [
        (0x10_000, first(0x10_000)),
        (0x20_000, second(0x20_000)),
        (0, second(0)),
    ];
    for ((remote_addr, mr), place) in regions.into_iter().zip([0, 64, 128]) {
        let mut sink = [bed.a.sge(place, 4)];
        let mut wr = request(1, IBV_WR_RDMA_READ, &mut sink);
        wr.wr = Target {
            rdma: Rdma {
                remote_addr,
                rkey: rkey(mr),
            },
        };
        assert_eq!(bed.a.post_send(&mut wr), 0);
        bed.a.success();
        assert_eq!(&bed.a.read(place), b"here");
        assert_eq!(ibv_dereg_mr(mr), 0);
    }
    bed.end();
}

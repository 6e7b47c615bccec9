//! Reregistered regions: domain, memory and rights, each alone and all at once.

use std::ffi::c_void;
use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, request, rkey};
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED,
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_WC_SUCCESS, IBV_WR_RDMA_READ,
};
use crate::abi::verbs::{Rdma, Target, ibv_mr, ibv_pd};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr, ibv_rereg_mr};
use crate::verbs::pd::{ibv_alloc_pd, ibv_dealloc_pd};

const READ: u32 = IBV_ACCESS_REMOTE_READ;
const ALL: u32 =
    IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;

/// The new attributes of a region.
#[derive(Clone, Copy)]
struct Change {
    flags: u32,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    access: u32,
}

impl Change {
    fn new(flags: u32) -> Self {
        Self {
            flags,
            pd: ptr::null_mut(),
            addr: ptr::null_mut(),
            access: 0,
        }
    }

    fn of(self, mr: *mut ibv_mr) -> i32 {
        let (flags, access) = (self.flags.cast_signed(), self.access.cast_signed());
        ibv_rereg_mr(mr, flags, self.pd, self.addr, 64, access)
    }
}

/// 64 bytes of the second host's memory.
fn place(bed: &Bed, offset: usize) -> *mut c_void {
    bed.b.memory.wrapping_add(offset).cast()
}

/// The bytes that the first host reads there.
fn read(bed: &Bed, mr: *mut ibv_mr, remote_addr: u64) -> [u8; 4] {
    let mut sink = [bed.a.sge(0, 4)];
    let mut wr = request(1, IBV_WR_RDMA_READ, &mut sink);
    let rkey = rkey(mr);
    wr.wr = Target {
        rdma: Rdma { remote_addr, rkey },
    };
    assert_eq!(bed.a.post_send(&mut wr), 0);
    let read = bed.a.completion();
    if read.status == IBV_WC_SUCCESS {
        bed.a.read(0)
    } else {
        [0; 4]
    }
}

/// The struct that the program sees.
fn shown(mr: *mut ibv_mr) -> (*mut ibv_pd, *mut c_void, usize) {
    // SAFETY: the region lives.
    let mr = unsafe { &*mr };
    assert_eq!(mr.lkey, mr.rkey);
    (mr.pd, mr.addr, mr.length)
}

#[test]
fn other_rights_come_with_another_key() {
    let bed = Bed::new();
    bed.b.write(0, b"here");
    let mr = ibv_reg_mr(bed.b.pd, place(&bed, 0), 64, 0);
    let before = rkey(mr);
    let access = READ;
    let change = Change::new(IBV_REREG_MR_CHANGE_ACCESS);
    assert_eq!(Change { access, ..change }.of(mr), 0);
    assert_ne!(rkey(mr), before);
    assert_eq!(shown(mr), (bed.b.pd, place(&bed, 0), 64));
    assert_eq!(&read(&bed, mr, place(&bed, 0).addr() as u64), b"here");
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn other_memory_keeps_the_rights() {
    let bed = Bed::new();
    bed.b.write(256, b"over");
    let mr = ibv_reg_mr(bed.b.pd, place(&bed, 0), 64, READ.cast_signed());
    let addr = place(&bed, 256);
    let change = Change::new(IBV_REREG_MR_CHANGE_TRANSLATION);
    assert_eq!(Change { addr, ..change }.of(mr), 0);
    assert_eq!(shown(mr), (bed.b.pd, addr, 64));
    assert_eq!(&read(&bed, mr, addr.addr() as u64), b"over");
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn other_domain_closes_the_region_to_queue_pairs_of_the_former() {
    let bed = Bed::new();
    let mr = ibv_reg_mr(bed.b.pd, place(&bed, 0), 64, READ.cast_signed());
    let pd = ibv_alloc_pd(bed.b.context);
    let change = Change::new(IBV_REREG_MR_CHANGE_PD);
    assert_eq!(Change { pd, ..change }.of(mr), 0);
    assert_eq!(shown(mr), (pd, place(&bed, 0), 64));
    assert_eq!(ibv_dealloc_pd(pd), Errno::EBUSY as i32);
    assert_eq!(read(&bed, mr, place(&bed, 0).addr() as u64), [0; 4]);
    assert_eq!([ibv_dereg_mr(mr), ibv_dealloc_pd(pd)], [0, 0]);
    bed.end();
}

#[test]
fn all_is_changed_at_once_and_back() {
    let bed = Bed::new();
    bed.b.write(256, b"over");
    let mr = ibv_reg_mr(bed.b.pd, place(&bed, 0), 64, 0);
    let (pd, addr) = (ibv_alloc_pd(bed.b.context), place(&bed, 256));
    let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | READ;
    let change = Change {
        pd,
        addr,
        access,
        ..Change::new(ALL)
    };
    assert_eq!(change.of(mr), 0);
    assert_eq!(shown(mr), (pd, addr, 64));
    let pd = bed.b.pd;
    assert_eq!(Change { pd, ..change }.of(mr), 0);
    assert_eq!(&read(&bed, mr, addr.addr() as u64), b"over");
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn zero_based_region_stays_so_in_other_memory() {
    let bed = Bed::new();
    bed.b.write(256, b"over");
    let access = READ | IBV_ACCESS_ZERO_BASED;
    let mr = ibv_reg_mr(bed.b.pd, place(&bed, 0), 64, access.cast_signed());
    let addr = place(&bed, 256);
    let change = Change::new(IBV_REREG_MR_CHANGE_TRANSLATION);
    assert_eq!(Change { addr, ..change }.of(mr), 0);
    assert_eq!(&read(&bed, mr, 0), b"over");
    // The first offset is part of the translation.
    let change = Change::new(IBV_REREG_MR_CHANGE_ACCESS);
    let access = READ;
    assert_eq!(Change { access, ..change }.of(mr), -1);
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn region_stays_as_it_was_if_the_change_is_not_possible() {
    let bed = Bed::new();
    bed.b.write(0, b"here");
    let mr = ibv_reg_mr(bed.b.pd, place(&bed, 0), 64, READ.cast_signed());
    let key = rkey(mr);
    let nothing = ptr::null_mut();
    let refused = [
        (Change::new(0), Errno::EINVAL),
        (Change::new(ALL + 1), Errno::EINVAL),
        (Change::new(IBV_REREG_MR_CHANGE_PD), Errno::EINVAL),
        (Change::new(IBV_REREG_MR_CHANGE_TRANSLATION), Errno::EFAULT),
        (
            Change {
                pd: bed.a.pd,
                ..Change::new(IBV_REREG_MR_CHANGE_PD)
            },
            Errno::EINVAL,
        ),
        (
            Change {
                access: IBV_ACCESS_REMOTE_WRITE,
                ..Change::new(IBV_REREG_MR_CHANGE_ACCESS)
            },
            Errno::EINVAL,
        ),
    ];
    for (change, errno) in refused {
        assert_eq!((change.of(mr), Errno::last()), (-1, errno));
    }
    assert_eq!(ibv_rereg_mr(mr, 1, nothing, place(&bed, 0), 0, 0), -1);
    assert_eq!((rkey(mr), shown(mr).0), (key, bed.b.pd));
    assert_eq!(&read(&bed, mr, place(&bed, 0).addr() as u64), b"here");
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

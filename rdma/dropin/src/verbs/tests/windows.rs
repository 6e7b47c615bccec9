//! Memory windows of both types: who binds them, who invalidates them, and the memory that they
//! give access to.

use nix::errno::Errno;

use super::testbed::{Bed, Host, request};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_MW_TYPE_1, IBV_MW_TYPE_2,
    IBV_SEND_SIGNALED, IBV_WC_BIND_MW, IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR, IBV_WC_RECV,
    IBV_WC_SUCCESS, IBV_WC_WITH_INV, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_INV,
};
use crate::abi::verbs::{Rdma, Target, ibv_mr, ibv_mw, ibv_mw_bind, ibv_send_wr};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr};
use crate::verbs::pd::ibv_dealloc_pd;

pub(super) const REMOTE: u32 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// A window of a host, with the key of its next binding.
pub(super) struct Window {
    pub(super) mw: *mut ibv_mw,
    pub(super) key: u32,
}

impl Window {
    pub(super) fn of(host: &Host) -> Self {
        let mw = host.ops().alloc_mw.expect("a slot")(host.pd, IBV_MW_TYPE_2);
        assert!(!mw.is_null());
        // SAFETY: the window lives.
        let key = unsafe { (*mw).rkey };
        // The result of the header's `ibv_inc_rkey`.
        let key = key & !0xff | key.wrapping_add(1) & 0xff;
        Self { mw, key }
    }

    /// A request that binds it to 64 bytes of a host's memory.
    pub(super) fn bind(
        &self,
        host: &Host,
        mr: *mut ibv_mr,
        offset: usize,
        rights: u32,
    ) -> ibv_send_wr {
        let mut wr = request(3, IBV_WR_BIND_MW, &mut []);
        (wr.mw, wr.bind_rkey, wr.bind_info.mr) = (self.mw, self.key, mr);
        wr.bind_info.addr = host.sge(offset, 0).addr;
        (wr.bind_info.length, wr.bind_info.mw_access_flags) = (64, rights);
        wr
    }

    pub(super) fn end(&self, host: &Host) {
        assert_eq!(host.ops().dealloc_mw.expect("a slot")(self.mw), 0);
    }
}

/// A window that the second host has bound.
pub(super) fn bound(bed: &Bed, rights: u32) -> Window {
    let window = Window::of(&bed.b);
    let mut wr = window.bind(&bed.b, bed.b.mr, 512, rights);
    assert_eq!(bed.b.post_send(&mut wr), 0);
    let done = bed.b.success();
    assert_eq!((done.wr_id, done.opcode), (3, IBV_WC_BIND_MW));
    window
}

/// The first host's request to this place.
fn access(bed: &Bed, opcode: u32, rkey: u32, remote_addr: u64) -> i32 {
    let mut piece = [bed.a.sge(0, 4)];
    let mut wr = request(1, opcode, &mut piece);
    wr.wr = Target {
        rdma: Rdma { remote_addr, rkey },
    };
    bed.a.post_send(&mut wr)
}

/// A Read of this place fails, and with it the connection.
fn is_closed(bed: &Bed, rkey: u32, remote_addr: u64) {
    assert_eq!(access(bed, IBV_WR_RDMA_READ, rkey, remote_addr), 0);
    assert_ne!(bed.a.completion().status, IBV_WC_SUCCESS);
}

#[test]
fn window_of_type_2_is_reached_until_it_is_invalidated() {
    let bed = Bed::new();
    let window = bound(&bed, REMOTE);
    let place = bed.b.sge(512, 0).addr;
    bed.a.write(0, b"seen");
    assert_eq!(access(&bed, IBV_WR_RDMA_WRITE, window.key, place), 0);
    bed.a.success();
    assert_eq!(access(&bed, IBV_WR_RDMA_READ, window.key, place), 0);
    bed.a.success();
    assert_eq!(&bed.b.read(512), b"seen");
    let mut invalidate = request(4, IBV_WR_LOCAL_INV, &mut []);
    invalidate.imm_data = window.key;
    assert_eq!(bed.b.post_send(&mut invalidate), 0);
    let done = bed.b.success();
    assert_eq!((done.wr_id, done.opcode), (4, IBV_WC_LOCAL_INV));
    is_closed(&bed, window.key, place);
    window.end(&bed.b);
    bed.end();
}

#[test]
fn send_with_invalidate_takes_the_window_of_the_peer_away() {
    let bed = Bed::new();
    let window = bound(&bed, REMOTE);
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let mut piece = [bed.a.sge(0, 4)];
    let mut wr = request(1, IBV_WR_SEND_WITH_INV, &mut piece);
    wr.imm_data = window.key;
    assert_eq!(bed.a.post_send(&mut wr), 0);
    bed.a.success();
    let received = bed.b.success();
    assert_eq!((received.opcode, received.byte_len), (IBV_WC_RECV, 4));
    let told = (received.wc_flags, received.imm_data);
    assert_eq!(told, (IBV_WC_WITH_INV, window.key));
    is_closed(&bed, window.key, bed.b.sge(512, 0).addr);
    window.end(&bed.b);
    bed.end();
}

#[test]
fn zero_based_window_is_reached_by_offsets_from_its_start() {
    let bed = Bed::new();
    let window = bound(&bed, REMOTE | IBV_ACCESS_ZERO_BASED);
    bed.a.write(0, b"here");
    assert_eq!(access(&bed, IBV_WR_RDMA_WRITE, window.key, 8), 0);
    bed.a.success();
    // A Read follows the Write.
    assert_eq!(access(&bed, IBV_WR_RDMA_READ, window.key, 8), 0);
    bed.a.success();
    assert_eq!(&bed.b.read(520), b"here");
    is_closed(&bed, window.key, bed.b.sge(512, 0).addr);
    window.end(&bed.b);
    bed.end();
}

#[test]
fn window_gives_no_more_than_the_rights_that_it_was_bound_with() {
    let bed = Bed::new();
    let window = bound(&bed, IBV_ACCESS_REMOTE_WRITE);
    is_closed(&bed, window.key, bed.b.sge(512, 0).addr);
    window.end(&bed.b);
    bed.end();
}

#[test]
fn bind_to_a_region_without_the_right_completes_in_error() {
    let bed = Bed::new();
    let rights = IBV_ACCESS_LOCAL_WRITE | REMOTE;
    let mr = ibv_reg_mr(bed.b.pd, bed.b.memory.cast(), 1024, rights.cast_signed());
    let window = Window::of(&bed.b);
    let mut wr = window.bind(&bed.b, mr, 0, REMOTE);
    assert_eq!(bed.b.post_send(&mut wr), 0);
    let failed = bed.b.completion();
    assert_eq!((failed.wr_id, failed.status), (3, IBV_WC_MW_BIND_ERR));
    window.end(&bed.b);
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn region_is_not_deregistered_before_its_windows() {
    let bed = Bed::new();
    let window = bound(&bed, REMOTE);
    assert_eq!(ibv_dereg_mr(bed.b.mr), Errno::EBUSY as i32);
    window.end(&bed.b);
    bed.end();
}

#[test]
fn binds_without_a_meaning_are_refused_when_they_are_posted() {
    let bed = Bed::new();
    let window = Window::of(&bed.b);
    let mut atomic = window.bind(&bed.b, bed.b.mr, 0, IBV_ACCESS_REMOTE_ATOMIC);
    assert_eq!(bed.b.post_send(&mut atomic), Errno::EOPNOTSUPP as i32);
    let mut nowhere = window.bind(&bed.b, std::ptr::null_mut(), 0, REMOTE);
    assert_eq!(bed.b.post_send(&mut nowhere), Errno::EINVAL as i32);
    let by_verb = bed.b.ops().bind_mw.expect("a slot");
    let bind = ibv_mw_bind::zeroed();
    let refused = by_verb(bed.b.qp, window.mw, Some(&bind));
    assert_eq!(refused, Errno::EINVAL as i32);
    let allocate = bed.b.ops().alloc_mw.expect("a slot");
    assert!(allocate(bed.b.pd, IBV_MW_TYPE_2 + 1).is_null());
    assert_eq!(Errno::last(), Errno::EINVAL);
    window.end(&bed.b);
    bed.end();
}

/// Binds a window of type 1 to 64 bytes of the second host's memory by `ibv_bind_mw`, or unbinds
/// it.
fn bind_by_verb(bed: &Bed, mw: *mut ibv_mw, offset: usize, length: u64) -> i32 {
    let mut bind = ibv_mw_bind::zeroed();
    (bind.wr_id, bind.send_flags) = (9, IBV_SEND_SIGNALED);
    (bind.bind_info.mr, bind.bind_info.length) = (bed.b.mr, length);
    bind.bind_info.mw_access_flags = REMOTE;
    bind.bind_info.addr = bed.b.sge(offset, 0).addr;
    bed.b.ops().bind_mw.expect("a slot")(bed.b.qp, mw, Some(&bind))
}

/// The key in the struct of a window.
fn key_of(mw: *mut ibv_mw) -> u32 {
    // SAFETY: the window lives.
    unsafe { (*mw).rkey }
}

#[test]
fn window_of_type_1_is_bound_and_bound_again() {
    let bed = Bed::new();
    let mw = bed.b.ops().alloc_mw.expect("a slot")(bed.b.pd, IBV_MW_TYPE_1);
    for offset in [0, 128] {
        assert_eq!(bind_by_verb(&bed, mw, offset, 64), 0);
        let bound = bed.b.success();
        assert_eq!((bound.wr_id, bound.opcode), (9, IBV_WC_BIND_MW));
        let place = bed.b.sge(offset, 0).addr;
        assert_eq!(access(&bed, IBV_WR_RDMA_WRITE, key_of(mw), place), 0);
        bed.a.success();
        // The Write is placed once a Read behind it is answered. Only then may the window be bound
        // elsewhere.
        assert_eq!(access(&bed, IBV_WR_RDMA_READ, key_of(mw), place), 0);
        bed.a.success();
    }
    assert_eq!(ibv_dealloc_pd(bed.b.pd), Errno::EBUSY as i32);
    assert_eq!(bed.b.ops().dealloc_mw.expect("a slot")(mw), 0);
    bed.end();
}

#[test]
fn window_of_type_1_is_unbound_by_a_length_of_0() {
    let bed = Bed::new();
    let mw = bed.b.ops().alloc_mw.expect("a slot")(bed.b.pd, IBV_MW_TYPE_1);
    assert_eq!(bind_by_verb(&bed, mw, 0, 0), Errno::EINVAL as i32);
    assert_eq!(bind_by_verb(&bed, mw, 0, 64), 0);
    bed.b.success();
    assert_eq!(bind_by_verb(&bed, mw, 0, 0), 0);
    assert_eq!(bed.b.success().wr_id, 9);
    is_closed(&bed, key_of(mw), bed.b.sge(0, 0).addr);
    assert_eq!(bed.b.ops().dealloc_mw.expect("a slot")(mw), 0);
    bed.end();
}

//! Limits of a device as `ibv_query_device` reports them: the maximum of each is created, and one
//! more is refused.

use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, Host, qp_attr, request};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_MW_TYPE_2, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_SEND_INLINE,
    IBV_WR_RDMA_READ, IBV_WR_SEND,
};
use crate::abi::verbs::{
    ibv_device_attr, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr,
};
use crate::verbs::cq::{ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
use crate::verbs::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp};
use crate::verbs::query::ibv_query_device;
use crate::verbs::srq::{ibv_create_srq, ibv_destroy_srq};

const INVALID: i32 = Errno::EINVAL as i32;

fn device(host: &Host) -> ibv_device_attr {
    let mut attr = ibv_device_attr::zeroed();
    assert_eq!(ibv_query_device(host.context, Some(&mut attr)), 0);
    attr
}

/// A size in the type of work requests.
fn size(of_device: i32) -> u32 {
    u32::try_from(of_device).expect("a size")
}

/// Creates as many objects as the device can have, `there` of which exist already. One more is
/// refused. All are destroyed.
fn make_all<T: Copy>(most: i32, there: i32, new: impl Fn() -> *mut T, end: fn(*mut T) -> i32) {
    let made: Vec<_> = (there..most).map(|_| new()).collect();
    let refused = (new(), Errno::last());
    let are_made = made.iter().all(|it| !it.is_null());
    for object in made {
        assert_eq!(end(object), 0);
    }
    assert!(are_made);
    assert_eq!(refused, (ptr::null_mut(), Errno::ENOMEM));
}

#[test]
fn as_many_objects_as_the_device_tells_are_made() {
    let bed = Bed::unconnected();
    let (host, attr) = (&bed.a, device(&bed.a));
    make_all(
        attr.max_pd,
        1,
        || ibv_alloc_pd(host.context),
        |it| ibv_dealloc_pd(it),
    );
    let nothing = ptr::null_mut();
    let cq = || ibv_create_cq(host.context, 1, nothing, ptr::null_mut(), 0);
    make_all(attr.max_cq, 1, cq, |it| ibv_destroy_cq(it));
    let srq = || shared(host, 1, 1);
    make_all(attr.max_srq, 0, srq, |it| ibv_destroy_srq(it));
    let windows = host.ops();
    let window = || windows.alloc_mw.expect("a slot")(host.pd, IBV_MW_TYPE_2);
    let end = windows.dealloc_mw.expect("a slot");
    assert_eq!(attr.max_mr, attr.max_mw);
    // Regions and windows share their limit, and there is a region.
    let made: Vec<_> = (1..attr.max_mw).map(|_| window()).collect();
    let refused = (window(), Errno::last());
    assert!(made.iter().all(|it| !it.is_null() && end(*it) == 0));
    assert_eq!(refused, (ptr::null_mut(), Errno::ENOMEM));
    bed.end();
}

#[test]
fn as_many_queue_pairs_as_the_device_tells_are_made() {
    let bed = Bed::unconnected();
    let host = &bed.a;
    let make = || {
        let mut init = qp_attr(host.cq);
        init.cap = ibv_qp_cap::zeroed();
        ibv_create_qp(host.pd, Some(&mut init))
    };
    make_all(device(host).max_qp, 1, make, |it| ibv_destroy_qp(it));
    bed.end();
}

fn shared(host: &Host, depth: u32, sge: u32) -> *mut ibv_srq {
    let mut init = ibv_srq_init_attr::zeroed();
    (init.attr.max_wr, init.attr.max_sge) = (depth, sge);
    ibv_create_srq(host.pd, Some(&mut init))
}

#[test]
fn queues_are_as_deep_as_the_device_tells() {
    let bed = Bed::unconnected();
    let (host, attr) = (&bed.a, device(&bed.a));
    let nothing = ptr::null_mut();
    let cq = ibv_create_cq(host.context, attr.max_cqe, nothing, ptr::null_mut(), 0);
    assert_eq!(ibv_resize_cq(cq, attr.max_cqe + 1), INVALID);
    assert_eq!(ibv_destroy_cq(cq), 0);
    let deeper = ibv_create_cq(host.context, attr.max_cqe + 1, nothing, ptr::null_mut(), 0);
    assert_eq!((deeper, Errno::last()), (ptr::null_mut(), Errno::EINVAL));
    let (depth, sge) = (size(attr.max_srq_wr), size(attr.max_srq_sge));
    assert_eq!(ibv_destroy_srq(shared(host, depth, sge)), 0);
    for (depth, sge) in [(depth + 1, sge), (depth, sge + 1), (0, 1)] {
        let refused = shared(host, depth, sge);
        assert_eq!((refused, Errno::last()), (ptr::null_mut(), Errno::EINVAL));
    }
    bed.end();
}

/// Creates a queue pair of these sizes, and returns its actual sizes.
fn sized(host: &Host, cap: ibv_qp_cap) -> (*mut ibv_qp, ibv_qp_cap) {
    let mut init = qp_attr(host.cq);
    init.cap = cap;
    (ibv_create_qp(host.pd, Some(&mut init)), init.cap)
}

/// The largest queue pair that the device reports.
fn largest(attr: &ibv_device_attr) -> ibv_qp_cap {
    let (depth, sge) = (size(attr.max_qp_wr), size(attr.max_sge));
    ibv_qp_cap {
        max_send_wr: depth,
        max_recv_wr: depth,
        max_send_sge: sge,
        max_recv_sge: sge,
        max_inline_data: 512,
    }
}

#[test]
fn queue_pair_is_as_large_as_the_device_tells() {
    let bed = Bed::unconnected();
    let host = &bed.a;
    let most = largest(&device(host));
    let (qp, _) = sized(host, most);
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    assert_eq!(ibv_query_qp(qp, Some(&mut attr), 0, Some(&mut init)), 0);
    for cap in [attr.cap, init.cap] {
        assert_eq!((cap.max_send_wr, cap.max_recv_wr), (1 << 16, 1 << 16));
        assert_eq!((cap.max_send_sge, cap.max_recv_sge), (16, 16));
        assert_eq!(cap.max_inline_data, 512);
    }
    assert_eq!(ibv_destroy_qp(qp), 0);
    let more: [fn(&mut ibv_qp_cap) -> &mut u32; 5] = [
        |cap| &mut cap.max_send_wr,
        |cap| &mut cap.max_recv_wr,
        |cap| &mut cap.max_send_sge,
        |cap| &mut cap.max_recv_sge,
        |cap| &mut cap.max_inline_data,
    ];
    for field in more {
        let mut cap = most;
        *field(&mut cap) += 1;
        let (refused, _) = sized(host, cap);
        assert_eq!((refused, Errno::last()), (ptr::null_mut(), Errno::EINVAL));
    }
    bed.end();
}

#[test]
fn list_is_as_long_as_the_device_tells() {
    let bed = Bed::unconnected();
    let (a, b) = (&bed.a, &bed.b);
    let ((from, _), (to, _)) = (sized(a, largest(&device(a))), sized(b, largest(&device(b))));
    bed.connect(from, to);
    let mut pieces: [_; 17] = std::array::from_fn(|at| a.sge(8 * at, 4));
    let mut places: [_; 17] = std::array::from_fn(|at| b.sge(4 * at, 4));
    let (send, receive) = (a.ops().post_send, b.ops().post_recv);
    let (send, receive) = (send.expect("a slot"), receive.expect("a slot"));
    let mut wr = super::testbed::receive(7, &mut places);
    assert_eq!(receive(to, &raw mut wr, None), INVALID);
    wr.num_sge = 16;
    assert_eq!(receive(to, &raw mut wr, None), 0);
    (0..16_u8).for_each(|at| a.write(8 * usize::from(at), &[at; 4]));
    let mut wr = request(1, IBV_WR_SEND, &mut pieces);
    assert_eq!(send(from, &raw mut wr, None), INVALID);
    wr.num_sge = 16;
    assert_eq!(send(from, &raw mut wr, None), 0);
    assert_eq!(b.success().byte_len, 64);
    let arrived: [u8; 64] = b.read(0);
    assert!(
        arrived
            .chunks(4)
            .zip(0..16_u8)
            .all(|(four, at)| four == [at; 4])
    );
    // A Read places its answer into `max_sge_rd` pieces.
    let mut wr = request(2, IBV_WR_RDMA_READ, &mut pieces);
    (wr.num_sge, wr.wr) = (device(a).max_sge_rd + 1, b.remote(0));
    assert_eq!(send(from, &raw mut wr, None), INVALID);
    assert_eq!([ibv_destroy_qp(from), ibv_destroy_qp(to)], [0, 0]);
    bed.end();
}

#[test]
fn inline_data_are_as_long_as_the_queue_pair_tells() {
    let bed = Bed::new();
    for wanted in [0, 64, 100, 512] {
        let mut cap = qp_attr(bed.a.cq).cap;
        cap.max_inline_data = wanted;
        let (qp, cap) = sized(&bed.a, cap);
        assert!(cap.max_inline_data >= wanted);
        let mut piece = [bed.a.sge(0, cap.max_inline_data)];
        let mut wr = request(1, IBV_WR_SEND, &mut piece);
        wr.send_flags |= IBV_SEND_INLINE;
        let post = bed.a.ops().post_send.expect("a slot");
        assert_eq!(post(qp, &raw mut wr, None), 0);
        let mut piece = [bed.a.sge(0, cap.max_inline_data + 1)];
        wr.sg_list = piece.as_mut_ptr();
        assert_eq!(post(qp, &raw mut wr, None), INVALID, "{wanted}");
        assert_eq!(ibv_destroy_qp(qp), 0);
    }
    bed.end();
}

#[test]
fn as_many_reads_as_the_device_tells_may_be_outstanding() {
    let bed = Bed::unconnected();
    let most = device(&bed.a);
    let mask = (IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC).cast_signed();
    let mut attr = ibv_qp_attr::zeroed();
    attr.max_rd_atomic = u8::try_from(most.max_qp_init_rd_atom).expect("a byte");
    attr.max_dest_rd_atomic = u8::try_from(most.max_qp_rd_atom).expect("a byte");
    assert_eq!(ibv_modify_qp(bed.a.qp, Some(&attr), mask), 0);
    let (mut now, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    assert_eq!(
        ibv_query_qp(bed.a.qp, Some(&mut now), 0, Some(&mut init)),
        0
    );
    assert_eq!(now.max_rd_atomic, attr.max_rd_atomic);
    assert_eq!(now.max_dest_rd_atomic, attr.max_dest_rd_atomic);
    bed.end();
}

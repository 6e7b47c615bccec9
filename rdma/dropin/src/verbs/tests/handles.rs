//! Null pointers, wrong handles, use after destruction, and ends in the wrong order.

use std::ffi::c_int;
use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, qp_attr, request};
use crate::abi::Zeroed;
use crate::abi::numbers::IBV_WR_SEND;
use crate::abi::verbs::{
    ibv_device_attr, ibv_gid, ibv_qp_attr, ibv_qp_init_attr, ibv_srq_attr, ibv_srq_init_attr,
};
use crate::verbs::ah::{ibv_create_ah, ibv_destroy_ah};
use crate::verbs::async_events::ibv_get_async_event;
use crate::verbs::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::verbs::context::ibv_close_device;
use crate::verbs::cq::{ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
use crate::verbs::cq_events::ibv_get_cq_event;
use crate::verbs::device::ibv_get_device_name;
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr, ibv_rereg_mr};
use crate::verbs::operations::ibv_open_device;
use crate::verbs::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp};
use crate::verbs::query::{ibv_query_device, ibv_query_gid};
use crate::verbs::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};

const INVALID: c_int = Errno::EINVAL as c_int;

#[test]
fn null_is_refused_by_all_that_return_an_error_number() {
    let (null, mut attr) = (ptr::null_mut(), ibv_qp_attr::zeroed());
    let returned = [
        ibv_dealloc_pd(null),
        ibv_destroy_cq(ptr::null_mut()),
        ibv_resize_cq(ptr::null_mut(), 1),
        ibv_dereg_mr(ptr::null_mut()),
        ibv_destroy_qp(ptr::null_mut()),
        ibv_modify_qp(ptr::null_mut(), Some(&attr), 1),
        ibv_modify_qp(ptr::null_mut(), None, 1),
        ibv_query_qp(ptr::null_mut(), Some(&mut attr), 0, None),
        ibv_destroy_srq(ptr::null_mut()),
        ibv_modify_srq(ptr::null_mut(), None, 1),
        ibv_query_srq(ptr::null_mut(), Some(&mut ibv_srq_attr::zeroed())),
        ibv_destroy_comp_channel(ptr::null_mut()),
        ibv_destroy_ah(ptr::null_mut()),
        ibv_query_device(ptr::null_mut(), Some(&mut ibv_device_attr::zeroed())),
        ibv_query_device(ptr::null_mut(), None),
    ];
    assert!(
        returned.iter().all(|errno| *errno == INVALID),
        "{returned:?}"
    );
}

#[test]
fn null_is_refused_by_all_that_set_errno() {
    let null = ptr::null_mut();
    let nothing = [
        ibv_alloc_pd(ptr::null_mut()).is_null(),
        ibv_create_cq(ptr::null_mut(), 1, null, ptr::null_mut(), 0).is_null(),
        ibv_reg_mr(ptr::null_mut(), null, 1, 0).is_null(),
        ibv_create_qp(ptr::null_mut(), None).is_null(),
        ibv_create_qp(ptr::null_mut(), Some(&mut ibv_qp_init_attr::zeroed())).is_null(),
        ibv_create_srq(ptr::null_mut(), None).is_null(),
        ibv_create_comp_channel(ptr::null_mut()).is_null(),
        ibv_create_ah(ptr::null_mut(), None).is_null(),
        ibv_open_device(ptr::null_mut()).is_null(),
        ibv_get_device_name(ptr::null_mut()).is_null(),
    ];
    assert_eq!(nothing, [true; 10]);
    let failed = [
        ibv_close_device(ptr::null_mut()),
        ibv_get_async_event(ptr::null_mut(), None),
        ibv_get_cq_event(ptr::null_mut(), None, None),
        ibv_query_gid(ptr::null_mut(), 1, 0, Some(&mut ibv_gid([0; 16]))),
        ibv_rereg_mr(ptr::null_mut(), 1, ptr::null_mut(), null, 0, 0),
    ];
    assert_eq!(failed, [-1; 5]);
}

#[test]
fn handle_of_another_kind_is_refused() {
    let bed = Bed::unconnected();
    assert_eq!(ibv_destroy_cq(bed.a.pd.cast()), INVALID);
    assert_eq!(ibv_destroy_qp(bed.a.mr.cast()), INVALID);
    assert_eq!(ibv_dealloc_pd(bed.a.context.cast()), INVALID);
    assert!(ibv_create_qp(bed.a.cq.cast(), Some(&mut qp_attr(bed.a.cq))).is_null());
    // Objects of two contexts cannot be combined.
    assert!(ibv_create_qp(bed.a.pd, Some(&mut qp_attr(bed.b.cq))).is_null());
    assert_eq!(Errno::last(), Errno::EINVAL);
    bed.end();
}

#[test]
fn objects_in_use_are_not_destroyed() {
    const BUSY: c_int = Errno::EBUSY as c_int;
    let bed = Bed::unconnected();
    let ends = [
        ibv_dealloc_pd(bed.a.pd),
        ibv_destroy_cq(bed.a.cq),
        ibv_destroy_comp_channel(bed.a.channel),
    ];
    assert_eq!(ends, [BUSY; 3]);
    bed.end();
}

#[test]
fn destroyed_objects_are_refused_by_the_data_path() {
    let bed = Bed::unconnected();
    let mut wr = request(1, IBV_WR_SEND, &mut []);
    let (ops, qp) = (bed.a.ops(), bed.a.qp);
    assert_eq!(ibv_destroy_qp(qp), 0);
    assert_eq!(ibv_destroy_qp(qp), INVALID);
    let mut bad = ptr::null_mut();
    let posted = ops.post_send.expect("a slot")(qp, &raw mut wr, Some(&mut bad));
    assert_eq!((posted, bad), (INVALID, &raw mut wr));
    let received = ops.post_recv.expect("a slot")(qp, ptr::null_mut(), None);
    assert_eq!(received, INVALID);
    assert_eq!([ibv_dereg_mr(bed.a.mr), ibv_destroy_cq(bed.a.cq)], [0, 0]);
    let polled = ops.poll_cq.expect("a slot")(bed.a.cq, 0, ptr::null_mut());
    let armed = ops.req_notify_cq.expect("a slot")(bed.a.cq, 0);
    assert_eq!((polled, armed), (-1, INVALID));
}

/// Another thread may be closing the device. Its objects end with it.
#[test]
fn objects_of_a_closed_rnic_can_be_destroyed() {
    let bed = Bed::new();
    let mut attr = ibv_srq_init_attr::zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (4, 1);
    let srq = ibv_create_srq(bed.a.pd, Some(&mut attr));
    bed.close();
    assert!(ibv_alloc_pd(bed.a.context).is_null());
    assert_eq!(Errno::last(), Errno::EIO);
    assert_eq!(ibv_destroy_srq(srq), 0);
    bed.end();
}

//! Slots of a context: the functions that inline functions of the header call. The operation of an
//! empty slot is not supported.

use std::sync::Arc;

use super::context;
use super::cq::{poll_cq, req_notify_cq};
use super::cq_ex::create_cq_ex;
use super::device::Device;
use super::domains::{alloc_parent_domain, alloc_td, dealloc_td};
use super::mr::advise_mr;
use super::mw::{alloc_mw, bind_mw, dealloc_mw};
use super::posting::{post_recv, post_send, post_srq_recv};
use super::qp_ex::create_qp_ex;
use super::query::{compat_query_port, query_device_ex, query_port, query_rt_values};
use super::srq::create_srq_ex;
use crate::abi::verbs::{ibv_context, ibv_device, verbs_context};
use crate::entry::{Result, sets};
use crate::object::Object;

/// Fills the slots of all supported operations.
fn fill(context: &mut verbs_context) {
    context.query_port = Some(query_port);
    context.advise_mr = Some(advise_mr);
    context.alloc_parent_domain = Some(alloc_parent_domain);
    context.dealloc_td = Some(dealloc_td);
    context.alloc_td = Some(alloc_td);
    context.query_rt_values = Some(query_rt_values);
    context.create_cq_ex = Some(create_cq_ex);
    context.query_device_ex = Some(query_device_ex);
    context.create_qp_ex = Some(create_qp_ex);
    context.create_srq_ex = Some(create_srq_ex);
    let ops = &mut context.context.ops;
    ops.query_port = Some(compat_query_port);
    ops.alloc_mw = Some(alloc_mw);
    ops.bind_mw = Some(bind_mw);
    ops.dealloc_mw = Some(dealloc_mw);
    ops.poll_cq = Some(poll_cq);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.post_send = Some(post_send);
    ops.post_recv = Some(post_recv);
}

/// Opens a device.
pub(crate) fn open(device: &Arc<Object<Device>>) -> Result<*mut ibv_context> {
    context::open(device, fill)
}

/// `ibv_open_device(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    sets(|| open(&Object::<Device>::find(device)?))
}

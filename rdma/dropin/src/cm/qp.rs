//! Queue pairs and shared receive queues of identifiers, with their completion queues.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use nix::errno::Errno;

use super::devices::default_pd;
use super::id::{CmId, Id, Phase, QpTemplate, get, put};
use crate::abi::Zeroed;
use crate::abi::cm::rdma_cm_id;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_PORT, IBV_QP_STATE,
    IBV_QPS_INIT, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC,
};
use crate::abi::verbs::{
    ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::backend;
use crate::entry::{Result, always, sets_status};
use crate::object::Object;
use crate::verbs::channel;
use crate::verbs::cq;
use crate::verbs::pd::Pd;
use crate::verbs::qp::{self, Qp, ibv_create_qp};
use crate::verbs::srq::{ibv_create_srq, ibv_destroy_srq};

/// The library's part of a queue pair of C.
pub(super) fn queue_pair(qp: *mut ibv_qp) -> Result<Arc<backend::Qp>> {
    Ok(Arc::clone(Object::<Qp>::find(qp)?.body().queue_pair()))
}

/// Writes a state into the struct of a connection's queue pair, which programs read.
pub(super) fn show_state(id: &Arc<Id>, connected: &Arc<backend::Qp>, state: u32) {
    // The program may have destroyed the queue pair, and made another one at its address.
    if let Ok(qp) = Object::<Qp>::find(get!(id, qp))
        && Arc::ptr_eq(qp.body().queue_pair(), connected)
    {
        qp.with_abi(|abi| abi.qp_base.state = state);
    }
}

/// The given domain, or the device's default.
fn domain(id: &Arc<Id>, given: *mut ibv_pd) -> Result<*mut ibv_pd> {
    let state = id.body().living()?;
    let context = state.context.as_ref().ok_or(Errno::EINVAL)?;
    if given.is_null() {
        return default_pd(context);
    }
    let pd = Object::<Pd>::find(given)?;
    let is_of_device = Arc::ptr_eq(pd.body().context(), context);
    is_of_device.then_some(given).ok_or(Errno::EINVAL)
}

/// Creates a completion queue with a channel of its own, for an identifier that was given none.
fn create_cq_with_channel(
    id: &Arc<Id>,
    entries: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq)> {
    let context = get!(id, verbs);
    let on = channel::create(context)?;
    let made = cq::create(
        context,
        entries.max(1),
        Object::handle(id).cast(),
        on,
        |_abi| {},
    );
    match made {
        Ok(cq) => Ok((on, cq)),
        Err(errno) => {
            channel::destroy(on)?;
            Err(errno)
        }
    }
}

/// The completion queues that `given` names; missing ones are created.
fn queues(id: &Arc<Id>, given: [*mut ibv_cq; 2], depths: [u32; 2]) -> Result<[*mut ibv_cq; 2]> {
    let [mut send, mut recv] = given;
    if send.is_null() && get!(id, send_cq).is_null() {
        let (channel, cq) = create_cq_with_channel(id, depths[0])?;
        put!(id, send_cq_channel, channel);
        put!(id, send_cq, cq);
        id.body().state().own_queues[0] = true;
    }
    if recv.is_null() && get!(id, recv_cq).is_null() {
        let (channel, cq) = create_cq_with_channel(id, depths[1])?;
        put!(id, recv_cq_channel, channel);
        put!(id, recv_cq, cq);
        id.body().state().own_queues[1] = true;
    }
    if send.is_null() {
        send = get!(id, send_cq);
    }
    if recv.is_null() {
        recv = get!(id, recv_cq);
    }
    Ok([send, recv])
}

/// Destroys the completion queues that were made for an identifier.
fn end_queues(id: &Arc<Id>) -> Result<()> {
    let own = std::mem::take(&mut id.body().state().own_queues);
    if own[0] {
        cq::destroy(get!(id, send_cq))?;
        channel::destroy(get!(id, send_cq_channel))?;
        put!(id, send_cq, ptr::null_mut());
        put!(id, send_cq_channel, ptr::null_mut());
    }
    if own[1] {
        cq::destroy(get!(id, recv_cq))?;
        channel::destroy(get!(id, recv_cq_channel))?;
        put!(id, recv_cq, ptr::null_mut());
        put!(id, recv_cq_channel, ptr::null_mut());
    }
    Ok(())
}

/// Makes the queue pair of an identifier by `make`, which receives its completion queues and its
/// domain.
fn create_with(
    id: &Arc<Id>,
    pd: *mut ibv_pd,
    given: [*mut ibv_cq; 2],
    depths: [u32; 2],
    make: impl FnOnce([*mut ibv_cq; 2], *mut ibv_pd, *mut ibv_srq) -> *mut ibv_qp,
) -> Result<()> {
    let _one_at_a_time = id.body().queues();
    if !get!(id, qp).is_null() {
        return Err(Errno::EINVAL);
    }
    let pd = domain(id, pd)?;
    let queues = queues(id, given, depths)?;
    let qp = make(queues, pd, get!(id, srq));
    if qp.is_null() {
        let errno = Errno::last();
        end_queues(id)?;
        return Err(errno);
    }
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_INIT;
    qp::modify(qp, &attr, IBV_QP_STATE)?;
    put!(id, qp, qp);
    put!(id, pd, pd);
    Ok(())
}

/// Makes the queue pair of an identifier. Writes its attributes into `attr`.
pub(super) fn create(id: &Arc<Id>, pd: *mut ibv_pd, attr: &mut ibv_qp_init_attr) -> Result<()> {
    let (given, cap) = ([attr.send_cq, attr.recv_cq], attr.cap);
    create_with(
        id,
        pd,
        given,
        [cap.max_send_wr, cap.max_recv_wr],
        |[send, recv], pd, srq| {
            (attr.send_cq, attr.recv_cq) = (send, recv);
            if attr.srq.is_null() {
                attr.srq = srq;
            }
            ibv_create_qp(pd, Some(attr))
        },
    )
}

/// Makes a queue pair with attributes of later versions, if the context has the function for that.
fn create_ex(id: &Arc<Id>, attr: &mut ibv_qp_init_attr_ex) -> Result<()> {
    let context = get!(id, verbs);
    let slot = {
        let state = id.body().state();
        let context = state.context.as_ref().ok_or(Errno::EINVAL)?;
        context.with_abi(|abi| abi.create_qp_ex)
    };
    let make = slot.ok_or(Errno::EOPNOTSUPP)?;
    let given_pd = if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
        ptr::null_mut()
    } else {
        attr.pd
    };
    let (given, cap) = ([attr.send_cq, attr.recv_cq], attr.cap);
    create_with(
        id,
        given_pd,
        given,
        [cap.max_send_wr, cap.max_recv_wr],
        |[send, recv], pd, srq| {
            (attr.send_cq, attr.recv_cq, attr.pd) = (send, recv, pd);
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
            if attr.srq.is_null() {
                attr.srq = srq;
            }
            make(context, Some(attr))
        },
    )
}

/// Makes the queue pair of a connection request, if the listener was given attributes for that.
pub(super) fn create_from_template(listener: &Arc<Id>, id: &Arc<Id>) -> Result<()> {
    let template = listener.body().state().template;
    let Some(QpTemplate {
        pd,
        attr: Some(mut attr),
    }) = template
    else {
        return Ok(());
    };
    create(id, pd, &mut attr)
}

/// Destroys the queue pair of an identifier, and the completion queues that were made for it.
pub(super) fn destroy(id: &Arc<Id>) -> Result<()> {
    let _one_at_a_time = id.body().queues();
    let qp = get!(id, qp);
    put!(id, qp, ptr::null_mut());
    qp::destroy(qp)?;
    id.body().state().connection = None;
    end_queues(id)
}

fn create_srq(id: &Arc<Id>, pd: *mut ibv_pd, attr: Option<&mut ibv_srq_init_attr>) -> Result<()> {
    let _one_at_a_time = id.body().queues();
    if !get!(id, srq).is_null() {
        return Err(Errno::EINVAL);
    }
    let pd = domain(id, pd)?;
    let srq = ibv_create_srq(pd, attr);
    if srq.is_null() {
        return Err(Errno::last());
    }
    put!(id, srq, srq);
    put!(id, pd, pd);
    Ok(())
}

/// Destroys the shared receive queue of an identifier.
pub(super) fn destroy_srq(id: &Arc<Id>) -> Result<()> {
    let _one_at_a_time = id.body().queues();
    let srq = get!(id, srq);
    match ibv_destroy_srq(srq) {
        0 => {
            put!(id, srq, ptr::null_mut());
            Ok(())
        }
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Attributes with which a program modifies its queue pair into a state. The connection manager
/// does the rest, so nothing remains to be done once the queue pair is connected.
fn init_attr(id: &Arc<Id>, attr: &mut ibv_qp_attr) -> u32 {
    if id.body().state().phase == Phase::Connected {
        return 0;
    }
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC;
    attr.port_num = 1;
    let mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
    if attr.qp_state == IBV_QPS_INIT {
        return mask | IBV_QP_PORT;
    }
    mask
}

/// `rdma_create_qp(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    sets_status(|| create(&Object::<CmId>::find(id)?, pd, attr.ok_or(Errno::EINVAL)?))
}

/// Creates a queue pair with attributes of later versions: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: Option<&mut ibv_qp_init_attr_ex>,
) -> c_int {
    sets_status(|| create_ex(&Object::<CmId>::find(id)?, attr.ok_or(Errno::EINVAL)?))
}

/// `rdma_destroy_qp(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    always((), || destroy(&Object::<CmId>::find(id)?));
}

/// `rdma_create_srq(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_srq_init_attr>,
) -> c_int {
    sets_status(|| create_srq(&Object::<CmId>::find(id)?, pd, attr))
}

/// Creates a shared receive queue with attributes of later versions; basic ones alone are
/// supported. Sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: Option<&mut ibv_srq_init_attr_ex>,
) -> c_int {
    sets_status(|| {
        let (id, attr) = (Object::<CmId>::find(id)?, attr.ok_or(Errno::EINVAL)?);
        let kind = (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0).then_some(attr.srq_type);
        let is_basic = kind.is_none_or(|kind| kind == IBV_SRQT_BASIC);
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        if !is_basic || attr.comp_mask & !known != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let pd = if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            ptr::null_mut()
        } else {
            attr.pd
        };
        let mut basic = ibv_srq_init_attr::zeroed();
        (basic.srq_context, basic.attr) = (attr.srq_context, attr.attr);
        create_srq(&id, pd, Some(&mut basic))?;
        attr.attr = basic.attr;
        Ok(())
    })
}

/// `rdma_destroy_srq(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    always((), || destroy_srq(&Object::<CmId>::find(id)?));
}

/// `rdma_init_qp_attr(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: Option<&mut ibv_qp_attr>,
    mask: Option<&mut c_int>,
) -> c_int {
    sets_status(|| {
        let id = Object::<CmId>::find(id)?;
        let (attr, mask) = (attr.ok_or(Errno::EINVAL)?, mask.ok_or(Errno::EINVAL)?);
        *mask = init_attr(&id, attr).cast_signed();
        Ok(())
    })
}

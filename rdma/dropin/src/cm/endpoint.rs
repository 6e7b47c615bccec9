//! Endpoints: identifiers that are made from resolved addresses, and work synchronously.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use nix::errno::Errno;

use super::address;
use super::id::{CmId, Id, QpTemplate, get};
use super::life::{self, complete};
use super::numbers::{RAI_PASSIVE, RDMA_PS_IB, RDMA_PS_TCP};
use super::qp;
use super::resolving;
use crate::abi::cm::{rdma_addrinfo, rdma_cm_id};
use crate::abi::numbers::IBV_QPT_RC;
use crate::abi::verbs::{ibv_pd, ibv_qp_init_attr};
use crate::entry::{Result, always, sets_status};
use crate::object::Object;
use crate::verbs::device_list::listed;

/// Prepares the identifier to listen or to connect.
fn prepare(
    id: &Arc<Id>,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    mut attr: Option<&mut ibv_qp_init_attr>,
) -> Result<()> {
    if let Some(attr) = &mut attr {
        attr.qp_type = IBV_QPT_RC;
    }
    if info.ai_flags & RAI_PASSIVE != 0 {
        resolving::bind(id, listed(), address::read(info.ai_src_addr)?)?;
        let attr = attr.map(|attr| *attr);
        id.body().state().template = Some(QpTemplate { pd, attr });
        return Ok(());
    }
    let source = (!info.ai_src_addr.is_null())
        .then(|| address::read(info.ai_src_addr))
        .transpose()?;
    resolving::resolve(id, listed(), source, address::read(info.ai_dst_addr)?)?;
    complete(id)?;
    resolving::resolve_route(id)?;
    complete(id)?;
    if let Some(attr) = attr {
        qp::create(id, pd, attr)?;
    }
    Ok(())
}

/// `rdma_create_ep(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_ep(
    id: Option<&mut *mut rdma_cm_id>,
    info: Option<&rdma_addrinfo>,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    sets_status(|| {
        let (place, info) = (id.ok_or(Errno::EINVAL)?, info.ok_or(Errno::EINVAL)?);
        let space = info.ai_port_space.cast_unsigned();
        if !matches!(space, RDMA_PS_TCP | RDMA_PS_IB) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        // A program that fills in the structure itself may leave the type open.
        if ![0, IBV_QPT_RC.cast_signed()].contains(&info.ai_qp_type) {
            return Err(Errno::EOPNOTSUPP);
        }
        // Path records and data of InfiniBand's address family.
        if info.ai_route_len != 0 || info.ai_connect_len != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let handle = CmId::create(ptr::null_mut(), ptr::null_mut(), space)?;
        let made = prepare(&Object::<CmId>::find(handle)?, info, pd, attr);
        if let Err(errno) = made {
            life::destroy(handle)?;
            return Err(errno);
        }
        *place = handle;
        Ok(())
    })
}

/// `rdma_destroy_ep(3)`: also destroys its queue pair and its shared receive queue.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    always((), || {
        let found = Object::<CmId>::find(id)?;
        if !get!(found, qp).is_null() {
            qp::destroy(&found)?;
        }
        if !get!(found, srq).is_null() {
            qp::destroy_srq(&found)?;
        }
        life::destroy(id)
    });
}

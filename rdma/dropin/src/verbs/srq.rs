//! Shared receive queues.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use nix::errno::Errno;

use super::context::Context;
use super::pd::Pd;
use super::watched::Watched;
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC,
};
use crate::abi::verbs::{
    ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::backend::{self, SrqChange, SrqPort, SrqSizes, limits};
use crate::entry::{Result, returns, sets};
use crate::object::{Kind, Object, next_handle};

/// A shared receive queue.
pub(crate) struct Srq {
    pd: Arc<Object<Pd>>,
    queue: Arc<backend::Srq>,
    port: Arc<dyn SrqPort>,
    watched: Arc<Watched>,
}

impl Kind for Srq {
    type Abi = ibv_srq;
    type C = ibv_srq;
    const NAME: &'static str = "ibv_srq";
    const TAG: u32 = 0x7372_7131;
}

impl Srq {
    pub(crate) fn is_of(&self, context: &Arc<Object<Context>>) -> bool {
        Arc::ptr_eq(self.pd.body().context(), context)
    }

    pub(super) fn queue(&self) -> &backend::Srq {
        &self.queue
    }

    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    #[inline]
    pub(super) fn port(&self) -> &dyn SrqPort {
        &*self.port
    }
}

/// Makes a shared receive queue, and writes its actual sizes into `attr`.
pub(crate) fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq> {
    let pd = Object::<Pd>::find(pd)?;
    // The limit is ignored: `ibv_modify_srq` arms it.
    let sizes = SrqSizes {
        depth: attr.max_wr as usize,
        sge: attr.max_sge.max(1) as usize,
        limit: 0,
    };
    if !(1..=limits().depth).contains(&sizes.depth) || sizes.sge > limits().sge {
        return Err(Errno::EINVAL);
    }
    let queue = pd.body().domain().create_srq(sizes)?;
    attr.max_sge = attr.max_sge.max(1);
    let context = pd.body().context();
    let watched = Watched::new(context.body().events(), false);
    queue.report_events(watched.target())?;
    let mut abi = ibv_srq::zeroed();
    abi.context = Object::handle(context);
    abi.srq_context = srq_context;
    abi.pd = Object::handle(&pd);
    abi.handle = next_handle();
    let body = Srq {
        pd,
        port: Arc::<backend::Srq>::clone(&queue),
        queue,
        watched: Arc::clone(&watched),
    };
    let object = Object::new(abi, body);
    watched.is_at(Object::handle(&object));
    Ok(object.publish())
}

/// Destroys a shared receive queue; EBUSY while queue pairs use it. Waits until the program has
/// acknowledged its events.
pub(crate) fn destroy(srq: *mut ibv_srq) -> Result<()> {
    let srq = Object::<Srq>::find(srq)?;
    srq.body().queue.destroy()?;
    srq.body().watched.end();
    srq.destroy()
}

fn modify(srq: *mut ibv_srq, attr: &ibv_srq_attr, mask: u32) -> Result<()> {
    let srq = Object::<Srq>::find(srq)?;
    if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        return Err(Errno::EINVAL);
    }
    let asked = |flag, size: u32| (mask & flag != 0).then_some(size as usize);
    let change = SrqChange {
        depth: asked(IBV_SRQ_MAX_WR, attr.max_wr),
        limit: asked(IBV_SRQ_LIMIT, attr.srq_limit),
    };
    srq.body().queue.modify(change)
}

fn query(srq: *mut ibv_srq) -> Result<ibv_srq_attr> {
    let srq = Object::<Srq>::find(srq)?;
    let sizes = srq.body().queue.query()?;
    let number = |size| u32::try_from(size).unwrap_or(u32::MAX);
    Ok(ibv_srq_attr {
        max_wr: number(sizes.depth),
        max_sge: number(sizes.sge),
        srq_limit: number(sizes.limit),
    })
}

/// `ibv_create_srq(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_srq_init_attr>,
) -> *mut ibv_srq {
    sets(|| {
        let attr = attr.ok_or(Errno::EINVAL)?;
        create(pd, attr.srq_context, &mut attr.attr)
    })
}

/// `ibv_create_srq_ex(3)` for the basic type: sets errno.
pub(super) extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: Option<&mut ibv_srq_init_attr_ex>,
) -> *mut ibv_srq {
    sets(|| {
        let attr = attr.ok_or(Errno::EINVAL)?;
        let has = |flag| attr.comp_mask & flag != 0;
        let is_basic = !has(IBV_SRQ_INIT_ATTR_TYPE) || attr.srq_type == IBV_SRQT_BASIC;
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        if !is_basic || attr.comp_mask & !known != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if !has(IBV_SRQ_INIT_ATTR_PD) {
            return Err(Errno::EINVAL);
        }
        Pd::find_of(context, attr.pd)?;
        create(attr.pd, attr.srq_context, &mut attr.attr)
    })
}

/// `ibv_modify_srq(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: Option<&ibv_srq_attr>,
    mask: c_int,
) -> c_int {
    returns(|| modify(srq, attr.ok_or(Errno::EINVAL)?, mask.cast_unsigned()))
}

/// `ibv_query_srq(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: Option<&mut ibv_srq_attr>) -> c_int {
    returns(|| {
        *attr.ok_or(Errno::EINVAL)? = query(srq)?;
        Ok(())
    })
}

/// `ibv_destroy_srq(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    returns(|| destroy(srq))
}

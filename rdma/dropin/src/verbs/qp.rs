//! Queue pairs.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;

use super::batch::Batch;
use super::by_hand::Service;
use super::cq::Cq;
use super::device::Device;
use super::pd::Pd;
use super::qp_state::QpAttributes;
use super::srq::Srq;
use super::watched::Watched;
use crate::abi::Zeroed;
use crate::abi::numbers::{IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPT_RC, IBV_QPT_UC};
use crate::abi::verbs::{
    ibv_cq, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_srq,
};
use crate::backend::{self, QpPort, QpRequest, QpSizes, limits};
use crate::entry::{Result, lock, returns, sets};
use crate::object::{Kind, Object, next_handle};

/// Bytes of inline data that every queue pair takes. Programs that ask for none depend on some, as
/// other devices give them.
const LEAST_INLINE: u32 = 64;

/// A queue pair.
pub(crate) struct Qp {
    send_cq: Arc<Object<Cq>>,
    recv_cq: Arc<Object<Cq>>,
    srq: Option<Arc<Object<Srq>>>,
    queue_pair: Arc<backend::Qp>,
    port: Box<dyn QpPort>,
    watched: Arc<Watched>,
    attributes: Mutex<QpAttributes>,
    /// The batch that `ibv_wr_start` begins.
    pub(super) batch: Batch,
}

impl Kind for Qp {
    type Abi = ibv_qp_ex;
    type C = ibv_qp;
    const NAME: &'static str = "ibv_qp";
    const TAG: u32 = 0x7170_2031;
}

impl Qp {
    pub(crate) fn queue_pair(&self) -> &Arc<backend::Qp> {
        &self.queue_pair
    }

    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// The device, of which all of its parts are.
    fn device(&self) -> &Device {
        self.send_cq.body().context().body().device()
    }

    #[inline]
    pub(super) fn port(&self) -> &dyn QpPort {
        &*self.port
    }
}

/// Attributes that a queue pair is created with, by any of the functions.
pub(crate) struct QpSpec<'a> {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: c_int,
    /// Replaced by the queue pair's actual sizes.
    pub(crate) cap: &'a mut ibv_qp_cap,
}

impl QpSpec<'_> {
    /// Sizes, at least the requested ones. A depth or number of elements of 0 becomes 1.
    fn sizes(&mut self, has_srq: bool) -> Result<QpSizes> {
        let (cap, limits) = (&mut *self.cap, limits());
        for wanted in [&mut cap.max_send_wr, &mut cap.max_send_sge] {
            *wanted = (*wanted).max(1);
        }
        if has_srq {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        } else {
            (cap.max_recv_wr, cap.max_recv_sge) = (cap.max_recv_wr.max(1), cap.max_recv_sge.max(1));
        }
        cap.max_inline_data = cap.max_inline_data.max(LEAST_INLINE);
        let sizes = QpSizes {
            send_depth: cap.max_send_wr as usize,
            recv_depth: cap.max_recv_wr.max(1) as usize,
            send_sge: cap.max_send_sge as usize,
            recv_sge: cap.max_recv_sge.max(1) as usize,
            inline: cap.max_inline_data as usize,
        };
        let is_possible = sizes.send_depth <= limits.depth
            && sizes.recv_depth <= limits.depth
            && sizes.send_sge <= limits.sge
            && sizes.recv_sge <= limits.sge
            && sizes.inline <= limits.inline;
        is_possible.then_some(sizes).ok_or(Errno::EINVAL)
    }
}

/// The parts of a queue pair, which are all of one context.
struct Parts {
    pd: Arc<Object<Pd>>,
    send_cq: Arc<Object<Cq>>,
    recv_cq: Arc<Object<Cq>>,
    srq: Option<Arc<Object<Srq>>>,
}

fn parts(spec: &QpSpec<'_>) -> Result<Parts> {
    let parts = Parts {
        pd: Object::<Pd>::find(spec.pd)?,
        send_cq: Object::<Cq>::find(spec.send_cq)?,
        recv_cq: Object::<Cq>::find(spec.recv_cq)?,
        srq: (!spec.srq.is_null())
            .then(|| Object::<Srq>::find(spec.srq))
            .transpose()?,
    };
    let context = parts.pd.body().context();
    let is_of_one = parts.send_cq.body().is_of(context)
        && parts.recv_cq.body().is_of(context)
        && parts.srq.iter().all(|srq| srq.body().is_of(context));
    is_of_one.then_some(parts).ok_or(Errno::EINVAL)
}

/// Makes a queue pair. It has the longer one of the two structs, whose functions `fill` sets.
pub(crate) fn create(
    mut spec: QpSpec<'_>,
    fill: impl FnOnce(&mut ibv_qp_ex),
) -> Result<*mut ibv_qp> {
    if !matches!(spec.qp_type, IBV_QPT_RC | IBV_QPT_UC) {
        return Err(Errno::EOPNOTSUPP);
    }
    let parts = parts(&spec)?;
    let request = QpRequest {
        send_cq: parts.send_cq.body().queue(),
        recv_cq: parts.recv_cq.body().queue(),
        srq: parts.srq.as_ref().map(|srq| srq.body().queue()),
        sizes: spec.sizes(parts.srq.is_some())?,
        all_signaled: spec.sq_sig_all != 0,
    };
    let mut abi = abi_of(&spec, &parts);
    fill(&mut abi);
    let made = parts.pd.body().domain().create_qp(&request)?;
    abi.qp_base.handle = next_handle();
    abi.qp_base.qp_num = made.number();
    let service = Service::of(spec.qp_type);
    let attributes = QpAttributes::new(*spec.cap, request.all_signaled, service);
    parts.publish(&abi, made, attributes)
}

impl Parts {
    /// Makes it an object that programs and events can refer to.
    fn publish(
        self,
        abi: &ibv_qp_ex,
        made: Arc<backend::Qp>,
        attributes: QpAttributes,
    ) -> Result<*mut ibv_qp> {
        let context = self.pd.body().context().body();
        let watched = Watched::new(context.events(), self.srq.is_some());
        made.report_events(watched.target())?;
        let body = Qp {
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            port: made.port(),
            queue_pair: made,
            watched: Arc::clone(&watched),
            attributes: Mutex::new(attributes),
            batch: Batch::new(),
        };
        let object = Object::new(*abi, body);
        watched.is_at(Object::handle(&object));
        Ok(object.publish())
    }
}

fn abi_of(spec: &QpSpec<'_>, parts: &Parts) -> ibv_qp_ex {
    let mut abi = ibv_qp_ex::zeroed();
    let qp = &mut abi.qp_base;
    qp.context = Object::handle(parts.pd.body().context());
    qp.qp_context = spec.qp_context;
    qp.pd = spec.pd;
    qp.send_cq = spec.send_cq;
    qp.recv_cq = spec.recv_cq;
    qp.srq = spec.srq;
    qp.qp_type = spec.qp_type;
    abi
}

/// Destroys a queue pair. Waits until the program has acknowledged its events.
pub(crate) fn destroy(qp: *mut ibv_qp) -> Result<()> {
    let qp = Object::<Qp>::find(qp)?;
    let body = qp.body();
    lock(&body.attributes).leave(&body.queue_pair, body.device());
    body.queue_pair.destroy()?;
    body.watched.end();
    qp.destroy()?;
    body.batch.end();
    Ok(())
}

/// Modify QP, as requested by a program or the connection manager.
pub(crate) fn modify(qp: *mut ibv_qp, attr: &ibv_qp_attr, mask: u32) -> Result<()> {
    let qp = Object::<Qp>::find(qp)?;
    let body = qp.body();
    let mut attributes = lock(&body.attributes);
    let state = attributes.modify(&body.queue_pair, body.device(), attr, mask)?;
    drop(attributes);
    let Some(state) = state else {
        return Ok(());
    };
    qp.with_abi(|abi| abi.qp_base.state = state);
    match state {
        IBV_QPS_ERR => body.watched.report_last_receive(),
        IBV_QPS_RESET => body.watched.receives_again(),
        _ => {}
    }
    Ok(())
}

fn query(qp: *mut ibv_qp) -> Result<(ibv_qp_attr, ibv_qp_init_attr)> {
    let qp = Object::<Qp>::find(qp)?;
    let body = qp.body();
    let attributes = lock(&body.attributes);
    let attr = attributes.query(&body.queue_pair)?;
    let mut init = ibv_qp_init_attr::zeroed();
    qp.with_abi(|abi| {
        abi.qp_base.state = attr.qp_state;
        init.qp_context = abi.qp_base.qp_context;
        init.qp_type = abi.qp_base.qp_type;
    });
    init.send_cq = Object::handle(&body.send_cq);
    init.recv_cq = Object::handle(&body.recv_cq);
    init.srq = body
        .srq
        .as_ref()
        .map_or(std::ptr::null_mut(), Object::handle);
    init.cap = attr.cap;
    init.sq_sig_all = attributes.sq_sig_all();
    Ok((attr, init))
}

/// `ibv_create_qp(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> *mut ibv_qp {
    sets(|| {
        let attr = attr.ok_or(Errno::EINVAL)?;
        let spec = QpSpec {
            pd,
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
            cap: &mut attr.cap,
        };
        create(spec, |_abi| {})
    })
}

/// `ibv_modify_qp(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: Option<&ibv_qp_attr>, mask: c_int) -> c_int {
    returns(|| modify(qp, attr.ok_or(Errno::EINVAL)?, mask.cast_unsigned()))
}

/// `ibv_query_qp(3)`: returns the error number. Reports all attributes, regardless of the mask.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: Option<&mut ibv_qp_attr>,
    _mask: c_int,
    init: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    returns(|| {
        let (attr, init) = (attr.ok_or(Errno::EINVAL)?, init.ok_or(Errno::EINVAL)?);
        (*attr, *init) = query(qp)?;
        Ok(())
    })
}

/// `ibv_destroy_qp(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    returns(|| destroy(qp))
}

/// `ibv_query_qp_data_in_order(3)`: 0, as only Writes are certain to be placed in order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _opcode: u32, _flags: u32) -> c_int {
    0
}

/// `ibv_query_ece(3)`: there are no such options. Returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: Option<&mut ibv_ece>) -> c_int {
    returns(|| {
        Object::<Qp>::find(qp)?;
        *ece.ok_or(Errno::EINVAL)? = ibv_ece::zeroed();
        Ok(())
    })
}

/// `ibv_set_ece(3)`: accepts no options. Returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: Option<&ibv_ece>) -> c_int {
    returns(|| {
        Object::<Qp>::find(qp)?;
        match ece.ok_or(Errno::EINVAL)? {
            ibv_ece { options: 0, .. } => Ok(()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}

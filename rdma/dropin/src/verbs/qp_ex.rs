//! Queue pairs that programs post to with one call for each part of a work request.

use std::ffi::{c_int, c_void};
use std::slice;

use nix::errno::Errno;

use super::pd::Pd;
use super::qp::{self, Qp, QpSpec};
use crate::abi::numbers::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_SEND_FENCE, IBV_SEND_SIGNALED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
};
use crate::abi::requests::elements;
use crate::abi::verbs::{
    Atomic, Rdma, Target, ibv_ah, ibv_context, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp,
    ibv_qp_ex, ibv_qp_init_attr_ex, ibv_send_wr, ibv_sge,
};
use crate::entry::data_path::{always, returns};
use crate::entry::{Result, sets};
use crate::object::Object;

/// Operations that a queue pair can be created for. A Send with immediate data is refused when it
/// is posted, unless the peer is known to understand it.
const SUPPORTED: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV;

/// Flags of a request that needs no list.
const PLAIN: u32 = IBV_SEND_SIGNALED | IBV_SEND_FENCE;

/// The object of a handle that inline functions of the header pass.
fn living<'a>(qp: *mut ibv_qp_ex) -> Result<&'a Object<Qp>> {
    // SAFETY: the function was found by the handle.
    unsafe { Object::<Qp>::living(qp.cast()) }
}

/// Adds a Write or Read: the first of a batch here, a further one by [`add_further`].
#[inline]
fn add_first(qp: *mut ibv_qp_ex, opcode: u32, at: Rdma) {
    if let Ok(object) = living(qp) {
        let (wr_id, flags) = object.with_abi(|abi| (abi.wr_id, abi.wr_flags));
        let single = object.body().batch.single();
        if flags & !PLAIN != 0 || !single.reach_memory(wr_id, flags, opcode, at) {
            add_further(qp, at.rkey, at.remote_addr, opcode);
        }
    }
}

#[inline(never)]
extern "C" fn add_further(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, opcode: u32) {
    push(qp, opcode, |wr| to_memory(wr, rkey, remote_addr));
}

/// Adds a request with the name and the flags that the program has put into the struct.
fn push(qp: *mut ibv_qp_ex, opcode: u32, change: impl FnOnce(&mut ibv_send_wr)) {
    always((), || {
        let qp = living(qp)?;
        let (wr_id, flags) = qp.with_abi(|abi| (abi.wr_id, abi.wr_flags));
        qp.body().batch.push(|wr| {
            (wr.wr_id, wr.send_flags, wr.opcode) = (wr_id, flags, opcode);
            change(wr);
        });
        Ok(())
    });
}

fn to_memory(wr: &mut ibv_send_wr, rkey: u32, remote_addr: u64) {
    wr.wr = Target {
        rdma: Rdma { remote_addr, rkey },
    };
}

extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
) {
    let atomic = Atomic {
        remote_addr,
        compare_add,
        swap,
        rkey,
    };
    push(qp, IBV_WR_ATOMIC_CMP_AND_SWP, |wr| {
        wr.wr = Target { atomic }
    });
}

extern "C" fn wr_atomic_fetch_add(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
) {
    let atomic = Atomic {
        remote_addr,
        compare_add,
        swap: 0,
        rkey,
    };
    push(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, |wr| {
        wr.wr = Target { atomic }
    });
}

extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: Option<&ibv_mw_bind_info>,
) {
    push(qp, IBV_WR_BIND_MW, |wr| {
        (wr.mw, wr.bind_rkey) = (mw, rkey);
        if let Some(info) = info {
            wr.bind_info = *info;
        }
    });
}

extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    push(qp, IBV_WR_LOCAL_INV, |wr| wr.imm_data = rkey);
}

extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    add_first(qp, IBV_WR_RDMA_READ, Rdma { remote_addr, rkey });
}

extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    add_first(qp, IBV_WR_RDMA_WRITE, Rdma { remote_addr, rkey });
}

extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, data: u32) {
    push(qp, IBV_WR_RDMA_WRITE_WITH_IMM, |wr| {
        to_memory(wr, rkey, remote_addr);
        wr.imm_data = data;
    });
}

extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    if let Ok(object) = living(qp) {
        let (wr_id, flags) = object.with_abi(|abi| (abi.wr_id, abi.wr_flags));
        let single = object.body().batch.single();
        if flags & !PLAIN != 0 || !single.send(wr_id, flags, IBV_WR_SEND) {
            send_further(qp);
        }
    }
}

#[inline(never)]
extern "C" fn send_further(qp: *mut ibv_qp_ex) {
    push(qp, IBV_WR_SEND, |_wr| {});
}

extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    push(qp, IBV_WR_SEND_WITH_INV, |wr| wr.imm_data = rkey);
}

extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    if let Ok(object) = living(qp) {
        let single = object.body().batch.single();
        if !single.set_sge(ibv_sge { addr, length, lkey }) {
            set_further_sge(qp, lkey, addr, length);
        }
    }
}

#[inline(never)]
extern "C" fn set_further_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    always((), || {
        let sge = ibv_sge { addr, length, lkey };
        living(qp)?.body().batch.set_sge(sge);
        Ok(())
    });
}

extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, number: usize, list: *const ibv_sge) {
    always((), || {
        let batch = &living(qp)?.body().batch;
        // SAFETY: by its manual page, the list has that many elements.
        match unsafe { elements(list, number) } {
            Some(sges) => batch.set_sges(sges),
            None => batch.refuse(Errno::EINVAL),
        }
        Ok(())
    });
}

/// The program's bytes; none if there are none.
fn bytes<'a>(piece: ibv_data_buf) -> Result<&'a [u8]> {
    if piece.addr.is_null() || piece.length == 0 {
        return Ok(&[]);
    }
    let longest = u32::MAX as usize;
    if piece.length > longest {
        return Err(Errno::EINVAL);
    }
    // SAFETY: by its manual page, there are that many bytes, which the program does not change
    // before they are copied.
    Ok(unsafe { slice::from_raw_parts(piece.addr.cast(), piece.length) })
}

extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, start: *const c_void, length: usize) {
    always((), || {
        let addr = start.cast_mut();
        let pieces = [bytes(ibv_data_buf { addr, length })].into_iter();
        living(qp)?.body().batch.set_inline(pieces);
        Ok(())
    });
}

extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    number: usize,
    list: *const ibv_data_buf,
) {
    always((), || {
        let batch = &living(qp)?.body().batch;
        // SAFETY: by its manual page, the list has that many elements.
        match unsafe { elements(list, number) } {
            Some(list) => batch.set_inline(list.iter().map(|piece| bytes(piece.fields()))),
            None => batch.refuse(Errno::EINVAL),
        }
        Ok(())
    });
}

extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    always((), || {
        living(qp)?.body().batch.open();
        Ok(())
    });
}

extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    returns(|| {
        let qp = living(qp)?.body();
        qp.batch.post(qp.port())
    })
}

extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    always((), || {
        living(qp)?.body().batch.abort();
        Ok(())
    });
}

/// Refuses an operation that iWARP lacks, and with it the batch: `wr_complete` returns the error
/// number.
fn refuse(qp: *mut ibv_qp_ex) {
    always((), || {
        living(qp)?.body().batch.refuse(Errno::EOPNOTSUPP);
        Ok(())
    });
}

extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, data: u32) {
    push(qp, IBV_WR_SEND_WITH_IMM, |wr| wr.imm_data = data);
}

extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, _header: *const c_void, _length: u16, _mss: u16) {
    refuse(qp);
}

extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, _ah: *mut ibv_ah, _qpn: u32, _qkey: u32) {
    refuse(qp);
}

extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, _srqn: u32) {
    refuse(qp);
}

extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, _rkey: u32, _addr: u64, _data: *const c_void) {
    refuse(qp);
}

/// Sets all functions, whatever the program has asked for.
fn fill(abi: &mut ibv_qp_ex) {
    abi.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    abi.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    abi.wr_bind_mw = Some(wr_bind_mw);
    abi.wr_local_inv = Some(wr_local_inv);
    abi.wr_rdma_read = Some(wr_rdma_read);
    abi.wr_rdma_write = Some(wr_rdma_write);
    abi.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    abi.wr_send = Some(wr_send);
    abi.wr_send_inv = Some(wr_send_inv);
    abi.wr_send_imm = Some(wr_send_imm);
    abi.wr_send_tso = Some(wr_send_tso);
    abi.wr_set_ud_addr = Some(wr_set_ud_addr);
    abi.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    abi.wr_atomic_write = Some(wr_atomic_write);
    abi.wr_set_inline_data = Some(wr_set_inline_data);
    abi.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    abi.wr_set_sge = Some(wr_set_sge);
    abi.wr_set_sge_list = Some(wr_set_sge_list);
    abi.wr_start = Some(wr_start);
    abi.wr_complete = Some(wr_complete);
    abi.wr_abort = Some(wr_abort);
}

/// Makes a queue pair with attributes of later versions. It gets these functions if the attributes
/// name operations for them.
pub(crate) fn create(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    let known = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    let has = |flag| attr.comp_mask & flag != 0;
    let is_extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    let asks_for_more = is_extended && attr.send_ops_flags & !SUPPORTED != 0
        || has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0
        || has(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr.max_tso_header != 0;
    if attr.comp_mask & !known != 0 || asks_for_more {
        return Err(Errno::EOPNOTSUPP);
    }
    let pd = has(IBV_QP_INIT_ATTR_PD).then_some(attr.pd);
    Pd::find_of(context, pd.ok_or(Errno::EINVAL)?)?;
    let spec = QpSpec {
        pd: attr.pd,
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        cap: &mut attr.cap,
    };
    qp::create(spec, |abi| {
        if is_extended {
            fill(abi);
        }
    })
}

/// `ibv_create_qp_ex(3)`: sets errno.
pub(super) extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: Option<&mut ibv_qp_init_attr_ex>,
) -> *mut ibv_qp {
    sets(|| create(context, attr.ok_or(Errno::EINVAL)?))
}

/// `ibv_qp_to_qp_ex(3)`: null for a queue pair that was created without these functions.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    sets(|| {
        let is_extended = Object::<Qp>::find(qp)?.with_abi(|abi| abi.wr_start.is_some());
        is_extended.then_some(qp.cast()).ok_or(Errno::EOPNOTSUPP)
    })
}

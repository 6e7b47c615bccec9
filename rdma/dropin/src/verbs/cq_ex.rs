//! Completion queues that are polled one completion at a time, by one function for each field.

use std::ffi::c_int;
use std::slice;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;

use super::context::Context;
use super::cq::{self, Cq, Taken};
use super::pd::Pd;
use crate::abi::numbers::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_WC_EX_SUPPORTED,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
};
use crate::abi::verbs::{ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr};
use crate::entry::data_path::{always, returns};
use crate::entry::{Result, sets};
use crate::object::Object;

/// A flag by which programs promise that only one thread polls: accepted and ignored.
const SINGLE_THREADED: u32 = 1;

/// The object of a handle that inline functions of the header pass.
fn living<'a>(cq: *mut ibv_cq_ex) -> Result<&'a Object<Cq>> {
    // SAFETY: the function was found by the handle.
    unsafe { Object::<Cq>::living(cq.cast()) }
}

/// A field of the completion that was taken last.
fn read<T: Copy + Default>(cq: *mut ibv_cq_ex, what: impl FnOnce(&Taken) -> T) -> T {
    always(T::default(), || {
        let read = living(cq)?.body().current.with(|current| what(current));
        Ok(read.unwrap_or_default())
    })
}

/// Takes the next completion into `place`, with its time if that is requested; ENOENT if there is
/// none.
fn next<const TIMED: bool>(cq: &Object<Cq>, place: &mut Taken) -> Result<()> {
    let (port, completion) = (cq.body().port(), &mut place.completion);
    if TIMED {
        place.time = port.poll_timed(completion)?.ok_or(Errno::ENOENT)?;
    } else if port.poll(slice::from_mut(completion))? == 0 {
        return Err(Errno::ENOENT);
    }
    cq.with_abi(|abi| (abi.wr_id, abi.status) = (completion.wr_id, completion.status));
    Ok(())
}

/// Begins a poll; other threads wait until it ends. A poll that finds no completion ends at once.
extern "C" fn start_poll<const TIMED: bool>(
    cq: *mut ibv_cq_ex,
    attr: Option<&ibv_poll_cq_attr>,
) -> c_int {
    returns(|| {
        let Some(ibv_poll_cq_attr { comp_mask: 0 }) = attr else {
            return Err(Errno::EINVAL);
        };
        let cq = living(cq)?;
        let current = &cq.body().current;
        let taken = current.begin(|place| next::<TIMED>(cq, place));
        taken.inspect_err(|_nothing| {
            current.end(|_place| ());
        })
    })
}

extern "C" fn next_poll<const TIMED: bool>(cq: *mut ibv_cq_ex) -> c_int {
    returns(|| {
        let cq = living(cq)?;
        let taken = cq.body().current.with(|place| next::<TIMED>(cq, place));
        taken.unwrap_or(Err(Errno::EINVAL))
    })
}

extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    always((), || {
        living(cq)?.body().current.end(|_place| ());
        Ok(())
    });
}

/// Functions that read a field of the completion that was taken last.
macro_rules! reads {
    ($($name:ident: $type:ty = $field:ident,)*) => { $(
        extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            read(cq, |taken| taken.completion.$field.into())
        }
    )* };
}

reads! {
    read_opcode: u32 = opcode,
    read_vendor_err: u32 = vendor_err,
    read_byte_len: u32 = byte_len,
    read_imm_data: u32 = imm_data,
    read_qp_num: u32 = qp_num,
    read_src_qp: u32 = src_qp,
    read_wc_flags: u32 = wc_flags,
    read_slid: u32 = slid,
    read_sl: u8 = sl,
    read_dlid_path_bits: u8 = dlid_path_bits,
}

/// In nanoseconds by the NIC's clock; 0 for a completion that no frame has raised.
extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    read(cq, |taken| taken.time)
}

/// The time of the call, not of the completion: no device has stamped it.
extern "C" fn read_completion_wallclock_ns(_cq: *mut ibv_cq_ex) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

fn fill(abi: &mut ibv_cq_ex) {
    abi.start_poll = Some(start_poll::<false>);
    abi.next_poll = Some(next_poll::<false>);
    abi.end_poll = Some(end_poll);
    abi.read_opcode = Some(read_opcode);
    abi.read_vendor_err = Some(read_vendor_err);
    abi.read_byte_len = Some(read_byte_len);
    abi.read_imm_data = Some(read_imm_data);
    abi.read_qp_num = Some(read_qp_num);
    abi.read_src_qp = Some(read_src_qp);
    abi.read_wc_flags = Some(read_wc_flags);
    abi.read_slid = Some(read_slid);
    abi.read_sl = Some(read_sl);
    abi.read_dlid_path_bits = Some(read_dlid_path_bits);
    abi.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

fn fill_timed(abi: &mut ibv_cq_ex) {
    fill(abi);
    abi.start_poll = Some(start_poll::<true>);
    abi.next_poll = Some(next_poll::<true>);
    abi.read_completion_ts = Some(read_completion_ts);
}

/// Refuses times if completions have none.
fn check_times(context: *mut ibv_context) -> Result<()> {
    let context = Object::<Context>::find(context)?;
    if context.body().backend()?.has_times() {
        return Ok(());
    }
    log::warn!(
        "completions have no times, as they were not requested when the RNIC was opened: run the program by `xwarp run --timestamps`"
    );
    Err(Errno::EOPNOTSUPP)
}

/// Refuses a parent domain of another context. As all domains of a device are alike to completion
/// queues, nothing else is done with it.
fn check_domain(context: *mut ibv_context, attr: &ibv_cq_init_attr_ex) -> Result<()> {
    if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD == 0 {
        return Ok(());
    }
    Pd::find_of(context, attr.parent_domain).map(|_domain| ())
}

/// `ibv_create_cq_ex(3)`: sets errno.
pub(super) extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: Option<&mut ibv_cq_init_attr_ex>,
) -> *mut ibv_cq_ex {
    sets(|| {
        let attr = attr.ok_or(Errno::EINVAL)?;
        let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        let has_flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
        let flags = if has_flags { attr.flags } else { 0 };
        if attr.comp_mask & !known != 0
            || attr.wc_flags & !IBV_WC_EX_SUPPORTED != 0
            || flags & !SINGLE_THREADED != 0
        {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_vector != 0 {
            return Err(Errno::EINVAL);
        }
        check_domain(context, attr)?;
        let timed = attr.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP != 0;
        if timed {
            check_times(context)?;
        }
        let fill = if timed { fill_timed } else { fill };
        let made = cq::create(context, attr.cqe, attr.cq_context, attr.channel, fill)?;
        Ok(made.cast())
    })
}

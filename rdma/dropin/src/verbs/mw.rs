//! Memory windows of type 1, which `ibv_bind_mw` binds, and of type 2, which work requests bind.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;

use super::pd::Pd;
use super::qp::Qp;
use crate::abi::Zeroed;
use crate::abi::numbers::{IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV};
use crate::abi::requests::SendList;
use crate::abi::verbs::{ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp, ibv_send_wr};
use crate::backend;
use crate::entry::{Result, lock, returns, sets};
use crate::object::{Kind, Object, next_handle};

/// A memory window.
pub(crate) struct Mw {
    window: Arc<backend::Mw>,
    /// It is of type 1, and bound by `ibv_bind_mw`.
    is_bound: Mutex<bool>,
}

impl Kind for Mw {
    type Abi = ibv_mw;
    type C = ibv_mw;
    const NAME: &'static str = "ibv_mw";
    const TAG: u32 = 0x6d77_2031;
}

fn allocate(pd: *mut ibv_pd, kind: u32) -> Result<*mut ibv_mw> {
    if kind != IBV_MW_TYPE_1 && kind != IBV_MW_TYPE_2 {
        return Err(Errno::EINVAL);
    }
    let pd = Object::<Pd>::find(pd)?;
    let (window, rkey) = pd.body().domain().alloc_mw()?;
    let abi = ibv_mw {
        context: Object::handle(pd.body().context()),
        pd: Object::handle(&pd),
        rkey,
        handle: next_handle(),
        kind,
    };
    let is_bound = Mutex::new(false);
    Ok(Object::new(abi, Mw { window, is_bound }).publish())
}

/// The next key of the same window.
fn next_key(rkey: u32) -> u32 {
    let [high, middle, low, key] = rkey.to_be_bytes();
    u32::from_be_bytes([high, middle, low, key.wrapping_add(1)])
}

/// Binds a window of type 1 with a new key, or unbinds it if the length is 0. Its present binding
/// is invalidated first.
fn bind(qp: &Object<Qp>, mw: &Object<Mw>, wanted: &ibv_mw_bind) -> Result<()> {
    let mut is_bound = lock(&mw.body().is_bound);
    let (rkey, kind) = mw.with_abi(|abi| (abi.rkey, abi.kind));
    let unbinds = wanted.bind_info.length == 0;
    if kind != IBV_MW_TYPE_1 || unbinds && !*is_bound {
        return Err(Errno::EINVAL);
    }
    let [mut invalidate, mut bind] = requests(rkey, wanted);
    let first = if unbinds {
        (invalidate.wr_id, invalidate.send_flags) = (wanted.wr_id, wanted.send_flags);
        &raw const invalidate
    } else if *is_bound {
        invalidate.next = &raw mut bind;
        &raw const invalidate
    } else {
        &raw const bind
    };
    // SAFETY: both requests live until they are posted, and `bind_info` is the program's, by its
    // manual page.
    let list = unsafe { SendList::new(first) };
    let posted = qp.body().port().post_send(list);
    posted.map_err(|failure| failure.errno)?;
    *is_bound = !unbinds;
    if !unbinds {
        mw.with_abi(|abi| abi.rkey = next_key(rkey));
    }
    Ok(())
}

/// The requests that invalidate a window's binding, without a completion, and make another.
fn requests(rkey: u32, wanted: &ibv_mw_bind) -> [ibv_send_wr; 2] {
    let mut invalidate = ibv_send_wr::zeroed();
    (invalidate.opcode, invalidate.imm_data) = (IBV_WR_LOCAL_INV, rkey);
    let mut bind = ibv_send_wr::zeroed();
    (bind.wr_id, bind.send_flags) = (wanted.wr_id, wanted.send_flags);
    (bind.opcode, bind.bind_info) = (IBV_WR_BIND_MW, wanted.bind_info);
    bind.bind_rkey = next_key(rkey);
    [invalidate, bind]
}

/// `ibv_alloc_mw(3)`: sets errno.
pub(super) extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    sets(|| allocate(pd, kind))
}

/// `ibv_bind_mw(3)`: returns the error number.
pub(super) extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    wanted: Option<&ibv_mw_bind>,
) -> c_int {
    returns(|| {
        let (qp, mw) = (Object::<Qp>::find(qp)?, Object::<Mw>::find(mw)?);
        bind(&qp, &mw, wanted.ok_or(Errno::EINVAL)?)
    })
}

/// `ibv_dealloc_mw(3)`: returns the error number.
pub(super) extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    returns(|| {
        let mw = Object::<Mw>::find(mw)?;
        mw.body().window.dealloc()?;
        mw.destroy()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_key_stays_with_its_window() {
        assert_eq!(next_key(0x0001_02fe), 0x0001_02ff);
        assert_eq!(next_key(0x0001_02ff), 0x0001_0200);
    }
}

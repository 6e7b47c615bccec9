//! Memory regions: any memory of the program.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;

use super::pd::Pd;
use crate::abi::numbers::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
    IBV_ADVISE_MR_FLAG_FLUSH, IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD,
    IBV_REREG_MR_CHANGE_TRANSLATION,
};
use crate::abi::verbs::{ibv_mr, ibv_pd, ibv_sge};
use crate::backend::{self, Memory, Rights};
use crate::entry::{Result, lock, returns, sets};
use crate::object::{Kind, Object, next_handle};

/// Result of `ibv_rereg_mr` if the region is unchanged.
const REREG_REFUSED: c_int = -1;
/// Result of `ibv_rereg_mr` if the region is deregistered.
const REREG_LOST: c_int = -4;

/// A memory region.
pub(crate) struct Mr {
    region: Arc<backend::Mr>,
    state: Mutex<State>,
}

/// Attributes that `ibv_rereg_mr` may change.
#[derive(Clone)]
struct State {
    pd: Arc<Object<Pd>>,
    rights: Rights,
    /// Its Tagged Offsets begin at 0.
    is_zero_based: bool,
    /// A reregistration has failed and deregistered the region.
    is_lost: bool,
}

impl State {
    fn new(pd: Arc<Object<Pd>>, rights: Rights, is_zero_based: bool) -> Self {
        Self {
            pd,
            rights,
            is_zero_based,
            is_lost: false,
        }
    }
}

impl Kind for Mr {
    type Abi = ibv_mr;
    type C = ibv_mr;
    const NAME: &'static str = "ibv_mr";
    const TAG: u32 = 0x6d72_2031;
}

/// Rights by access flags. Flags that only make hardware faster have no effect here.
fn rights_of(flags: u32) -> Result<Rights> {
    const KNOWN: u32 = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC
        | IBV_ACCESS_MW_BIND
        | IBV_ACCESS_ZERO_BASED
        | IBV_ACCESS_HUGETLB
        | IBV_ACCESS_OPTIONAL_RANGE;
    if flags & IBV_ACCESS_ON_DEMAND != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let has = |flag| flags & flag != 0;
    let rights = Rights {
        local_write: has(IBV_ACCESS_LOCAL_WRITE),
        remote_read: has(IBV_ACCESS_REMOTE_READ),
        remote_write: has(IBV_ACCESS_REMOTE_WRITE),
        remote_atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
        bind_windows: has(IBV_ACCESS_MW_BIND),
    };
    let needs_local = rights.remote_write || rights.remote_atomic;
    if flags & !KNOWN != 0 || needs_local && !rights.local_write {
        return Err(Errno::EINVAL);
    }
    Ok(rights)
}

fn is_zero_based(flags: u32) -> bool {
    flags & IBV_ACCESS_ZERO_BASED != 0
}

/// Registers memory whose Tagged Offsets begin at `iova`.
pub(crate) fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
) -> Result<*mut ibv_mr> {
    let pd = Object::<Pd>::find(pd)?;
    let rights = rights_of(flags)?;
    let is_zero_based = is_zero_based(flags);
    let start = addr.addr() as u64;
    // Inline functions of the header pass the address where the program names no offset.
    if is_zero_based && ![0, start].contains(&iova) {
        return Err(Errno::EINVAL);
    }
    let memory = Memory {
        start: addr.expose_provenance(),
        len: length,
        offset: if is_zero_based { 0 } else { iova },
        read_only: !rights.local_write,
    };
    let (region, stag) = pd.body().domain().reg_mr(memory, rights)?;
    let abi = ibv_mr {
        context: Object::handle(pd.body().context()),
        pd: Object::handle(&pd),
        addr,
        length,
        handle: next_handle(),
        lkey: stag,
        rkey: stag,
    };
    let state = Mutex::new(State::new(pd, rights, is_zero_based));
    Ok(Object::new(abi, Mr { region, state }).publish())
}

/// Deregisters memory: when this returns, peers can no longer access it through the region.
pub(crate) fn deregister(mr: *mut ibv_mr) -> Result<()> {
    let mr = Object::<Mr>::find(mr)?;
    let is_lost = lock(&mr.body().state).is_lost;
    if !is_lost {
        mr.body().region.dereg()?;
    }
    mr.destroy()
}

/// Arguments of `ibv_rereg_mr`.
struct Change {
    flags: u32,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
}

impl Change {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The region's new state, and its new memory if it gets some.
    fn apply(&self, old: &State) -> Result<(State, Option<Memory>)> {
        const KNOWN: u32 =
            IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        if self.flags == 0 || self.flags & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let mut new = old.clone();
        if self.has(IBV_REREG_MR_CHANGE_PD) {
            new.pd = self.other_pd(old)?;
        }
        if self.has(IBV_REREG_MR_CHANGE_ACCESS) {
            new.rights = rights_of(self.access)?;
            new.is_zero_based = is_zero_based(self.access);
        }
        let is_moved = self.has(IBV_REREG_MR_CHANGE_TRANSLATION);
        if new.is_zero_based != old.is_zero_based && !is_moved {
            // The first Tagged Offset is part of the translation.
            return Err(Errno::EINVAL);
        }
        let memory = is_moved.then(|| self.memory(&new));
        Ok((new, memory))
    }

    /// The region's new domain, which is of the same context.
    fn other_pd(&self, old: &State) -> Result<Arc<Object<Pd>>> {
        let pd = Object::<Pd>::find(self.pd)?;
        let is_of_same = Arc::ptr_eq(pd.body().context(), old.pd.body().context());
        is_of_same.then_some(pd).ok_or(Errno::EINVAL)
    }

    /// The region's new memory.
    fn memory(&self, new: &State) -> Memory {
        let address = self.addr.addr() as u64;
        Memory {
            start: self.addr.expose_provenance(),
            len: self.length,
            offset: if new.is_zero_based { 0 } else { address },
            read_only: !new.rights.local_write,
        }
    }
}

/// Reregisters a region. An error comes with the number that C returns for it.
fn reregister(mr: *mut ibv_mr, change: &Change) -> std::result::Result<(), (c_int, Errno)> {
    let refused = |errno| (REREG_REFUSED, errno);
    let mr = Object::<Mr>::find(mr).map_err(refused)?;
    let mut state = lock(&mr.body().state);
    let (new, memory) = change.apply(&state).map_err(refused)?;
    let pd = new.pd.body().domain();
    let made = mr.body().region.reregister(pd, memory, new.rights);
    let stag = made.map_err(|failure| {
        state.is_lost |= failure.is_lost;
        let number = if failure.is_lost {
            REREG_LOST
        } else {
            REREG_REFUSED
        };
        (number, failure.errno)
    })?;
    mr.with_abi(|abi| {
        (abi.lkey, abi.rkey, abi.pd) = (stag, stag, Object::handle(&new.pd));
        if memory.is_some() {
            (abi.addr, abi.length) = (change.addr, change.length);
        }
    });
    *state = new;
    Ok(())
}

/// `ibv_reg_mr(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    sets(|| register(pd, addr, length, addr.addr() as u64, access.cast_unsigned()))
}

/// `ibv_reg_mr_iova(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    sets(|| register(pd, addr, length, iova, access.cast_unsigned()))
}

/// Called by inline functions of the header for `ibv_reg_mr(3)` and `ibv_reg_mr_iova(3)`: sets
/// errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    sets(|| register(pd, addr, length, iova, access))
}

/// `ibv_rereg_mr(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let change = Change {
        flags: flags.cast_unsigned(),
        pd,
        addr,
        length,
        access: access.cast_unsigned(),
    };
    let mut failed = REREG_REFUSED;
    let done: c_int = sets(|| {
        reregister(mr, &change).map_err(|(number, errno)| {
            failed = number;
            errno
        })?;
        Ok(0)
    });
    if done == 0 { 0 } else { failed }
}

/// `ibv_dereg_mr(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    returns(|| deregister(mr))
}

/// `ibv_advise_mr(3)`: nothing is to be prefetched, as all memory of a region is present.
pub(super) extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    _list: *mut ibv_sge,
    _number: u32,
) -> c_int {
    returns(|| {
        Object::<Pd>::find(pd)?;
        if advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
            return Err(Errno::ENOTSUP);
        }
        let is_known = flags & !IBV_ADVISE_MR_FLAG_FLUSH == 0;
        is_known.then_some(()).ok_or(Errno::EINVAL)
    })
}

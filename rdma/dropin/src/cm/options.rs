//! Options of identifiers, and functions that iWARP lacks: multicast, and vendors' connection
//! options.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::sockaddr;
use nix::errno::Errno;

use super::id::{CmId, Phase, State};
use super::numbers::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS,
};
use crate::abi::cm::rdma_cm_id;
use crate::abi::verbs::ibv_ece;
use crate::entry::{Result, sets_status};
use crate::object::Object;

/// The value of an option, whose size must be right.
fn value_of<T: Copy>(value: *const c_void, len: usize) -> Result<T> {
    if value.is_null() || len != size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: by its manual page, that many bytes are there, and options are integers.
    Ok(unsafe { ptr::read_unaligned(value.cast::<T>()) })
}

/// Sets an option, or refuses it as the kernel does an unknown one. TCP has its own timeout of
/// acknowledgments, and packets have the default type of service.
fn set(
    id: *mut rdma_cm_id,
    option: (c_int, c_int),
    value: *const c_void,
    len: usize,
) -> Result<()> {
    let id = Object::<CmId>::find(id)?;
    let mut state = id.body().living()?;
    match option {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => match value_of::<u8>(value, len)? {
            0 => Ok(()),
            _ => Err(Errno::ENOSYS),
        },
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
            let reusable = value_of::<c_int>(value, len)? != 0;
            set_reusable(&mut state, reusable)
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
            let one_family = value_of::<c_int>(value, len)? != 0;
            if state.phase != Phase::New && one_family != state.one_family {
                return Err(Errno::EINVAL);
            }
            state.one_family = one_family;
            Ok(())
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// Sets whether other identifiers may bind to the port. A port that was bound as reusable stays so.
fn set_reusable(state: &mut State, reusable: bool) -> Result<()> {
    let is_bound = matches!(state.phase, Phase::Bound | Phase::Resolved | Phase::Routed);
    let is_early = state.phase == Phase::New || is_bound && (reusable || !state.reusable);
    if !is_early {
        return Err(Errno::EINVAL);
    }
    if reusable {
        for port in &state.ports {
            port.port.make_reusable()?;
        }
    }
    state.reusable = reusable;
    Ok(())
}

/// `rdma_set_option(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    sets_status(|| set(id, (level, name), value, len))
}

/// A function without a meaning in iWARP: sets errno.
fn refused(id: *mut rdma_cm_id, errno: Errno) -> c_int {
    sets_status(|| {
        Object::<CmId>::find(id)?;
        Err(errno)
    })
}

/// `rdma_join_multicast(3)`: not supported.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    _address: *const sockaddr,
    _context: *mut c_void,
) -> c_int {
    refused(id, Errno::EOPNOTSUPP)
}

/// `rdma_join_multicast_ex(3)`: not supported.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    _attr: *const c_void,
    _context: *mut c_void,
) -> c_int {
    refused(id, Errno::EOPNOTSUPP)
}

/// `rdma_leave_multicast(3)`: not supported.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, _address: *const sockaddr) -> c_int {
    refused(id, Errno::EOPNOTSUPP)
}

/// `rdma_set_local_ece(3)`: not supported.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, _ece: *const ibv_ece) -> c_int {
    refused(id, Errno::ENOSYS)
}

/// `rdma_get_remote_ece(3)`: not supported.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int {
    refused(id, Errno::ENOSYS)
}

/// Rejects with options of a vendor: not supported.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_reject_ece(id: *mut rdma_cm_id, _data: *const c_void, _len: u8) -> c_int {
    refused(id, Errno::ENOSYS)
}

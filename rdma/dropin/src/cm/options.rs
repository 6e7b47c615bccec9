//! Options of identifiers; and what iWARP has not: multicast, and options of vendors' connections.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::sockaddr;
use nix::errno::Errno;

use super::id::CmId;
use super::numbers::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS,
};
use crate::abi::cm::rdma_cm_id;
use crate::abi::verbs::ibv_ece;
use crate::entry::{Result, sets_status};
use crate::object::Object;

/// Sets an option. The type of service and the timeout of acknowledgments are the host's and TCP's: these are accepted and mean nothing. A port
/// can always be listened on again.
fn set(
    id: *mut rdma_cm_id,
    option: (c_int, c_int),
    value: *const c_void,
    len: usize,
) -> Result<()> {
    let id = Object::<CmId>::find(id)?;
    match option {
        (
            RDMA_OPTION_ID,
            RDMA_OPTION_ID_TOS | RDMA_OPTION_ID_ACK_TIMEOUT | RDMA_OPTION_ID_REUSEADDR,
        ) => Ok(()),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
            if value.is_null() || len != size_of::<c_int>() {
                return Err(Errno::EINVAL);
            }
            // SAFETY: by its manual page, so many bytes are there.
            let only = unsafe { ptr::read_unaligned(value.cast::<c_int>()) };
            id.body().state().one_family = only != 0;
            Ok(())
        }
        _ => Err(Errno::ENOSYS),
    }
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

/// A function that iWARP has no meaning for: sets errno.
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

//! Addresses of names: the results of the C library's getaddrinfo, in the connection manager's
//! struct.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::slice;

use libc::{addrinfo, sockaddr};
use nix::errno::Errno;

use super::address;
use super::numbers::{RAI_FAMILY, RAI_NOROUTE, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP};
use crate::abi::Zeroed;
use crate::abi::cm::rdma_addrinfo;
use crate::abi::numbers::IBV_QPT_RC;
use crate::entry::{Result, always, lock, sets};
use crate::object::{Kind, Object};

/// A result that a program has: it owns the addresses that the struct points to.
struct Info {
    addresses: std::sync::Mutex<Vec<Box<[u64]>>>,
}

impl Kind for Info {
    type Abi = rdma_addrinfo;
    type C = rdma_addrinfo;
    const NAME: &'static str = "rdma_addrinfo";
    const TAG: u32 = 0x6169_6e31;
}

/// A copy of an address, aligned as any address has to be.
fn copy(from: *const sockaddr, len: u32) -> Box<[u64]> {
    let len = len as usize;
    // SAFETY: the caller, or the C library, says that the address has that many bytes.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), len) };
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        let pairs = word.iter_mut().zip(chunk);
        pairs.for_each(|(into, from)| *into = *from);
        u64::from_ne_bytes(word)
    });
    words.collect()
}

/// A result that is being built.
struct Building {
    abi: rdma_addrinfo,
    addresses: Vec<Box<[u64]>>,
}

impl Building {
    fn new(hints: Option<&rdma_addrinfo>) -> Self {
        let mut abi = rdma_addrinfo::zeroed();
        if let Some(hints) = hints {
            (abi.ai_flags, abi.ai_family) = (hints.ai_flags, hints.ai_family);
            (abi.ai_qp_type, abi.ai_port_space) = (hints.ai_qp_type, hints.ai_port_space);
        }
        if abi.ai_port_space == 0 {
            abi.ai_port_space = RDMA_PS_TCP.cast_signed();
        }
        if abi.ai_qp_type == 0 {
            abi.ai_qp_type = IBV_QPT_RC.cast_signed();
        }
        Self {
            abi,
            addresses: Vec::new(),
        }
    }

    fn keep(&mut self, from: *const sockaddr, len: u32) -> *mut sockaddr {
        let copy = copy(from, len);
        let address = copy.as_ptr().cast_mut().cast();
        self.addresses.push(copy);
        address
    }

    fn set_source(&mut self, from: *const sockaddr, len: u32) {
        (self.abi.ai_src_addr, self.abi.ai_src_len) = (self.keep(from, len), len);
    }

    fn set_destination(&mut self, from: *const sockaddr, len: u32) {
        (self.abi.ai_dst_addr, self.abi.ai_dst_len) = (self.keep(from, len), len);
    }

    /// Adds a result of the C library.
    fn found(&mut self, found: &addrinfo) {
        self.abi.ai_family = found.ai_family;
        if self.abi.ai_flags & RAI_PASSIVE != 0 {
            self.set_source(found.ai_addr, found.ai_addrlen);
        } else {
            self.set_destination(found.ai_addr, found.ai_addrlen);
        }
    }

    /// Addresses of the hints, where none was found. EINVAL if one is shorter than its family has
    /// it.
    fn complete(&mut self, hints: Option<&rdma_addrinfo>) -> Result<()> {
        let Some(hints) = hints else {
            return Ok(());
        };
        if self.abi.ai_src_len == 0 && hints.ai_src_len > 0 && !hints.ai_src_addr.is_null() {
            address::check_length(hints.ai_src_addr, hints.ai_src_len)?;
            self.set_source(hints.ai_src_addr, hints.ai_src_len);
        }
        if self.abi.ai_dst_len == 0 && hints.ai_dst_len > 0 && !hints.ai_dst_addr.is_null() {
            address::check_length(hints.ai_dst_addr, hints.ai_dst_len)?;
            self.set_destination(hints.ai_dst_addr, hints.ai_dst_len);
        }
        Ok(())
    }

    fn publish(self) -> *mut rdma_addrinfo {
        let addresses = std::sync::Mutex::new(self.addresses);
        let info = Info { addresses };
        Object::new(self.abi, info).publish()
    }
}

/// Calls the C library's getaddrinfo. Fails with its error code.
fn look_up(
    node: *const c_char,
    service: *const c_char,
    building: &mut Building,
) -> std::result::Result<(), c_int> {
    // SAFETY: hints of zeros ask for anything.
    let mut hints: addrinfo = unsafe { std::mem::zeroed() };
    let flags = building.abi.ai_flags;
    if flags & RAI_PASSIVE != 0 {
        hints.ai_flags |= libc::AI_PASSIVE;
    }
    if flags & RAI_NUMERICHOST != 0 {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    if flags & RAI_FAMILY != 0 {
        hints.ai_family = building.abi.ai_family;
    }
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = ptr::null_mut();
    // SAFETY: the names are null or end in zero, by the manual page, and the other pointers are
    // ours.
    let failed = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) };
    if failed != 0 {
        return Err(failed);
    }
    // SAFETY: the C library has made a list of at least one.
    building.found(unsafe { &*list });
    // SAFETY: it has made the list.
    unsafe { libc::freeaddrinfo(list) };
    Ok(())
}

/// Flags of hints. Finding a route takes no time, so it is never skipped.
const KNOWN_FLAGS: i32 = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY;

/// `rdma_getaddrinfo(3)`: returns a code of getaddrinfo, or sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    info: Option<&mut *mut rdma_addrinfo>,
) -> c_int {
    sets(|| {
        let place = info.ok_or(Errno::EINVAL)?;
        if node.is_null() && service.is_null() && hints.is_none() {
            return Err(Errno::EINVAL);
        }
        if hints.is_some_and(|hints| hints.ai_flags & !KNOWN_FLAGS != 0) {
            return Ok(libc::EAI_BADFLAGS);
        }
        let mut building = Building::new(hints);
        if !(node.is_null() && service.is_null())
            && let Err(code) = look_up(node, service, &mut building)
        {
            return Ok(code);
        }
        building.complete(hints)?;
        *place = building.publish();
        Ok(0)
    })
}

/// Frees a result of `rdma_getaddrinfo(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) {
    always((), || free(info));
}

fn free(info: *mut rdma_addrinfo) -> Result<()> {
    let info = Object::<Info>::find(info)?;
    // Its addresses are freed at once, not with the object's memory.
    lock(&info.body().addresses).clear();
    info.destroy()
}

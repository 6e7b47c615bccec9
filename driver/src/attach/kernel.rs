//! The system calls behind attaching, made through libbpf itself. libbpf-rs has no mode for a link,
//! no errno in its errors and no way to detach one certain program only.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::query::LinkInfoIter;
use nix::errno::Errno;
use nix::net::if_::if_indextoname;

use super::mode::XdpMode;

/// The program on an interface.
pub(super) struct Running {
    pub(super) program_id: u32,
    pub(super) mode: XdpMode,
}

/// The program on the interface.
pub(super) fn query(ifindex: u32) -> Result<Option<Running>, Errno> {
    let mut answer = sys::bpf_xdp_query_opts {
        sz: size_of_opts::<sys::bpf_xdp_query_opts>(),
        ..Default::default()
    };
    let ifindex = index(ifindex)?;
    // SAFETY: `answer` is a live structure of the size that it states, and only filled in.
    let ret = unsafe { sys::bpf_xdp_query(ifindex, 0, &raw mut answer) };
    checked(ret)?;
    // A program in the NIC itself cannot be xwarp's; native is the nearest mode.
    let native = [answer.drv_prog_id, answer.hw_prog_id]
        .into_iter()
        .find(|&id| id != 0);
    Ok(match (native, answer.skb_prog_id) {
        (Some(program_id), _) => Some(Running {
            program_id,
            mode: XdpMode::Native,
        }),
        (None, 0) => None,
        (None, program_id) => Some(Running {
            program_id,
            mode: XdpMode::Generic,
        }),
    })
}

/// Attaches until the returned link is closed.
pub(super) fn link(program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> Result<OwnedFd, Errno> {
    let options = sys::bpf_link_create_opts {
        sz: size_of_opts::<sys::bpf_link_create_opts>(),
        flags: flag(mode),
        ..Default::default()
    };
    let (program, ifindex) = (program.as_raw_fd(), index(ifindex)?);
    // SAFETY: `options` is a live structure of the size that it states, and only read.
    let ret = unsafe { sys::bpf_link_create(program, ifindex, sys::BPF_XDP, &raw const options) };
    let link = checked(ret)?;
    // SAFETY: the call succeeded, so `link` is a new descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Detaches the program of a link, which another process may hold, too.
pub(super) fn detach_link(link: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the call has no memory of ours.
    let ret = unsafe { sys::bpf_link_detach(link.as_raw_fd()) };
    checked(ret).map(drop)
}

/// Attaches permanently, unless there is a program.
pub(super) fn attach(program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> Result<(), Errno> {
    let flags = flag(mode) | sys::XDP_FLAGS_UPDATE_IF_NOEXIST;
    let (program, ifindex) = (program.as_raw_fd(), index(ifindex)?);
    // SAFETY: libbpf takes a null pointer for no options.
    let ret = unsafe { sys::bpf_xdp_attach(ifindex, program, flags, std::ptr::null()) };
    checked(ret).map(drop)
}

/// Detaches `program`, but not another one that has replaced it.
pub(super) fn detach(program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> Result<(), Errno> {
    let options = sys::bpf_xdp_attach_opts {
        sz: size_of_opts::<sys::bpf_xdp_attach_opts>(),
        old_prog_fd: program.as_raw_fd(),
        ..Default::default()
    };
    let ifindex = index(ifindex)?;
    // SAFETY: `options` is a live structure of the size that it states, and only read.
    let ret = unsafe { sys::bpf_xdp_detach(ifindex, flag(mode), &raw const options) };
    checked(ret).map(drop)
}

/// Whether the program ends with the process that attached it.
pub(super) fn held_by_link(program_id: u32) -> bool {
    LinkInfoIter::default().any(|link| link.prog_id == program_id)
}

/// The interface's name for error texts. nix answers an unknown index with an empty name.
pub(super) fn interface_name(ifindex: u32) -> String {
    let name = if_indextoname(ifindex).unwrap_or_default();
    match name.to_str() {
        Ok("") | Err(_) => format!("with index {ifindex}"),
        Ok(name) => name.to_owned(),
    }
}

fn flag(mode: XdpMode) -> u32 {
    match mode {
        XdpMode::Native => sys::XDP_FLAGS_DRV_MODE,
        XdpMode::Generic => sys::XDP_FLAGS_SKB_MODE,
    }
}

fn size_of_opts<T>() -> sys::size_t {
    size_of::<T>() as sys::size_t
}

/// libbpf counts interfaces in signed integers.
fn index(ifindex: u32) -> Result<i32, Errno> {
    i32::try_from(ifindex).map_err(|_| Errno::ENODEV)
}

/// libbpf returns the negative error number.
fn checked(ret: i32) -> Result<i32, Errno> {
    if ret < 0 {
        Err(Errno::from_raw(-ret))
    } else {
        Ok(ret)
    }
}

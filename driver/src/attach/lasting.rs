//! A program that stays on its interface after the process that attached it has ended.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::Program;
use xwarp_bpf::Buffers;

use super::error::AttachError;
use super::fallback::{self, Purpose};
use super::interface::Interface;
use super::kernel;
use super::mode::XdpMode;
use super::users::users;

/// Attaches xwarp's program so that it outlives the process, and returns its mode.
///
/// `mode` None tries native and then generic mode. `frames` are those of the interface's MTU.
pub(crate) fn attach_permanently(
    ifindex: u32,
    ifname: &str,
    mode: Option<XdpMode>,
    frames: Buffers,
) -> Result<XdpMode, AttachError> {
    let interface = Interface::new(ifindex, ifname);
    if let Some((found, _)) = interface.our_program()? {
        return Err(AttachError::AlreadyAttached(interface.ifname, found.mode));
    }
    let purpose = Purpose {
        frames,
        describes: false,
    };
    let attached = fallback::attach(mode, purpose, interface.ifindex, |program, mode| {
        let attached = kernel::attach(program, interface.ifindex, mode);
        attached.map_err(|errno| interface.refused(mode, errno))
    })?;
    Ok(attached.mode)
}

/// xwarp's program on an interface, attached permanently.
pub(crate) struct Lasting {
    interface: Interface,
    program: OwnedFd,
    mode: XdpMode,
}

impl Lasting {
    /// The program that is attached now.
    pub(crate) fn find(ifindex: u32, ifname: &str) -> Result<Self, AttachError> {
        let interface = Interface::new(ifindex, ifname);
        let not_attached = || AttachError::NotAttached(ifname.to_owned());
        let (found, _) = interface.our_program()?.ok_or_else(not_attached)?;
        if kernel::held_by_link(found.program_id) {
            let holders = users(ifindex, found.program_id);
            return Err(AttachError::HeldByProcess(interface.ifname, holders));
        }
        let program = Program::fd_from_id(found.program_id).map_err(|_gone| not_attached())?;
        Ok(Self {
            interface,
            program,
            mode: found.mode,
        })
    }

    /// Detaches the program, but not another one that has replaced it.
    pub(crate) fn detach(self) -> Result<(), AttachError> {
        let detached = kernel::detach(self.program.as_fd(), self.interface.ifindex, self.mode);
        detached.map_err(|errno| self.interface.refused(self.mode, errno))
    }
}

//! Permanent XDP program of an interface: attaching and detaching it.
//!
//! Neither the program's maps nor its flows show whether a process uses it, as a killed process
//! leaves both behind. So detaching binds every queue first, and keeps them until the program is
//! off.

use super::error::NicError;
use super::probe::claim;
use crate::attach::{self, Lasting, XdpMode};
use crate::net::Interface;

/// Attaches xwarp's program to an interface permanently, and returns its mode. `mode` `None` tries
/// native and then generic mode.
///
/// # Errors
///
/// - [`NicError::Loopback`], [`NicError::NoEthernet`]: it is the loopback interface, or a tunnel.
/// - [`NicError::Attach`]: a program is there already, or the kernel refuses this one.
pub fn attach_permanently(
    interface: &Interface,
    mode: Option<XdpMode>,
) -> Result<XdpMode, NicError> {
    interface.check_frames()?;
    let (index, name, frames) = (interface.index, &interface.name, interface.frames());
    let mode = attach::for_kind(interface.kind.as_deref(), name, mode)?;
    Ok(attach::attach_permanently(index, name, mode, frames)?)
}

/// Detaches xwarp's program from an interface, if it was attached permanently. Without `force`,
/// fails while a process uses it.
///
/// # Errors
///
/// - [`NicError::InUse`]: a process uses the program, and `force` is not set.
/// - [`NicError::Attach`]: there is no program of ours, it is not attached to stay, or the kernel
///   refuses.
/// - [`NicError::Umem`], [`NicError::Queue`]: the check whether a process uses it failed.
pub fn detach(interface: &Interface, force: bool) -> Result<(), NicError> {
    let program = Lasting::find(interface.index, &interface.name)?;
    // Held until the end, so that no process begins to use the program.
    let _claim = if force { Vec::new() } else { claim(interface)? };
    Ok(program.detach()?)
}

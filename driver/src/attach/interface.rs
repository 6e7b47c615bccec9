//! An interface for attaching: the program on it, and the meaning of the kernel's errors.

use nix::errno::Errno;
use xwarp_bpf::{Maps, libbpf_to_log, program_name};

use super::error::AttachError;
use super::kernel::{self, Running};
use super::mode::XdpMode;

/// An interface, with its name for the error texts.
pub(super) struct Interface {
    pub(super) ifindex: u32,
    pub(super) ifname: String,
}

impl Interface {
    pub(super) fn new(ifindex: u32, ifname: &str) -> Self {
        libbpf_to_log();
        Self {
            ifindex,
            ifname: ifname.to_owned(),
        }
    }

    pub(super) fn program(&self) -> Result<Option<Running>, AttachError> {
        kernel::query(self.ifindex).map_err(|errno| self.failed(errno))
    }

    /// xwarp's program with its maps, or `None` if there is no program at all.
    pub(super) fn our_program(&self) -> Result<Option<(Running, Maps)>, AttachError> {
        let Some(running) = self.program()? else {
            return Ok(None);
        };
        let Running { program_id, mode } = running;
        if let Some(maps) = Maps::of_program(program_id)? {
            return Ok(Some((running, maps)));
        }
        let (ifname, name) = (self.ifname.clone(), name_of_program(program_id)?);
        Err(AttachError::Foreign {
            ifname,
            program_id,
            name,
            mode,
        })
    }

    /// Error for the kernel's refusal to attach or detach in this mode.
    pub(super) fn refused(&self, mode: XdpMode, errno: Errno) -> AttachError {
        use Errno::{EBUSY, EEXIST, EINVAL, ENOSPC, EOPNOTSUPP, ERANGE};
        let ifname = self.ifname.clone();
        match (mode, errno) {
            (_, EEXIST) if matches!(self.program(), Ok(None)) => AttachError::Beneath(ifname),
            (_, EBUSY | EEXIST) => AttachError::Taken(ifname),
            (XdpMode::Native, ERANGE) => AttachError::MtuTooLarge(ifname),
            (XdpMode::Native, EINVAL | ENOSPC | EOPNOTSUPP) => {
                AttachError::NoNative(ifname, errno.into())
            }
            _ => self.failed(errno),
        }
    }

    pub(super) fn failed(&self, errno: Errno) -> AttachError {
        let ifname = self.ifname.clone();
        match errno {
            Errno::EPERM | Errno::EACCES => AttachError::not_privileged(),
            Errno::ENODEV | Errno::ENXIO => AttachError::NoInterface(ifname),
            _ => AttachError::Kernel(ifname, errno.into()),
        }
    }
}

pub(super) fn name_of_program(program_id: u32) -> Result<String, AttachError> {
    Ok(program_name(program_id)?.unwrap_or_else(|| "?".to_owned()))
}

//! The program on an interface, in use by this process (decision record driver/0001).

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use xwarp_bpf::{Buffers, Maps};

use super::error::AttachError;
use super::fallback::{self, Purpose};
use super::interface::Interface;
use super::kernel::{self, Running};
use super::mode::XdpMode;
use super::users::users;

/// How long a process that is ending may take until its program is gone from the interface.
const LINK_TIMEOUT: Duration = Duration::from_secs(1);
const LINK_PAUSE: Duration = Duration::from_millis(5);

/// Our program on an interface, with its maps. Dropping it detaches what [`Attachment::open`]
/// attached and leaves what it found.
#[derive(Debug)]
pub struct Attachment {
    maps: Maps,
    mode: XdpMode,
    program_id: u32,
    describes: bool,
    native_refusal: Option<AttachError>,
    /// The kernel detaches the program when this is closed. None if the program was found.
    link: Option<OwnedFd>,
}

impl Attachment {
    /// Uses our program if it is on the interface already, else attaches it for as long as the
    /// value lives.
    ///
    /// `wanted` None takes the mode that is there, or tries native and then generic mode: see
    /// [`Attachment::mode`] for which it was. With Some, any other mode is an error. `frames` are
    /// those of the interface's MTU. With `describes`, the program is to write receive metadata;
    /// see [`Attachment::describes`] for whether it does.
    ///
    /// # Errors
    ///
    /// - [`AttachError::OtherMode`]: our program runs there in another mode than `wanted`.
    /// - [`AttachError::HeldByProcess`]: it goes with a process that has it.
    /// - [`AttachError::Foreign`], [`AttachError::Taken`]: a program that is not ours runs there,
    ///   or came at the same moment.
    /// - [`AttachError::Beneath`]: an interface above this one has a program.
    /// - [`AttachError::MtuTooLarge`], [`AttachError::NoNative`]: the driver refuses native mode,
    ///   which was asked for.
    /// - [`AttachError::NotPrivileged`], [`AttachError::UserNamespace`],
    ///   [`AttachError::NoInterface`]: the process lacks capabilities, or the interface is gone.
    /// - [`AttachError::Program`], [`AttachError::Kernel`]: the program, its maps or the kernel's
    ///   answer are at fault.
    pub fn open(
        ifindex: u32,
        ifname: &str,
        wanted: Option<XdpMode>,
        frames: Buffers,
        describes: bool,
    ) -> Result<Self, AttachError> {
        let interface = Interface::new(ifindex, ifname);
        let Some((running, maps)) = lasting_program(&interface)? else {
            return Self::attach(&interface, wanted, Purpose { frames, describes });
        };
        let (ifname, found) = (interface.ifname, running.mode);
        if let Some(wanted) = wanted.filter(|&wanted| wanted != found) {
            let mismatch = AttachError::OtherMode {
                ifname,
                wanted,
                found,
            };
            return Err(mismatch);
        }
        Ok(Self {
            maps,
            mode: found,
            program_id: running.program_id,
            describes: false,
            native_refusal: None,
            link: None,
        })
    }

    fn attach(
        interface: &Interface,
        wanted: Option<XdpMode>,
        purpose: Purpose,
    ) -> Result<Self, AttachError> {
        let attached = fallback::attach(wanted, purpose, interface.ifindex, |program, mode| {
            let link = kernel::link(program, interface.ifindex, mode);
            link.map_err(|errno| interface.refused(mode, errno))
        })?;
        let gone = || AttachError::Taken(interface.ifname.clone());
        let running = interface.program()?.ok_or_else(gone)?;
        Ok(Self {
            maps: attached.steering.maps()?,
            mode: attached.mode,
            program_id: running.program_id,
            describes: attached.describes,
            native_refusal: attached.native_refusal,
            link: Some(attached.link),
        })
    }

    /// The controls of the program.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Where the program really runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The program's id.
    pub fn program_id(&self) -> u32 {
        self.program_id
    }

    /// Why the program runs in generic mode, if native mode was tried first.
    pub fn native_refusal(&self) -> Option<&AttachError> {
        self.native_refusal.as_ref()
    }

    /// Whether the program writes receive metadata. One that was found writes none.
    pub fn describes(&self) -> bool {
        self.describes
    }

    /// Whether the program was there before, and so stays.
    pub fn found(&self) -> bool {
        self.link.is_none()
    }
}

impl Drop for Attachment {
    /// Closing the link would not do: a child that was forked without handlers may hold it, too.
    fn drop(&mut self) {
        let Some(link) = &self.link else {
            return;
        };
        match kernel::detach_link(link.as_fd()) {
            // ENODEV or ENOLINK: the interface has gone, and the program with it.
            Ok(()) | Err(Errno::ENODEV | Errno::ENOLINK) => {}
            Err(errno) => log::debug!("the XDP program goes when its link is closed: {errno}"),
        }
    }
}

/// Our program, if it stays: one that another process attached for itself goes with that process,
/// which may be ending now.
fn lasting_program(interface: &Interface) -> Result<Option<(Running, Maps)>, AttachError> {
    let deadline = Instant::now() + LINK_TIMEOUT;
    loop {
        match interface.our_program()? {
            Some((running, _)) if kernel::held_by_link(running.program_id) => {
                if Instant::now() >= deadline {
                    let holders = users(interface.ifindex, running.program_id);
                    return Err(AttachError::HeldByProcess(
                        interface.ifname.clone(),
                        holders,
                    ));
                }
                std::thread::sleep(LINK_PAUSE);
            }
            found => return Ok(found),
        }
    }
}

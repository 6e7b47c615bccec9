//! Attachment: the XDP program on an interface, in use by this process (decision record
//! driver/0001).

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

/// Longest time until the program of an ending process is gone from the interface.
const LINK_TIMEOUT: Duration = Duration::from_secs(1);
const LINK_PAUSE: Duration = Duration::from_millis(5);

/// xwarp's program on an interface, with its maps. Dropping it detaches the program if
/// [`Attachment::open`] attached it, and leaves a program that it found.
#[derive(Debug)]
pub struct Attachment {
    maps: Maps,
    mode: XdpMode,
    program_id: u32,
    describes: bool,
    native_refusal: Option<AttachError>,
    /// The kernel detaches the program when this is closed. `None` if the program was found.
    link: Option<OwnedFd>,
}

impl Attachment {
    /// Uses xwarp's program if it is on the interface already; otherwise attaches it for the
    /// lifetime of the value.
    ///
    /// `wanted`: with `None`, takes the mode of the attached program, or tries native and then
    /// generic mode; [`Attachment::mode`] returns the result. With `Some`, any other mode is an
    /// error. `frames`: buffers of a frame at the interface's MTU. `describes`: the program shall
    /// write receive metadata; [`Attachment::describes`] returns whether it does.
    ///
    /// # Errors
    ///
    /// - [`AttachError::OtherMode`]: xwarp's program runs there in another mode than `wanted`.
    /// - [`AttachError::HeldByProcess`]: the program ends with another process that holds it.
    /// - [`AttachError::Foreign`], [`AttachError::Taken`]: a foreign program runs there, or was
    ///   attached at the same moment.
    /// - [`AttachError::Beneath`]: an interface above this one has a program.
    /// - [`AttachError::MtuTooLarge`], [`AttachError::NoNative`]: the driver refuses native mode,
    ///   which was requested.
    /// - [`AttachError::NotPrivileged`], [`AttachError::UserNamespace`],
    ///   [`AttachError::NoInterface`]: the process lacks capabilities, or the interface is gone.
    /// - [`AttachError::Program`], [`AttachError::Kernel`]: the program or its maps are unusable,
    ///   or the kernel refuses.
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

    /// Maps of the program.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Mode in which the program runs.
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

    /// Whether the program writes receive metadata. A found program writes none.
    pub fn describes(&self) -> bool {
        self.describes
    }

    /// Whether the program was attached before, and so stays attached.
    pub fn found(&self) -> bool {
        self.link.is_none()
    }
}

impl Drop for Attachment {
    /// Detaches explicitly: a child that was forked without handlers may hold the link, too.
    fn drop(&mut self) {
        let Some(link) = &self.link else {
            return;
        };
        match kernel::detach_link(link.as_fd()) {
            // ENODEV or ENOLINK: the interface is gone, and the program with it.
            Ok(()) | Err(Errno::ENODEV | Errno::ENOLINK) => {}
            Err(errno) => log::debug!("the XDP program goes when its link is closed: {errno}"),
        }
    }
}

/// xwarp's program, if it stays attached. A program that another process attached for itself ends
/// with that process, which may be ending now.
fn lasting_program(interface: &Interface) -> Result<Option<(Running, Maps)>, AttachError> {
    let deadline = Instant::now() + LINK_TIMEOUT;
    // While a process ends, its link is gone for a moment before its program is.
    let mut was_held = None;
    loop {
        let is_held = |id| was_held == Some(id) || kernel::held_by_link(id);
        match interface.our_program()? {
            Some((running, _)) if is_held(running.program_id) => {
                was_held = Some(running.program_id);
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

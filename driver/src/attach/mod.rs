//! Attaching the XDP program to an interface, and detaching it.
//!
//! The program may be attached already, by `ip link set DEV xdp obj ...` or `xwarp attach`. Then it stays when the process ends. Otherwise
//! [`Attachment::open`] attaches it as a `bpf_link`. The kernel removes that when the process ends, even after a crash. Either way the maps
//! are found through the program. All functions work in the network namespace of the calling thread.

pub(crate) mod board;
mod kernel;
mod modes;
pub(crate) mod user_namespace;
mod users;

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::Program;
use nix::errno::Errno;
use xwarp_bpf::{
    Buffers, Counters, LoadError, MapError, Maps, OpenMapsError, is_bound, libbpf_to_log,
    program_name,
};

use board::live_entries;
use modes::Purpose;
pub(crate) use modes::for_kind;
use user_namespace::{NOT_INITIAL, in_initial_user_namespace};
pub use users::{User, users};

/// How long a process that is ending may take until its program is gone from the interface.
const LINK_TIMEOUT: Duration = Duration::from_secs(1);
const LINK_PAUSE: Duration = Duration::from_millis(5);

/// Where in the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdpMode {
    /// In the driver, before the kernel makes a socket buffer of the frame.
    Native,
    /// In the kernel's generic receive path, with any driver.
    Generic,
}

impl XdpMode {
    /// The word in `ip link set dev DEV <word> off`: plain `xdp off` leaves a generic one there.
    fn ip_link_word(self) -> &'static str {
        match self {
            Self::Native => "xdp",
            Self::Generic => "xdpgeneric",
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// Why the program could not be attached, used, examined or detached. Texts name the interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Somebody else's program is there. It is left alone.
    #[error(
        "{ifname} runs the XDP program {name} (id {program_id}), which is not xwarp's: detach it \
         with `ip link set dev {ifname} {} off`, or use another interface",
        .mode.ip_link_word()
    )]
    Foreign {
        /// The interface.
        ifname: String,
        /// The program's id.
        program_id: u32,
        /// The name that it was loaded with.
        name: String,
        /// Where it runs.
        mode: XdpMode,
    },
    /// Our program is there, in the other mode.
    #[error(
        "{ifname} runs xwarp's XDP program in {found} and not in {wanted} mode: detach it first, \
         or ask for {found} mode"
    )]
    OtherMode {
        /// The interface.
        ifname: String,
        /// What was asked for.
        wanted: XdpMode,
        /// What is there.
        found: XdpMode,
    },
    /// Our program is there already.
    #[error("{0} runs xwarp's XDP program already, in {1} mode")]
    AlreadyAttached(String, XdpMode),
    /// Somebody attached a program at the same moment.
    #[error("another XDP program was attached to {0} at the same moment: try again")]
    Taken(String),
    /// An interface above this one has a program: one of its VLANs, its bond or its bridge.
    #[error(
        "{0} takes no XDP program while an interface above it has one, such as a VLAN or a bond: end the RNIC there, open \
         the one on {0} first, and then that one"
    )]
    Beneath(String),
    /// There is no program to detach.
    #[error("{0} runs no XDP program")]
    NotAttached(String),
    /// Only the process that attached the program can detach it, or a child that it has forked.
    #[error(
        "{} is in use by {}, which holds its XDP program: end that process, or use another interface",
        .0,
        names(.1)
    )]
    HeldByProcess(String, Vec<User>),
    /// The MTU is too large for native mode.
    #[error(
        "native XDP on {0} refuses its MTU, also for frames of several buffers: lower it to 3500, or \
         ask for generic mode"
    )]
    MtuTooLarge(String),
    /// The driver does not do native XDP, or not with its present settings.
    #[error(
        "the driver of {0} refuses native XDP ({1}): VLANs have none, others may refuse an MTU or a number of \
         queues; change those or ask for generic mode"
    )]
    NoNative(String, io::Error),
    /// A bond's program runs in native mode at its members.
    #[error(
        "{0} is a bond: its native program runs at its members, where the kernel gives frames to none of its sockets; ask for \
         generic mode"
    )]
    NativeBond(String),
    /// The process lacks the capabilities.
    #[error("attaching XDP programs needs root, or CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN")]
    NotPrivileged,
    /// No privilege can help, as it counts in another user namespace than the initial one.
    #[error("{NOT_INITIAL}")]
    UserNamespace,
    /// There is no such interface, or it has gone.
    #[error("there is no interface {0} in this network namespace")]
    NoInterface(String),
    /// The program could not be loaded, or its maps not be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel refused for another reason.
    #[error("the kernel refused to change or show the XDP program on {0}: {1}")]
    Kernel(String, io::Error),
}

/// The processes that hold a program, as far as `/proc` shows them.
fn names(users: &[User]) -> String {
    let names: Vec<_> = users.iter().map(User::to_string).collect();
    match names.len() {
        0 => "a process that /proc does not show".to_owned(),
        _ => names.join(" and "),
    }
}

/// Why the XDP program could not be loaded, or its maps not be opened or read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub struct ProgramError(Box<dyn Error + Send + Sync>);

impl From<LoadError> for AttachError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NotPrivileged => Self::not_privileged(),
            error => Self::Program(ProgramError(error.into())),
        }
    }
}

impl From<OpenMapsError> for AttachError {
    fn from(error: OpenMapsError) -> Self {
        match error {
            OpenMapsError::NotPrivileged => Self::not_privileged(),
            error => Self::Program(ProgramError(error.into())),
        }
    }
}

impl From<MapError> for AttachError {
    fn from(error: MapError) -> Self {
        Self::Program(ProgramError(error.into()))
    }
}

impl AttachError {
    /// Why the kernel says that this process lacks privilege.
    fn not_privileged() -> Self {
        if in_initial_user_namespace() {
            Self::NotPrivileged
        } else {
            Self::UserNamespace
        }
    }

    /// Whether generic mode may do where native mode did not.
    fn concerns_native_mode(&self) -> bool {
        matches!(self, Self::MtuTooLarge(_) | Self::NoNative(..))
    }
}

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
    /// those of the interface's MTU. With `describes`, the program is to write receive metadata; see [`Attachment::describes`] for whether
    /// it does.
    ///
    /// # Errors
    ///
    /// - [`AttachError::OtherMode`]: our program runs there in another mode than `wanted`.
    /// - [`AttachError::HeldByProcess`]: it goes with a process that has it.
    /// - [`AttachError::Foreign`], [`AttachError::Taken`]: a program that is not ours runs there, or came at the same moment.
    /// - [`AttachError::Beneath`]: an interface above this one has a program.
    /// - [`AttachError::MtuTooLarge`], [`AttachError::NoNative`]: the driver refuses native mode, which was asked for.
    /// - [`AttachError::NotPrivileged`], [`AttachError::UserNamespace`],
    ///   [`AttachError::NoInterface`]: the process lacks capabilities, or the interface is gone.
    /// - [`AttachError::Program`], [`AttachError::Kernel`]: the program, its maps or the kernel's answer are at fault.
    pub fn open(
        ifindex: u32,
        ifname: &str,
        wanted: Option<XdpMode>,
        frames: Buffers,
        describes: bool,
    ) -> Result<Self, AttachError> {
        let interface = Interface::new(ifindex, ifname);
        let Some((running, maps)) = interface.lasting_program()? else {
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
        let attached = modes::attach(wanted, purpose, interface.ifindex, |program, mode| {
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

/// Attaches our program so that it outlives the process, and says in which mode it runs.
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
    let attached = modes::attach(mode, purpose, interface.ifindex, |program, mode| {
        let attached = kernel::attach(program, interface.ifindex, mode);
        attached.map_err(|errno| interface.refused(mode, errno))
    })?;
    Ok(attached.mode)
}

/// Our program on an interface, attached to stay.
pub(crate) struct Lasting {
    interface: Interface,
    program: OwnedFd,
    mode: XdpMode,
}

impl Lasting {
    /// The program that is there now.
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

    /// Detaches it, and no other that has taken its place.
    pub(crate) fn detach(self) -> Result<(), AttachError> {
        let detached = kernel::detach(self.program.as_fd(), self.interface.ifindex, self.mode);
        detached.map_err(|errno| self.interface.refused(self.mode, errno))
    }
}

/// What runs on an interface.
#[derive(Debug)]
pub enum Status {
    /// No XDP program.
    NotAttached,
    /// Our program.
    Ours {
        /// Where it runs.
        mode: XdpMode,
        /// Its id.
        program_id: u32,
        /// What became of the frames so far.
        counters: Counters,
        /// Whether it goes with the process that attached it.
        held_by_link: bool,
        /// Whether it asks the driver for VLAN tags that were taken off before it runs. Few drivers can tell.
        asks_for_tags: bool,
    },
    /// Somebody else's program.
    Foreign {
        /// Where it runs.
        mode: XdpMode,
        /// Its id.
        program_id: u32,
        /// The name that it was loaded with.
        name: String,
    },
}

/// Looks at what runs on an interface and changes nothing.
///
/// # Errors
///
/// - [`AttachError::NotPrivileged`], [`AttachError::UserNamespace`], [`AttachError::NoInterface`]:
///   the process lacks capabilities, or there is no such interface.
/// - [`AttachError::Program`], [`AttachError::Kernel`]: maps or counters could not be read, or the kernel refuses.
pub fn status(ifindex: u32) -> Result<Status, AttachError> {
    let interface = Interface::new(ifindex, &kernel::interface_name(ifindex));
    let Some(Running { program_id, mode }) = interface.program()? else {
        return Ok(Status::NotAttached);
    };
    let Some(maps) = Maps::of_program(program_id)? else {
        return Ok(Status::Foreign {
            mode,
            program_id,
            name: name_of_program(program_id)?,
        });
    };
    let counters = maps.verdicts.counters()?;
    Ok(Status::Ours {
        mode,
        program_id,
        counters,
        held_by_link: kernel::held_by_link(program_id),
        asks_for_tags: is_bound(program_id)?,
    })
}

/// What an engine of an interface shows of itself, and what our program there has done with frames.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The engine's first queue.
    pub queue: u32,
    /// What the words mean: see [`StateBoard::show`](crate::StateBoard::show).
    pub key: u64,
    /// The process of the engine.
    pub process: u32,
    /// The engine's state.
    pub words: Vec<u64>,
    /// What became of the frames that arrived on the engine's queues, and on those after them up to the next engine's. The first engine has
    /// those before its own, too.
    pub verdicts: Counters,
}

/// The engines that use an interface, in the order of their queues. A program that stays has none while no process uses it.
///
/// # Errors
///
/// - [`AttachError::NotAttached`], [`AttachError::Foreign`]: no program is there, or one that is not ours.
/// - [`AttachError::NotPrivileged`], [`AttachError::UserNamespace`], [`AttachError::NoInterface`]:
///   the process lacks capabilities, or there is no such interface.
/// - [`AttachError::Program`], [`AttachError::Kernel`]: maps could not be read, or the kernel refuses.
pub fn shown(ifindex: u32) -> Result<Vec<Shown>, AttachError> {
    let interface = Interface::new(ifindex, &kernel::interface_name(ifindex));
    let Some((Running { program_id, .. }, maps)) = interface.our_program()? else {
        return Err(AttachError::NotAttached(interface.ifname));
    };
    let entries = live_entries(&maps.board, kernel::held_by_link(program_id))?;
    let mut bounds: Vec<u32> = entries.iter().skip(1).map(|(queue, _)| *queue).collect();
    bounds.push(u32::MAX);
    let (mut shown, mut begin) = (Vec::new(), 0);
    for ((queue, entry), end) in entries.into_iter().zip(bounds) {
        shown.push(Shown {
            queue,
            key: entry.key,
            process: entry.process,
            words: entry.words,
            verdicts: maps.verdicts.of_queues(begin..end)?,
        });
        begin = end;
    }
    Ok(shown)
}

/// An interface, with its name for the error texts.
struct Interface {
    ifindex: u32,
    ifname: String,
}

/// The program on an interface.
struct Running {
    program_id: u32,
    mode: XdpMode,
}

impl Interface {
    fn new(ifindex: u32, ifname: &str) -> Self {
        libbpf_to_log();
        Self {
            ifindex,
            ifname: ifname.to_owned(),
        }
    }

    fn program(&self) -> Result<Option<Running>, AttachError> {
        kernel::query(self.ifindex).map_err(|errno| self.failed(errno))
    }

    /// Our program with its maps, or None if there is no program at all.
    fn our_program(&self) -> Result<Option<(Running, Maps)>, AttachError> {
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

    /// Our program, if it stays: one that another process attached for itself goes with that process, which may be ending now.
    fn lasting_program(&self) -> Result<Option<(Running, Maps)>, AttachError> {
        let deadline = Instant::now() + LINK_TIMEOUT;
        loop {
            match self.our_program()? {
                Some((running, _)) if kernel::held_by_link(running.program_id) => {
                    if Instant::now() >= deadline {
                        let holders = users(self.ifindex, running.program_id);
                        return Err(AttachError::HeldByProcess(self.ifname.clone(), holders));
                    }
                    std::thread::sleep(LINK_PAUSE);
                }
                found => return Ok(found),
            }
        }
    }

    /// What it means that the kernel refused to attach or detach in this mode.
    fn refused(&self, mode: XdpMode, errno: Errno) -> AttachError {
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

    fn failed(&self, errno: Errno) -> AttachError {
        let ifname = self.ifname.clone();
        match errno {
            Errno::EPERM | Errno::EACCES => AttachError::not_privileged(),
            Errno::ENODEV | Errno::ENXIO => AttachError::NoInterface(ifname),
            _ => AttachError::Kernel(ifname, errno.into()),
        }
    }
}

fn name_of_program(program_id: u32) -> Result<String, AttachError> {
    Ok(program_name(program_id)?.unwrap_or_else(|| "?".to_owned()))
}

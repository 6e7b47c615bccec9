//! Errors of attaching, using, examining and detaching the program.

use std::error::Error;
use std::io;

use xwarp_bpf::{LoadError, MapError, OpenMapsError};

use super::mode::XdpMode;
use super::user::User;
use super::user_namespace::{NOT_INITIAL, in_initial_user_namespace};

/// Why the program could not be attached, used, examined or detached. Texts name the interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A foreign program is attached. It is left unchanged.
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
        /// Mode in which it runs.
        mode: XdpMode,
    },
    /// xwarp's program is attached in another mode.
    #[error(
        "{ifname} runs xwarp's XDP program in {found} and not in {wanted} mode: detach it first, \
         or ask for {found} mode"
    )]
    OtherMode {
        /// The interface.
        ifname: String,
        /// Requested mode.
        wanted: XdpMode,
        /// Mode of the attached program.
        found: XdpMode,
    },
    /// xwarp's program is attached already.
    #[error("{0} runs xwarp's XDP program already, in {1} mode")]
    AlreadyAttached(String, XdpMode),
    /// Another process attached a program at the same moment.
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
    /// Only the process that attached the program, or a child that it has forked, can detach it.
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
    /// The driver does not support native XDP, or not with its current settings.
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
    /// Privileges do not help, as they belong to a user namespace other than the initial one.
    #[error("{NOT_INITIAL}")]
    UserNamespace,
    /// The interface does not exist, or no longer exists.
    #[error("there is no interface {0} in this network namespace")]
    NoInterface(String),
    /// The program could not be loaded, or its maps are not usable.
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
    /// Error for a refusal because of missing privileges.
    pub(super) fn not_privileged() -> Self {
        if in_initial_user_namespace() {
            Self::NotPrivileged
        } else {
            Self::UserNamespace
        }
    }

    /// Whether generic mode may work although native mode failed.
    pub(super) fn concerns_native_mode(&self) -> bool {
        matches!(self, Self::MtuTooLarge(_) | Self::NoNative(..))
    }
}

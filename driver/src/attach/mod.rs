//! Attaching the XDP program to an interface, and detaching it.
//!
//! The program may be attached already, by `ip link set DEV xdp obj ...` or `xwarp attach`. Then it
//! stays when the process ends. Otherwise [`Attachment::open`] attaches it as a `bpf_link`, which
//! the kernel removes when the process ends, even after a crash. In both cases the maps are found
//! through the program. All functions work in the network namespace of the calling thread.

mod attachment;
pub(crate) mod board;
mod error;
mod fallback;
mod interface;
mod kernel;
mod lasting;
mod mode;
mod status;
mod user;
pub(crate) mod user_namespace;
mod users;

pub use attachment::Attachment;
pub use error::{AttachError, ProgramError};
pub(crate) use fallback::for_kind;
pub(crate) use lasting::{Lasting, attach_permanently};
pub use mode::XdpMode;
pub use status::{Shown, Status, shown, status};
pub use user::User;
pub use users::users;

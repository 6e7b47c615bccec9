//! Why a verb could not be done: the immediate errors (verbs draft §9.5.1), one type per group of verbs.

mod connection;
mod memory;
mod objects;
mod work;

use xwarp_driver::NicError;

pub use connection::{AcceptError, ConnectError, ListenError, StreamError};
pub use memory::{DeallocateError, QueryError, RegisterError, ReregisterError};
pub use objects::{
    CreateError, DataPathError, DestroyError, HandlerError, ModifyError, ModifySrqError, Refused,
    ResizeError,
};
pub use work::{PostError, PostListError, WaitError};

/// The RNIC behind a handle has been closed or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the RNIC is closed")]
pub struct RnicClosed;

/// Why an RNIC could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The interface.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A resource of the host, such as a thread or a file descriptor.
    #[error("the RNIC could not be set up: {0}")]
    System(#[from] std::io::Error),
}

/// More of something than the RNIC supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {wanted} is not possible: this RNIC supports {min} to {max}")]
pub struct Capability {
    /// The attribute.
    pub what: &'static str,
    /// What was asked for.
    pub wanted: usize,
    /// The smallest value.
    pub min: usize,
    /// The largest value.
    pub max: usize,
}

impl Capability {
    pub(crate) fn check(
        what: &'static str,
        wanted: usize,
        min: usize,
        max: usize,
    ) -> Result<(), Self> {
        if (min..=max).contains(&wanted) {
            return Ok(());
        }
        Err(Self {
            what,
            wanted,
            min,
            max,
        })
    }
}

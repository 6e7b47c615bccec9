//! Why a verb could not be done: the immediate errors (verbs draft §9.5.1), one type per group of verbs.

mod connection;
mod memory;
mod objects;
mod work;

use std::collections::TryReserveError;

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

/// Nothing more comes from an RNIC, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RnicEnded {
    /// It was closed.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// It has failed, as [`AsyncEventKind::Failed`](crate::AsyncEventKind::Failed) tells, too.
    #[error("the RNIC has failed: {0}")]
    Failed(String),
}

/// Why an RNIC could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The interface.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A resource of the host, such as a thread or a file descriptor.
    #[error("the RNIC could not be set up")]
    System(#[from] std::io::Error),
}

/// Insufficient Resources (verbs draft §9.5.1): the process can have no memory for it. All is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for it")]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
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

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use xwarp_iwarp::mpa::StartupError;

    use super::*;

    /// Whoever prints an error prints its causes behind it.
    #[test]
    fn an_error_leaves_its_cause_to_the_cause() {
        let peer = ([10, 0, 0, 1], 7471).into();
        let source = StartupError::NotMpa;
        let system = || io::Error::from_raw_os_error(24);
        let errors: [Box<dyn Error>; 5] = [
            Box::new(ConnectError::NotIwarp { peer, source }),
            Box::new(ConnectError::Unacceptable { peer, source }),
            Box::new(OpenError::System(system())),
            Box::new(CreateError::System(system())),
            Box::new(WaitError::System(system())),
        ];
        for error in errors {
            let cause = error.source().expect("a cause").to_string();
            assert!(!error.to_string().contains(&cause), "{error}: {cause}");
        }
    }
}

//! Immediate errors of verbs (verbs draft §9.5.1), one type per group of verbs.

mod connection;
mod memory;
mod objects;
mod work;

use std::collections::TryReserveError;

pub use connection::{AcceptError, ConnectError, ListenError, StreamError};
pub use memory::{DeallocateError, QueryError, RegisterError};
pub use objects::{CreateError, DestroyError, HandlerError, ModifyError, ResizeError};
pub use work::PostError;

/// Why no verb of an RNIC can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RnicUnavailable {
    /// It has been closed or has failed.
    #[error("the RNIC is closed")]
    Closed,
    /// The caller is a handler that the RNIC's engine runs: the verb would wait for the engine, and
    /// the engine for the handler.
    #[error("a handler of the RNIC cannot call its verbs; let another thread do that")]
    InHandler,
}

/// Insufficient Resources (verbs draft §9.5.1): the process can have no memory for it. All is as it
/// was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for it")]
#[non_exhaustive]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// More of something than the RNIC supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {wanted} is not possible: this RNIC supports {min} to {max}")]
#[non_exhaustive]
pub struct CapabilityError {
    /// The attribute, in words that go before `wanted`.
    pub what: &'static str,
    /// What was asked for.
    pub wanted: usize,
    /// The smallest value that is possible.
    pub min: usize,
    /// The largest value that is possible.
    pub max: usize,
}

impl CapabilityError {
    #[doc(hidden)]
    pub fn check(what: &'static str, wanted: usize, min: usize, max: usize) -> Result<(), Self> {
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

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

/// Why an RNIC accepts no verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RnicUnavailable {
    /// The RNIC was closed or has failed.
    #[error("the RNIC is closed")]
    Closed,
    /// The caller is a handler that the RNIC's engine runs: the verb would wait for the engine, and
    /// the engine waits for the handler.
    #[error("a handler of the RNIC cannot call its verbs; let another thread do that")]
    InHandler,
}

/// Insufficient Resources (verbs draft §9.5.1): the host has no memory for the object. Nothing was
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for it")]
#[non_exhaustive]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// A value outside of what the RNIC supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {wanted} is not possible: this RNIC supports {min} to {max}")]
#[non_exhaustive]
pub struct CapabilityError {
    /// Name of the attribute, as the subject of the error message.
    pub what: &'static str,
    /// The requested value.
    pub wanted: usize,
    /// Smallest supported value.
    pub min: usize,
    /// Largest supported value.
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

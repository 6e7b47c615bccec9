//! libibverbs and librdmacm over xwarp, for programs that are unaware of it.
//!
//! `tools/dropin` links this crate into one shared object with four names. Programs of C call the
//! functions that `exports.map` lists; of Rust programs, only tests link to it.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod abi;
mod backend;
mod cancellation;
pub mod cm;
mod devices;
mod ending;
mod entry;
mod environment;
mod event_pipe;
pub mod fork;
mod futex;
pub mod left;
mod lists;
mod lock;
mod lock_state;
mod logging;
mod object;
#[cfg(feature = "testbed")]
mod program;
pub mod refused;
pub mod rendezvous;
mod stack;
pub mod verbs;

#[cfg(feature = "testbed")]
pub use program::Program;

/// Primitives of the waking protocols; a model checker provides its own.
mod sync {
    pub(crate) use std::sync::atomic::Ordering;
    pub(crate) use std::sync::{Condvar, Mutex, PoisonError};
}

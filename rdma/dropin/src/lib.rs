//! libibverbs and librdmacm over xwarp, for programs that know nothing of it.
//!
//! `tools/dropin` links this crate into one shared object with four names. Programs of C reach it
//! by the functions that `exports.map` lists; no Rust program links to it but tests.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod abi;
mod backend;
mod cancellation;
pub mod cm;
mod ending;
mod entry;
mod environment;
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
mod stack;
pub mod verbs;

#[cfg(feature = "testbed")]
pub use program::Program;

/// What the protocols of waking are made of; a model checker provides its own.
mod sync {
    pub(crate) use std::sync::atomic::Ordering;
    pub(crate) use std::sync::{Condvar, Mutex, PoisonError};
}

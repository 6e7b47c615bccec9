//! libibverbs and librdmacm over xwarp, for programs that know nothing of it.
//!
//! `tools/dropin` links this crate into one shared object with four names. Programs of C reach it by the functions that `exports.map` lists;
//! no Rust program links to it but tests.

pub mod abi;
mod backend;
pub mod cm;
mod entry;
mod fork;
pub mod left;
mod lists;
mod lock;
mod logging;
mod object;
#[cfg(feature = "testbed")]
mod program;
pub mod refused;
pub mod verbs;

#[cfg(feature = "testbed")]
pub use program::Program;

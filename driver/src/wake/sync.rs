//! What the protocols of waking are made of. In their models the model checker's own types take the
//! place of these.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};

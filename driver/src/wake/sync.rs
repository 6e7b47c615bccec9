//! Primitives of the wake-up protocols. The models replace them by the model checker's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};

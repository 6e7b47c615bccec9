//! Primitives of the rings. The models replace them by the model checker's.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

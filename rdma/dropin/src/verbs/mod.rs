//! What `infiniband/verbs.h` has, by objects.

pub mod context;
pub mod device;
mod event_queue;
mod interface;
mod operations;
pub mod pd;
pub mod pending;

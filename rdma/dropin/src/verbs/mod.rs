//! Functions of `infiniband/verbs.h`, by objects.

pub mod ah;
pub mod async_events;
mod batch;
mod by_hand;
pub mod channel;
pub mod context;
pub mod cq;
pub mod cq_events;
mod cq_ex;
pub mod device;
pub mod device_list;
mod domains;
pub(crate) mod event_queue;
pub mod mr;
mod mw;
pub mod operations;
pub mod pd;
mod posting;
pub mod qp;
pub mod qp_ex;
mod qp_state;
pub mod query;
pub mod srq;
pub mod sysfs;
#[cfg(any(test, feature = "testbed"))]
pub mod testbed;
#[cfg(test)]
mod tests;
mod turn;
mod waiting;
mod watched;
pub mod words;

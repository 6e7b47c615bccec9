//! Tables of what queue pairs share: completion queues with their handlers, and shared receive queues.

mod cq_table;
mod handlers;
mod srq_table;

pub use cq_table::CqTable;
pub use handlers::{Handler, Handlers};
pub use srq_table::SrqTable;

pub(crate) use cq_table::CqFull;
pub(crate) use srq_table::Receiving;

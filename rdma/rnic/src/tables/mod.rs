//! Tables of what queue pairs share: completion queues with their handlers, shared receive queues, and searches for next hops.

mod commons;
mod cq_table;
mod handlers;
mod searches;
mod srq_table;

pub use commons::Commons;
pub use cq_table::CqTable;
pub use handlers::{Handler, Handlers};
pub use searches::SearchId;
pub use srq_table::SrqTable;

pub(crate) use cq_table::CqFull;
pub(crate) use searches::{Searcher, Searches};
pub(crate) use srq_table::{Lent, Srq};

//! Tables that queue pairs share: completion queues with their handlers, shared receive queues, and
//! searches for next hops.

mod cq_table;
mod handlers;
mod searches;
mod shared_tables;
mod srq_table;

pub use cq_table::CqTable;
pub use handlers::{Handler, Handlers};
pub use searches::SearchId;
pub use shared_tables::SharedTables;
pub use srq_table::SrqTable;

pub(crate) use cq_table::CqFull;
pub(crate) use searches::{Searcher, Searches};
pub(crate) use srq_table::{BorrowedReceives, Srq};

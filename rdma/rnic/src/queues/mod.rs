//! What the application's threads and the engine share: rings, credits, ready queue pairs, events.

mod completion_ring;
mod events;
mod posted;
mod qp_shared;
mod ready_set;
mod resize;
mod ring;
mod slots;

pub use completion_ring::{Arm, CqShared, CqSink, Cqe, Pushed};
pub use events::EventQueue;
pub(crate) use posted::Posted;
pub use qp_shared::QpShared;
pub use ready_set::ReadySet;
pub use resize::{NewRing, NewRings};
pub use ring::ring;
pub use slots::{SlotKey, SlotTable, WorkQueue};

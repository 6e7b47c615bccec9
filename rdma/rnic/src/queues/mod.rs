//! Queues between the application's threads and the engine: rings, credits, ready queue pairs,
//! inboxes, events.

mod arming;
mod completion_ring;
mod cq_orders;
mod cq_shared;
mod credits;
mod ending;
mod engine_doorbell;
mod events;
mod identities;
mod in_common;
mod inbox;
mod locked;
mod notices;
mod posted;
mod qp_shared;
mod ready_set;
#[cfg(test)]
mod ready_set_tests;
mod receive_ring;
mod resize;
mod ring;
mod waiters;

pub use arming::{Arm, arm_and_look};
pub use completion_ring::{CqSink, Cqe, EventTarget, Pushed};
pub use cq_orders::{CqOrders, CqPlace};
pub use cq_shared::CqShared;
pub use credits::{FreedSlots, SlotKey, SlotTable, WorkQueue};
pub use ending::Ending;
pub use engine_doorbell::EngineDoorbell;
pub use events::EventQueue;
pub use identities::{Identities, Identity};
pub use in_common::{Change, InCommon, Read};
pub use inbox::Inbox;
pub use locked::{Guard, Locked};
pub use notices::CompletionNotices;
pub(crate) use posted::PostedRequests;
pub use qp_shared::QpShared;
pub use ready_set::ReadySet;
pub(crate) use receive_ring::{CurrentReceive, ReceiveRing};
pub use resize::{NewRing, NewRings};
pub use ring::ring;

/// Primitives of the wake-up protocols. The models replace them by the model checker's.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
    pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
}

//! Arm state of a completion queue, and what else its two ends share besides the ring (verbs draft
//! §8.2.5).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::arming::{Arm, ArmState};
use super::cq_orders::CqOrders;

/// What the two ends of a completion queue share besides its ring.
pub struct CqShared {
    armed: ArmState,
    overflowed: AtomicBool,
    /// Queues of queue pairs that complete on it.
    users: AtomicUsize,
    orders: CqOrders,
    /// Whether its completion channel has its identity.
    notice: Mutex<Notice>,
}

/// A completion queue's part in its completion channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// It is not in it.
    Absent,
    /// It is in it.
    Present,
    /// The queue is destroyed.
    Destroyed,
}

impl CqShared {
    /// State of a queue that no thread waits for.
    #[allow(
        clippy::new_without_default,
        reason = "there is no default completion queue"
    )]
    pub fn new() -> Self {
        Self {
            armed: ArmState::new(),
            overflowed: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            orders: CqOrders::default(),
            notice: Mutex::new(Notice::Absent),
        }
    }

    /// The queue is destroyed: a completion channel passes over it from now on.
    pub fn set_destroyed(&self) {
        *self.notice() = Notice::Destroyed;
    }

    pub(super) fn notice(&self) -> MutexGuard<'_, Notice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a wake-up. The application calls it before it looks at the queue again.
    pub fn arm(&self, kind: Arm) {
        self.armed.arm(kind);
    }

    /// True until the completion has come that was asked for.
    pub fn is_armed(&self) -> bool {
        self.armed.is_armed()
    }

    /// True once a completion was lost because the queue was full.
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// A completion was lost; true if it is the first one.
    pub(super) fn overflow(&self) -> bool {
        !self.overflowed.swap(true, Ordering::Relaxed)
    }

    /// In what order the engines' rings are polled.
    pub fn orders(&self) -> &CqOrders {
        &self.orders
    }

    /// A queue of a queue pair is created that completes on it.
    pub(crate) fn join(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// One is gone.
    pub(crate) fn leave(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while queue pairs complete on it.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Whether a waiter is to be woken by an entry that was just appended, which then is disarmed.
    /// Of several engines one wakes it.
    #[inline]
    pub(super) fn disarm_for(&self, wakes_solicited: bool) -> bool {
        self.armed.disarm_for(wakes_solicited)
    }
}

impl fmt::Debug for CqShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqShared")
            .field("armed", &self.armed)
            .field("overflowed", &self.overflowed())
            .field("queues", &self.users.load(Ordering::Relaxed))
            .field("notice", &*self.notice())
            .field("orders", &self.orders)
            .finish()
    }
}

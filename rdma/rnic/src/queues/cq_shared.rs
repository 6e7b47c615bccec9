//! State that the two ends of a completion queue share besides the ring, such as the arm state
//! (verbs draft §8.2.5).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::arming::{Arm, ArmState};
use super::cq_orders::CqOrders;

/// State that the two ends of a completion queue share besides its ring.
pub struct CqShared {
    armed: ArmState,
    overflowed: AtomicBool,
    /// Number of work queues that complete on it.
    users: AtomicUsize,
    orders: CqOrders,
    /// State of the queue in its completion channel.
    notice: Mutex<Notice>,
}

/// State of a completion queue in its completion channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The channel does not contain the queue.
    Absent,
    /// The channel contains the queue.
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

    /// Marks the queue as destroyed: a completion channel skips it from now on.
    pub fn set_destroyed(&self) {
        *self.notice() = Notice::Destroyed;
    }

    pub(super) fn notice(&self) -> MutexGuard<'_, Notice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a wake-up. The application calls it before it checks the queue again.
    pub fn arm(&self, kind: Arm) {
        self.armed.arm(kind);
    }

    /// True until a completion of the requested kind has arrived.
    pub fn is_armed(&self) -> bool {
        self.armed.is_armed()
    }

    /// True once a completion was lost because the queue was full.
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Records that a completion was lost. Returns true if it is the first one.
    pub(super) fn overflow(&self) -> bool {
        !self.overflowed.swap(true, Ordering::Relaxed)
    }

    /// Order in which the engines' rings are polled.
    pub fn orders(&self) -> &CqOrders {
        &self.orders
    }

    /// Counts a work queue that completes on it.
    pub(crate) fn join(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a work queue from the count.
    pub(crate) fn leave(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while queue pairs complete on it.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Whether a waiter must be woken for an entry that was just appended; it is disarmed then. Of
    /// several engines only one wakes it.
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

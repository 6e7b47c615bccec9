//! Doorbell of an engine: threads of the application and the RNIC's other engines notify it of a
//! queue pair with new work, or of a failure, and wake it.

use std::fmt;

use xwarp_driver::Doorbell;

use super::ready_set::ReadySet;

/// Doorbell of an engine.
pub struct EngineDoorbell {
    ready: ReadySet,
    /// Slot that means the failure of another engine.
    failed: usize,
    /// `None` if the thread that runs the engine does not sleep.
    bell: Option<Doorbell>,
}

impl EngineDoorbell {
    /// Doorbell of an engine whose queue pairs have slots below `slots`.
    pub fn new(slots: usize, bell: Option<Doorbell>) -> Self {
        Self {
            ready: ReadySet::new(slots + 1),
            failed: slots,
            bell,
        }
    }

    /// Notifies the engine of new work on the queue pair in this slot.
    #[inline]
    pub fn notify(&self, slot: usize) {
        // Otherwise the thread that added the slot rings.
        if self.ready.add(slot) {
            self.ring();
        }
    }

    /// Wakes the thread that runs the engine.
    #[inline(never)]
    pub fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Notifies the engine that another engine has failed.
    pub(crate) fn notify_failure(&self) {
        self.notify(self.failed);
    }

    /// Whether a notified slot means the failure of another engine.
    pub(crate) fn is_failure(&self, slot: usize) -> bool {
        slot == self.failed
    }

    #[inline]
    pub(crate) fn ready(&self) -> &ReadySet {
        &self.ready
    }
}

impl fmt::Debug for EngineDoorbell {
    /// Shows whether queue pairs are ready that the engine has not taken, and whether the next
    /// notification wakes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineDoorbell")
            .field("has_ready", &!self.ready.is_empty())
            .field("bell", &self.bell)
            .finish_non_exhaustive()
    }
}

//! Door of an engine: where it is told which of its queue pairs were posted to, and that another engine has failed. It is woken for both.

use std::fmt;

use xwarp_driver::Doorbell;

use super::ready_set::ReadySet;

/// See the module. Threads of the application come here, and the other engines of the RNIC.
pub struct Door {
    ready: ReadySet,
    /// What is in the place of a slot when another engine has failed.
    failed: usize,
    /// `None` where whoever turns the engine does not sleep.
    bell: Option<Doorbell>,
}

impl Door {
    /// Of an engine that has queue pairs in some of `slots` slots.
    pub fn new(slots: usize, bell: Option<Doorbell>) -> Self {
        Self {
            ready: ReadySet::new(slots + 1),
            failed: slots,
            bell,
        }
    }

    /// Tells that a queue pair was posted to.
    #[inline]
    pub fn tell(&self, slot: usize) {
        // Else whoever has added it rings.
        if self.ready.add(slot) {
            self.ring();
        }
    }

    /// Wakes whoever turns the engine.
    #[inline(never)]
    pub fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Tells that another engine has failed.
    pub(crate) fn tell_failure(&self) {
        self.tell(self.failed);
    }

    /// Whether what was told in the place of a slot is that.
    pub(crate) fn is_failure(&self, told: usize) -> bool {
        told == self.failed
    }

    #[inline]
    pub(crate) fn ready(&self) -> &ReadySet {
        &self.ready
    }
}

impl fmt::Debug for Door {
    /// Whether queue pairs are ready that the engine has not taken, and whether the next one wakes
    /// it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("has_ready", &!self.ready.is_empty())
            .field("bell", &self.bell)
            .finish_non_exhaustive()
    }
}

//! Deferred drops: objects that handlers of an engine dropped. They are released after the step
//! that the handlers ran in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xwarp_rnic::engine::Engine;

/// Releases the objects that a handler has dropped.
pub(crate) type Release = Box<dyn FnOnce(&mut Engine) + Send>;

/// Objects that wait to be released.
#[derive(Default)]
pub(crate) struct DeferredDrops {
    list: Mutex<Vec<(usize, Release)>>,
    /// Whether the list may have entries.
    any: AtomicBool,
}

impl DeferredDrops {
    /// Adds an object for the owner of this engine to release.
    pub(crate) fn add(&self, engine: usize, release: Release) {
        self.lock().push((engine, release));
        self.any.store(true, Ordering::Release);
    }

    /// Whether the list may have entries.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes all entries, each with its engine. Costs one load if there are none.
    pub(crate) fn take(&self) -> Vec<(usize, Release)> {
        if !self.has_any() {
            return Vec::new();
        }
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Release)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

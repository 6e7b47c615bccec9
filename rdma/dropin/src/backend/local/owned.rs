//! Ports that an RNIC shares with objects of the program. The memory of those is kept, but the port's queue goes with the RNIC's end of it.

use std::ops::Deref;
use std::sync::Arc;

/// A port that has a queue of the RNIC.
pub(super) trait HasQueue {
    /// Lets go of the queue. Calls of the port are refused from then on.
    fn release(&self);
}

/// The RNIC's end of a port.
pub(super) struct Owned<P: HasQueue>(Arc<P>);

impl<P: HasQueue> Owned<P> {
    pub(super) fn new(port: &Arc<P>) -> Self {
        Self(Arc::clone(port))
    }
}

impl<P: HasQueue> Deref for Owned<P> {
    type Target = Arc<P>;

    fn deref(&self) -> &Arc<P> {
        &self.0
    }
}

impl<P: HasQueue> Drop for Owned<P> {
    fn drop(&mut self) {
        self.0.release();
    }
}

//! Completion event handlers (verbs draft §8.2.5, §9.4.1).

use std::sync::atomic::{AtomicU64, Ordering};

use std::panic::{AssertUnwindSafe, catch_unwind};

use slab::Slab;

use crate::model::{CqId, HandlerError, HandlerId, MAX_HANDLERS};

/// Number of handlers that all RNICs of the process have registered, so that an ID of one RNIC is
/// unknown to any other (verbs draft §5.1).
static REGISTERED: AtomicU64 = AtomicU64::new(0);

/// Called when a requested completion arrives, with its completion queue.
pub type Handler = Box<dyn FnMut(CqId) + Send>;

/// All handlers of an RNIC.
#[derive(Default)]
pub struct Handlers {
    all: Slab<(u64, Handler)>,
}

impl Handlers {
    /// Registers a handler.
    pub fn add(&mut self, handler: Handler) -> Result<HandlerId, HandlerError> {
        if self.all.len() >= MAX_HANDLERS {
            return Err(HandlerError::TooMany(MAX_HANDLERS));
        }
        let serial = REGISTERED.fetch_add(1, Ordering::Relaxed); // 2^64 are never registered
        let slot = self.all.insert((serial, handler));
        Ok(HandlerId { slot, serial })
    }

    fn find(&mut self, id: HandlerId) -> Option<&mut Handler> {
        let (serial, handler) = self.all.get_mut(id.slot)?;
        (*serial == id.serial).then_some(handler)
    }

    /// Checks that there is such a handler.
    ///
    /// # Errors
    ///
    /// [`HandlerError::Unknown`]: there is none.
    pub fn check(&mut self, id: HandlerId) -> Result<(), HandlerError> {
        self.find(id).map(|_| ()).ok_or(HandlerError::Unknown)
    }

    /// Replaces a handler.
    pub fn replace(&mut self, id: HandlerId, handler: Handler) -> Result<(), HandlerError> {
        *self.find(id).ok_or(HandlerError::Unknown)? = handler;
        Ok(())
    }

    /// Clears a handler. Its completion queues raise no event from now on.
    pub fn clear(&mut self, id: HandlerId) -> Result<(), HandlerError> {
        self.check(id)?;
        drop(self.all.remove(id.slot));
        Ok(())
    }

    /// Calls a handler. Returns false if it has panicked. It is not called again then.
    pub(crate) fn call(&mut self, id: HandlerId, cq: CqId) -> bool {
        let Some(handler) = self.find(id) else {
            return true;
        };
        let called = catch_unwind(AssertUnwindSafe(|| handler(cq)));
        if called.is_err() {
            log::error!("the handler of {cq:?} has panicked, and is cleared");
            drop(self.all.remove(id.slot));
        }
        called.is_ok()
    }
}

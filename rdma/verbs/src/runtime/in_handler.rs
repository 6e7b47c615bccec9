//! Detection of calls from a handler that runs inside an engine: such a verb fails instead of
//! deadlocking.

use std::cell::RefCell;

use xwarp_rnic::model::RnicId;

thread_local! {
    /// The RNICs whose handlers this thread is in. A handler may call verbs of another inline RNIC,
    /// whose handler then runs inside the first.
    static INSIDE: RefCell<Vec<RnicId>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread is in a handler of that RNIC.
pub(crate) fn is_in_handler(rnic: RnicId) -> bool {
    // Thread-local values are gone if the thread is ending; it drops its handles in no handler
    // then.
    let inside = INSIDE.try_with(|inside| inside.borrow().contains(&rnic));
    inside.unwrap_or(false)
}

/// Marks the thread as being in a handler during its lifetime.
struct Inside;

impl Inside {
    fn enter(rnic: RnicId) -> Self {
        // At process exit the thread-local values are destroyed, and no handler runs.
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().push(rnic));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

/// A handler that an engine calls and drops, guarded against calls into its own RNIC.
pub(crate) struct Guarded<H> {
    rnic: RnicId,
    handler: Option<H>,
}

impl<H> Guarded<H> {
    pub(crate) fn new(rnic: RnicId, handler: H) -> Self {
        let handler = Some(handler);
        Self { rnic, handler }
    }

    /// Calls the handler by `call`.
    pub(crate) fn run(&mut self, call: impl FnOnce(&mut H)) {
        let _inside = Inside::enter(self.rnic);
        if let Some(handler) = &mut self.handler {
            call(handler);
        }
    }
}

impl<H> Drop for Guarded<H> {
    /// The handler may own objects of the RNIC, which are dropped with it.
    fn drop(&mut self) {
        let _inside = Inside::enter(self.rnic);
        self.handler = None;
    }
}

//! Handlers that run inside an engine: the RNICs of which this thread is in a handler. So a verb
//! there is an error and no deadlock.

use std::cell::RefCell;

use xwarp_rnic::model::RnicId;

thread_local! {
    /// A handler may call verbs of another inline RNIC, whose handler runs inside it then.
    static INSIDE: RefCell<Vec<RnicId>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread is in a handler of that RNIC.
pub(crate) fn is_in_handler(rnic: RnicId) -> bool {
    // A thread that ends drops its handles in no handler.
    let inside = INSIDE.try_with(|inside| inside.borrow().contains(&rnic));
    inside.unwrap_or(false)
}

/// The thread is in a handler as long as this lives.
struct Inside;

impl Inside {
    fn enter(rnic: RnicId) -> Self {
        // At the process's exit the thread's own values are destroyed, and no handler runs.
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().push(rnic));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

/// A handler that an engine calls, and drops.
pub(crate) struct Guarded<H> {
    rnic: RnicId,
    handler: Option<H>,
}

impl<H> Guarded<H> {
    pub(crate) fn new(rnic: RnicId, handler: H) -> Self {
        let handler = Some(handler);
        Self { rnic, handler }
    }

    /// Calls it by `call`.
    pub(crate) fn run(&mut self, call: impl FnOnce(&mut H)) {
        let _inside = Inside::enter(self.rnic);
        if let Some(handler) = &mut self.handler {
            call(handler);
        }
    }
}

impl<H> Drop for Guarded<H> {
    /// What the handler owns may be objects of the RNIC, which are dropped with it.
    fn drop(&mut self) {
        let _inside = Inside::enter(self.rnic);
        self.handler = None;
    }
}

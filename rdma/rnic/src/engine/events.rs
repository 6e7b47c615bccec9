//! The asynchronous event handler (verbs draft §8.3.3, §9.4.2), and when it is called.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Engine;
use crate::model::{EventContext, EventHandler};

impl Engine {
    /// Sets the handler of asynchronous events. `None`: events wait to be polled.
    pub fn set_event_handler(&mut self, handler: Option<EventHandler>) {
        let mut present = self.shared_tables.event_handler().lock();
        self.device.events.set_handled(handler.is_some());
        *present = handler;
    }

    /// Calls the handler for the events of a step or verb, once all states are final (verbs.md
    /// A31).
    #[inline]
    pub fn deliver_events(&mut self) {
        if self.device.events.has_unhandled() {
            self.call_handler();
        }
    }

    #[cold]
    fn call_handler(&self) {
        let mut present = self.shared_tables.event_handler().lock();
        while let (Some(event), Some(handler)) =
            (self.device.events.take_unhandled(), present.as_mut())
        {
            let query = |qp| self.query_qp(qp);
            let context = EventContext::new(&query);
            // A panic affects only the handler: it is not called again, and the engine continues.
            let called = catch_unwind(AssertUnwindSafe(|| handler(&context, &event)));
            if called.is_err() {
                log::error!("the handler of asynchronous events has panicked, and is cleared");
                self.device.events.put_back(event);
                self.device.events.set_handled(false);
                *present = None;
                return;
            }
        }
    }
}

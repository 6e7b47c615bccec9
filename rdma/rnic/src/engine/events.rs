//! The asynchronous event handler (verbs draft §8.3.3, §9.4.2), and when it is called.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Engine;
use crate::model::{EventContext, EventHandler};

impl Engine {
    /// Whom events are told from now on. `None`: they wait for whoever polls.
    pub fn set_event_handler(&mut self, handler: Option<EventHandler>) {
        let mut present = self.shared_tables.event_handler().lock();
        self.device.events.set_handled(handler.is_some());
        *present = handler;
    }

    /// A turn or a verb is over: what has happened in it is told when all states are as they shall be seen (verbs.md A31).
    #[inline]
    pub fn tell_events(&mut self) {
        if self.device.events.has_untold() {
            self.tell_handler();
        }
    }

    #[cold]
    fn tell_handler(&self) {
        let mut present = self.shared_tables.event_handler().lock();
        while let (Some(event), Some(handler)) =
            (self.device.events.take_untold(), present.as_mut())
        {
            let query = |qp| self.query_qp(qp);
            let context = EventContext::new(&query);
            // What the handler has broken is its own: it is not called again, and the engine goes on.
            let told = catch_unwind(AssertUnwindSafe(|| handler(&context, &event)));
            if told.is_err() {
                log::error!("the handler of asynchronous events has panicked, and is cleared");
                self.device.events.untell(event);
                self.device.events.set_handled(false);
                *present = None;
                return;
            }
        }
    }
}

//! Where asynchronous events wait: for the handler until the engine's turn is over, or for whoever polls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::Engine;
use crate::event::AsyncEvent;
use crate::qp_info::QpInfo;
use crate::qp_state::QpId;

/// What is called with each asynchronous event.
pub(crate) type EventHandler = Box<dyn FnMut(&EventContext<'_>, &AsyncEvent) + Send>;

/// The RNIC of an event, as its handler has it: other verbs of that RNIC cannot be called there.
pub struct EventContext<'a>(pub(crate) &'a Engine);

impl EventContext<'_> {
    /// Query QP (verbs draft §9.2.5.2): what the queue pair is like after what has happened; `None` if it was destroyed.
    pub fn query_qp(&self, qp: QpId) -> Option<QpInfo> {
        self.0.query_qp(qp)
    }
}

#[derive(Default)]
struct Lists {
    /// There is a handler, which takes what happens from now on.
    handled: bool,
    /// For the handler.
    untold: VecDeque<AsyncEvent>,
    /// For whoever polls.
    polled: VecDeque<AsyncEvent>,
    /// Nothing happens any more.
    ended: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct EventQueue {
    lists: Mutex<Lists>,
    more: Condvar,
    /// Something waits for the handler.
    has_untold: AtomicBool,
}

impl EventQueue {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has happened.
    pub(crate) fn report(&self, event: AsyncEvent) {
        let mut lists = self.lists();
        if lists.handled {
            lists.untold.push_back(event);
            self.has_untold.store(true, Ordering::Relaxed);
        } else {
            lists.polled.push_back(event);
            self.more.notify_one();
        }
    }

    /// For the engine, which alone reports.
    pub(crate) fn has_untold(&self) -> bool {
        self.has_untold.load(Ordering::Relaxed)
    }

    /// The oldest that the handler has not been told.
    pub(crate) fn take_untold(&self) -> Option<AsyncEvent> {
        let event = self.lists().untold.pop_front();
        if event.is_none() {
            self.has_untold.store(false, Ordering::Relaxed);
        }
        event
    }

    /// The handler could not be told it after all.
    pub(crate) fn untell(&self, event: AsyncEvent) {
        self.lists().untold.push_front(event);
    }

    /// Whether there is a handler from now on. What none has been told of goes to whoever polls.
    pub(crate) fn set_handled(&self, handled: bool) {
        let mut lists = self.lists();
        lists.handled = handled;
        if !handled {
            let untold = std::mem::take(&mut lists.untold);
            lists.polled.extend(untold);
            self.more.notify_all();
        }
    }

    /// The oldest that no handler has taken.
    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        self.lists().polled.pop_front()
    }

    /// There is something to take, or never will be.
    pub(crate) fn is_due(&self) -> bool {
        let lists = self.lists();
        lists.ended || !lists.polled.is_empty()
    }

    /// Waits for that, up to `patience`.
    pub(crate) fn wait(&self, patience: Duration) {
        let nothing = |lists: &mut Lists| !lists.ended && lists.polled.is_empty();
        // Whoever waits looks again, whatever has ended the wait.
        drop(
            self.more
                .wait_timeout_while(self.lists(), patience, nothing),
        );
    }

    /// Wakes all who wait: nothing happens any more.
    pub(crate) fn end(&self) {
        self.lists().ended = true;
        self.more.notify_all();
    }
}

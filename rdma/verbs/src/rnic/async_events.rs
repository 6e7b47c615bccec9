//! Asynchronous events without a handler: a bounded queue and its descriptor (verbs draft §8.3.3).
//!
//! In the draft, events without a handler are lost; here they wait in the queue. A handler receives
//! every event instead of the queue, after the step or verb, so that no event is reported twice.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use xwarp_rnic::model::AsyncEvent;

use crate::error::RnicEnded;
use crate::runtime::control::Control;

/// The asynchronous events of an RNIC that happened without a handler. All handles of an RNIC take
/// from one queue, each event once.
///
/// At most [`RnicConfig::max_events`](crate::RnicConfig::max_events) wait in it.
/// [`EventsLost`](crate::event::AsyncEventKind::EventsLost) reports that further ones were lost.
#[derive(Clone)]
pub struct AsyncEvents {
    control: Arc<Control>,
}

impl AsyncEvents {
    pub(crate) fn new(control: &Arc<Control>) -> Self {
        let control = Arc::clone(control);
        Self { control }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Takes the oldest event, also after the RNIC has ended. Does not run an inline engine.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if the queue is empty and the RNIC has ended.
    pub fn try_next(&self) -> Result<Option<AsyncEvent>, RnicEnded> {
        let events = self.control.events();
        let signal = events.signal();
        self.control.take_or_ended(signal, || events.take())
    }

    /// Takes the oldest event, waiting for one up to `timeout`. `None` if no event occurs in time.
    /// The waiting thread is woken by the event, or runs an inline engine until an event occurs.
    ///
    /// # Errors
    ///
    /// As [`try_next`](Self::try_next), at once.
    pub fn wait(&self, timeout: Duration) -> Result<Option<AsyncEvent>, RnicEnded> {
        let signal = self.control.events().signal();
        self.control.wait_for(signal, timeout, || self.try_next())
    }
}

impl AsFd for AsyncEvents {
    /// Readable while [`try_next`](Self::try_next) has something to return. Do not read from it.
    /// With an inline engine this needs calls that run the engine; see
    /// [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.events().signal().as_fd()
    }
}

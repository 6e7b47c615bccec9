//! Attempt: a connection that the engine is making, whose outcome the application takes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use xwarp_driver::Signal;
use xwarp_rnic::model::ConnectError;
use xwarp_rnic::queues::Inbox;

use crate::error::WaitError;
use crate::runtime::control::Control;

/// Result of an attempt.
pub(crate) type Outcome<T> = Result<T, ConnectError>;

/// An attempt to connect. The engine continues it whether or not the application polls it.
pub(crate) struct Attempt<T> {
    outcome: Arc<Inbox<Outcome<T>>>,
    /// Whether the application has taken the outcome.
    taken: bool,
    control: Arc<Control>,
}

impl<T> Attempt<T> {
    pub(crate) fn new(outcome: Arc<Inbox<Outcome<T>>>, control: &Arc<Control>) -> Self {
        Self {
            outcome,
            taken: false,
            control: Arc::clone(control),
        }
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Returns the outcome once there is one. Does not run an inline engine.
    pub(crate) fn try_finish(&mut self) -> Option<Outcome<T>> {
        let signal = self.outcome.signal();
        let taken = self.control.take_or_ended(signal, || self.outcome.take());
        let outcome = taken.unwrap_or_else(|ended| Some(Err(ended.into())));
        self.taken |= outcome.is_some();
        outcome
    }

    /// Waits for the outcome. `None` if there is none by the deadline.
    pub(crate) fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Outcome<T>> {
        let (control, outcome) = (Arc::clone(&self.control), Arc::clone(&self.outcome));
        let signal: &Signal = outcome.signal();
        match control.wait_until(signal, deadline, || self.try_finish()) {
            Ok(outcome) => outcome,
            Err(WaitError::Unavailable(why)) => Some(Err(why.into())),
            Err(WaitError::System(error)) => Some(Err(no_descriptor(error))),
        }
    }

    /// Waits for the outcome without a time limit.
    pub(crate) fn wait(&mut self) -> Outcome<T> {
        // A wait does not run a manual engine.
        let none = || Err(ConnectError::Resources("no engine runs".to_owned()));
        self.wait_until(None).unwrap_or_else(none)
    }

    /// Inbox of the outcome if the application has not taken it.
    pub(crate) fn unfinished(&self) -> Option<Arc<Inbox<Outcome<T>>>> {
        (!self.taken).then(|| Arc::clone(&self.outcome))
    }

    /// Descriptor that is readable when there is an outcome.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.outcome.signal().as_fd()
    }
}

/// Error for a host without a free file descriptor, or without another resource.
#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
pub(crate) fn no_descriptor(error: io::Error) -> ConnectError {
    ConnectError::Resources(error.to_string())
}

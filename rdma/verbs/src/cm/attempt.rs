//! Attempt: something that the engine connects, whose outcome the application takes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use xwarp_driver::Signal;
use xwarp_rnic::model::ConnectError;
use xwarp_rnic::queues::Inbox;

use crate::error::WaitError;
use crate::runtime::control::Control;

/// What an attempt ended in.
pub(crate) type Outcome<T> = Result<T, ConnectError>;

/// An attempt that the engine makes. It goes on whether or not the application polls it.
pub(crate) struct Attempt<T> {
    outcome: Arc<Inbox<Outcome<T>>>,
    /// The application has the outcome.
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

    /// The outcome, once there is one. Does not turn an inline engine.
    pub(crate) fn try_finish(&mut self) -> Option<Outcome<T>> {
        let signal = self.outcome.signal();
        let taken = self.control.take_or_ended(signal, || self.outcome.take());
        let outcome = taken.unwrap_or_else(|ended| Some(Err(ended.into())));
        self.taken |= outcome.is_some();
        outcome
    }

    /// The outcome, waiting for it; `None` when there is none by the deadline.
    pub(crate) fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Outcome<T>> {
        let (control, outcome) = (Arc::clone(&self.control), Arc::clone(&self.outcome));
        let signal: &Signal = outcome.signal();
        match control.wait_until(signal, deadline, || self.try_finish()) {
            Ok(outcome) => outcome,
            Err(WaitError::Unavailable(why)) => Some(Err(why.into())),
            Err(WaitError::System(error)) => Some(Err(no_descriptor(error))),
        }
    }

    /// The outcome, waiting for it as long as the engine needs.
    pub(crate) fn wait(&mut self) -> Outcome<T> {
        // A wait does not run a manual engine.
        let none = || Err(ConnectError::Resources("no engine runs".to_owned()));
        self.wait_until(None).unwrap_or_else(none)
    }

    /// Where the outcome goes, if the application does not have it.
    pub(crate) fn unfinished(&self) -> Option<Arc<Inbox<Outcome<T>>>> {
        (!self.taken).then(|| Arc::clone(&self.outcome))
    }

    /// Readable when there is an outcome.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.outcome.signal().as_fd()
    }
}

/// The host has no descriptor left, or another of its resources.
#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
pub(crate) fn no_descriptor(error: io::Error) -> ConnectError {
    ConnectError::Resources(error.to_string())
}

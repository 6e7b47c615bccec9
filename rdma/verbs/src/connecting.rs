//! A connection that is being made, as its initiator sees it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::WaitError;
use xwarp_rnic::model::ConnectError;
use xwarp_rnic::queues::Inbox;

/// How it ended: the private data of the peer's answer, or an error.
type Outcome = Result<Vec<u8>, ConnectError>;

/// A connection that is being made. Dropping it lets the attempt go on; its queue pair tells how it ended.
pub struct Connecting {
    outcome: Arc<Inbox<Outcome>>,
    control: Arc<Control>,
}

impl Connecting {
    pub(crate) fn new(outcome: Arc<Inbox<Outcome>>, control: Arc<Control>) -> Self {
        Self { outcome, control }
    }

    /// The result, once there is one: the private data of the peer's answer. It does not turn an inline engine.
    pub fn try_finish(&mut self) -> Option<Outcome> {
        let signal = self.outcome.signal();
        let taken = self.control.take_or_ended(signal, || self.outcome.take());
        taken.unwrap_or_else(|ended| Some(Err(ended.into())))
    }

    /// The result, waiting for it up to `timeout`; `None` when there is none by then.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<Outcome> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Waits for the result; the limit given to `begin_connect` bounds it.
    pub fn wait(mut self) -> Outcome {
        // Nobody turns a manual engine here.
        let none = || Err(ConnectError::Resources("no engine runs".to_owned()));
        self.wait_until(None).unwrap_or_else(none)
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Outcome> {
        let (control, outcome) = (Arc::clone(&self.control), Arc::clone(&self.outcome));
        let signal = outcome.signal();
        match control.wait_until(&**signal, deadline, || self.try_finish()) {
            Ok(outcome) => outcome,
            Err(WaitError::Unavailable(why)) => Some(Err(why.into())),
            Err(WaitError::System(error)) => Some(Err(ConnectError::Resources(error.to_string()))),
        }
    }
}

impl AsFd for Connecting {
    /// Readable while [`try_finish`](Self::try_finish) has something to return. It is not to be read. With an inline engine that holds as far
    /// as somebody turns the engine, see [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outcome.signal().as_fd()
    }
}

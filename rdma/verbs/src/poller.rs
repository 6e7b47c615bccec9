//! What polls a completion queue, and can do nothing else with it.

use std::time::Duration;

use crate::completion::WorkCompletion;
use crate::cq::{Arm, CompletionQueue};
use crate::error::{RnicClosed, WaitError};

/// What a Non-Privileged Consumer has of a completion queue (verbs draft §8.2.1): it polls, and asks to be told. For as long as it is lent by
/// [`CompletionQueue::poller`].
pub struct CompletionPoller<'a>(pub(crate) &'a mut CompletionQueue);

impl CompletionPoller<'_> {
    /// As [`CompletionQueue::poll`].
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, RnicClosed> {
        self.0.poll()
    }

    /// As [`CompletionQueue::arm`].
    pub fn arm(&self, kind: Arm) -> Result<(), RnicClosed> {
        self.0.arm(kind)
    }

    /// As [`CompletionQueue::wait`].
    pub fn wait(&mut self, patience: Duration) -> Result<Option<WorkCompletion>, WaitError> {
        self.0.wait(patience)
    }

    /// As [`CompletionQueue::wait_event`].
    pub fn wait_event(&mut self, patience: Duration) -> Result<bool, WaitError> {
        self.0.wait_event(patience)
    }
}

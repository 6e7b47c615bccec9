//! What polls a completion queue, and can do nothing else with it.

use std::io;
use std::time::Duration;

use crate::completion::WorkCompletion;
use crate::cq::{Arm, CompletionQueue};

/// What a Non-Privileged Consumer has of a completion queue (verbs draft §8.2.1): it polls, and asks to be told. For as long as it is lent by
/// [`CompletionQueue::poller`].
pub struct CompletionPoller<'a>(pub(crate) &'a mut CompletionQueue);

impl CompletionPoller<'_> {
    /// As [`CompletionQueue::poll`].
    pub fn poll(&mut self) -> Option<WorkCompletion> {
        self.0.poll()
    }

    /// As [`CompletionQueue::arm`].
    pub fn arm(&self, kind: Arm) {
        self.0.arm(kind);
    }

    /// As [`CompletionQueue::wait`].
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<WorkCompletion>> {
        self.0.wait(patience)
    }

    /// As [`CompletionQueue::wait_event`].
    pub fn wait_event(&mut self, patience: Duration) -> io::Result<bool> {
        self.0.wait_event(patience)
    }
}

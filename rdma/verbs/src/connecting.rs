//! A connection that is being made, as its initiator sees it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use crate::control::Control;
use xwarp_rnic::model::ConnectError;
use xwarp_rnic::model::RnicClosed;

/// A connection that is being made. Dropping it lets the attempt go on; its queue pair tells how it ended.
pub struct Connecting {
    outcome: Receiver<Result<Vec<u8>, ConnectError>>,
    control: Arc<Control>,
}

impl Connecting {
    pub(crate) fn new(
        outcome: Receiver<Result<Vec<u8>, ConnectError>>,
        control: Arc<Control>,
    ) -> Self {
        Self { outcome, control }
    }

    /// The result, once there is one: the private data of the peer's answer.
    pub fn try_finish(&mut self) -> Option<Result<Vec<u8>, ConnectError>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                let ended = self.control.ended();
                Some(Err(ended.unwrap_or(RnicClosed.into()).into()))
            }
        }
    }

    /// The result, waiting for it up to `patience`; `None` when there is none by then.
    pub fn wait_for(&mut self, patience: Duration) -> Option<Result<Vec<u8>, ConnectError>> {
        let deadline = Instant::now() + patience;
        let outcome = self.control.receive(&self.outcome, Some(deadline));
        outcome.or_else(|| self.try_finish())
    }

    /// Waits for the result; the limit given to `begin_connect` bounds it.
    pub fn wait(mut self) -> Result<Vec<u8>, ConnectError> {
        let control = Arc::clone(&self.control);
        let outcome = control.receive(&self.outcome, None);
        outcome
            .or_else(|| self.try_finish())
            .unwrap_or(Err(RnicClosed.into()))
    }
}

//! Notification of a queue pair's state changes by a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use xwarp_driver::Signal;
use xwarp_rnic::model::QpState;
use xwarp_rnic::queues::QpShared;

use crate::runtime::control::Control;

/// Notifies the application of a queue pair's state changes. This includes changes that no event
/// and no completion reports: a finished close, or a Terminate that was sent to the peer.
pub struct StateChanges {
    signal: Arc<Signal>,
    shared: Arc<QpShared>,
    #[cfg(feature = "tokio")]
    control: Arc<Control>,
}

impl StateChanges {
    pub(crate) fn new(control: &Arc<Control>, shared: &Arc<QpShared>) -> io::Result<Self> {
        let signal = control.signal()?;
        shared.watch(&signal);
        Ok(Self {
            signal,
            shared: Arc::clone(shared),
            #[cfg(feature = "tokio")]
            control: Arc::clone(control),
        })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// The current state. Clears the descriptor until the next change.
    pub fn take(&self) -> QpState {
        self.signal.clear();
        self.shared.state()
    }

    /// The current state, without clearing the descriptor, for several tasks that wait for it.
    #[cfg(feature = "tokio")]
    pub(crate) fn state(&self) -> QpState {
        self.shared.state()
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl AsFd for StateChanges {
    /// Readable once the queue pair has changed its state since the last [`take`](Self::take), or
    /// since this was created. Do not read from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

//! State changes of a queue pair, as a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use xwarp_driver::Signal;
use xwarp_rnic::model::QpState;
use xwarp_rnic::queues::QpShared;

use crate::runtime::control::Control;

/// Notifies the application of a queue pair's state changes. Reports changes that no event and no
/// completion reports: a close is over, or a Terminate was sent to the peer.
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

    /// The present state. The descriptor is readable again when there is another one.
    pub fn take(&self) -> QpState {
        self.signal.clear();
        self.shared.state()
    }

    /// The present state, for one of several that wait for it.
    #[cfg(feature = "tokio")]
    pub(crate) fn state(&self) -> QpState {
        self.shared.state()
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl AsFd for StateChanges {
    /// Readable once the queue pair has come into another state since [`take`](Self::take), or
    /// since this was made. Do not read from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

//! Completion channel: one descriptor for the completion events of several completion queues, as
//! `ibv_comp_channel` is.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use xwarp_rnic::model::{CqId, CreateError};
use xwarp_rnic::queues::CompletionNotices;

use crate::error::RnicEnded;
use crate::runtime::control::Control;

/// A channel that reports which of its completion queues have received the completion that they
/// were armed for.
///
/// [`Rnic::create_cq_on`](crate::Rnic::create_cq_on) creates a completion queue on it. The queue
/// stays usable if the channel is dropped. A queue that was [armed](crate::CompletionQueue::arm)
/// enters the channel once, with the next completion of that kind. The descriptor is readable while
/// a queue is in the channel, and permanently once the RNIC has ended.
///
/// ```no_run
/// use std::time::Duration;
/// use xwarp::{Rnic, RnicConfig};
/// use xwarp::completion::Arm;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rnic = Rnic::open("eth1", &RnicConfig::default())?;
/// let channel = rnic.create_completion_channel()?;
/// let mut cq = rnic.create_cq_on(&channel, 64)?;
/// loop {
///     // Arm before polling, so that no completion is missed in between.
///     cq.arm(Arm::Next)?;
///     while let Some(completion) = cq.poll()? {
///         println!("{completion:?}");
///     }
///     // An event loop waits for the channel's descriptor and calls try_next instead.
///     channel.next(Duration::from_secs(60))?;
/// }
/// # }
/// ```
pub struct CompletionChannel {
    notices: Arc<CompletionNotices>,
    control: Arc<Control>,
}

impl CompletionChannel {
    pub(crate) fn new(control: &Arc<Control>) -> Result<Self, CreateError> {
        control.check_open()?;
        Ok(Self {
            notices: control.notices()?,
            control: Arc::clone(control),
        })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Takes the completion queue that has been in the channel longest. Runs an inline engine if
    /// the channel is empty.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if the channel is empty and the RNIC has ended.
    pub fn try_next(&self) -> Result<Option<CqId>, RnicEnded> {
        if let Some(cq) = self.notices.take() {
            self.control.keep_raised(self.notices.signal());
            return Ok(Some(cq));
        }
        self.control.turn();
        self.take()
    }

    /// Takes the completion queue that has been in the channel longest, waiting for one up to
    /// `timeout`. `None` if no queue enters the channel in time.
    ///
    /// # Errors
    ///
    /// As [`try_next`](Self::try_next), at once.
    pub fn next(&self, timeout: Duration) -> Result<Option<CqId>, RnicEnded> {
        (self.control).wait_for(self.notices.signal(), timeout, || self.take())
    }

    fn take(&self) -> Result<Option<CqId>, RnicEnded> {
        let signal = self.notices.signal();
        self.control.take_or_ended(signal, || self.notices.take())
    }

    pub(crate) fn notices(&self) -> &Arc<CompletionNotices> {
        &self.notices
    }

    pub(crate) fn is_of(&self, control: &Arc<Control>) -> bool {
        Arc::ptr_eq(&self.control, control)
    }
}

impl AsFd for CompletionChannel {
    /// Readable while [`try_next`](Self::try_next) has something to return. Do not read from it.
    /// With an inline engine this needs calls that run the engine; see
    /// [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.signal().as_fd()
    }
}

//! Faults that end a queue pair's stream, found while sending or receiving.

use xwarp_iwarp::mpa::MpaError;
use xwarp_iwarp::{ReceivedTerminate, Terminate, Violation};

use crate::model::CompletionStatus;

/// An inconsistent state, which only a defect of this library can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inconsistency(pub(crate) &'static str);

/// The full completion queue, by the work queue that completes on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CqOverflow {
    Send,
    Receive,
}

/// Why no buffer is available although some may be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// The next buffer cannot have been posted by an application.
    Malformed(Inconsistency),
    /// The shared receive queue has failed.
    SrqFailed,
}

/// Why sending cannot continue.
pub(crate) enum SendFault {
    /// The current work request is invalid.
    Request(CompletionStatus),
    /// Memory that the peer reads is no longer valid.
    Response(Terminate),
    /// A completion queue was full.
    Overflow(CqOverflow),
    /// The queue pair is inconsistent.
    Inconsistency(Inconsistency),
}

impl From<Inconsistency> for SendFault {
    fn from(broken: Inconsistency) -> Self {
        Self::Inconsistency(broken)
    }
}

impl From<CqOverflow> for SendFault {
    fn from(overflow: CqOverflow) -> Self {
        Self::Overflow(overflow)
    }
}

/// Why receiving cannot continue.
pub(crate) enum ReceiveFault {
    /// A message waits for a receive buffer, which is no fault of the stream.
    NotReady,
    Mpa(MpaError),
    Violation(Violation),
    /// A receive buffer is not usable.
    Buffer(CompletionStatus),
    Terminated(ReceivedTerminate),
    /// The response to a work request of this side could not be placed; the work request completes
    /// with the status.
    Sink {
        status: CompletionStatus,
        what: &'static str,
    },
    /// The peer requests a response after this side has sent its FIN.
    RequestAfterClose,
    Overflow(CqOverflow),
    /// The queue pair is inconsistent.
    Inconsistency(Inconsistency),
}

impl From<Inconsistency> for ReceiveFault {
    fn from(broken: Inconsistency) -> Self {
        Self::Inconsistency(broken)
    }
}

impl From<CqOverflow> for ReceiveFault {
    fn from(overflow: CqOverflow) -> Self {
        Self::Overflow(overflow)
    }
}

/// A failure that a test injects.
#[cfg(feature = "fault-injection")]
#[derive(Default)]
pub(crate) struct Injected(bool);

#[cfg(feature = "fault-injection")]
impl Injected {
    /// Makes the next check fail.
    pub(crate) fn inject(&mut self) {
        self.0 = true;
    }

    /// True if the next check fails.
    pub(crate) fn is_pending(&self) -> bool {
        self.0
    }

    pub(crate) fn check(&mut self) -> Result<(), Inconsistency> {
        if std::mem::take(&mut self.0) {
            return Err(Inconsistency("a test wants it so"));
        }
        Ok(())
    }
}

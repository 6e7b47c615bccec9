//! Faults that end a queue pair's stream: what was found while sending or receiving.

use xwarp_iwarp::mpa::MpaError;
use xwarp_iwarp::{ReceivedTerminate, Terminate, Violation};

use crate::model::CompletionStatus;

/// What is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inconsistency(pub(crate) &'static str);

/// A completion of a queue pair did not fit into the completion queue of this work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CqOverflow {
    Send,
    Receive,
}

/// Why there is no buffer, though there may be some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// The one that is next is none that can have been posted.
    Malformed(Inconsistency),
    /// The shared receive queue has failed.
    SrqFailed,
}

/// Why sending cannot go on.
pub(crate) enum SendFault {
    /// The current work request is at fault.
    Request(CompletionStatus),
    /// Memory that the peer asked for is no longer there.
    Response(Terminate),
    /// A completion queue was full.
    Overflow(CqOverflow),
    /// The queue pair is not as it must be.
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

/// Why receiving cannot go on.
pub(crate) enum ReceiveFault {
    Mpa(MpaError),
    Violation(Violation),
    /// A receive buffer of ours is not usable.
    Buffer(CompletionStatus),
    Terminated(ReceivedTerminate),
    /// What should have been done with the response to a work request of ours could not be; its
    /// outcome says so.
    Sink {
        status: CompletionStatus,
        what: &'static str,
    },
    /// The peer asks for a response, and we have sent our FIN.
    RequestAfterClose,
    Overflow(CqOverflow),
    /// The queue pair is not as it must be.
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

/// A failure that a test has asked for.
#[cfg(feature = "fault-injection")]
#[derive(Default)]
pub(crate) struct Injected(bool);

#[cfg(feature = "fault-injection")]
impl Injected {
    /// The next check fails.
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

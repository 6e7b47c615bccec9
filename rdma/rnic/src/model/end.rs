//! End of a queue pair's connection: its cause.

use std::fmt;

use super::completion::CompletionStatus;
use super::event::AsyncEventKind;

/// Why the connection of a queue pair has ended. Outstanding work then completes as
/// [`CompletionStatus::Flushed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// Also reported by an asynchronous event of the queue pair. [`AsyncEventKind::Closed`] is the
    /// end of a graceful close.
    Event(AsyncEventKind),
    /// A work request of this side has failed. Its completion has this status.
    WorkFailed(CompletionStatus),
    /// The application has ended it: by Modify QP to Terminate or Error, or `QueuePair::abort`.
    Application,
    /// The RNIC has failed as a whole, as [`AsyncEventKind::Failed`] reports.
    Rnic,
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => describe(event, f),
            Self::WorkFailed(status) => write!(f, "a work request of this side failed: {status}"),
            Self::Application => f.write_str("the application of this side has ended it"),
            Self::Rnic => f.write_str("the RNIC has failed"),
        }
    }
}

/// Describes the connection's end in an event.
fn describe(event: &AsyncEventKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use AsyncEventKind as Kind;
    match event {
        Kind::Closed => f.write_str("both sides have closed it"),
        Kind::TerminateReceived(code) => write!(f, "the peer has terminated it: {code}"),
        Kind::Terminated { code, reason, .. } => {
            write!(
                f,
                "this side has terminated it: {reason}; the Terminate says {code}"
            )
        }
        Kind::Ended => f.write_str("this side has ended it"),
        Kind::ConnectionReset => f.write_str("the peer has reset it"),
        Kind::ConnectionLost { reason }
        | Kind::BadClose { reason }
        | Kind::BadPeerClose { reason } => f.write_str(reason),
        Kind::SendCqError => f.write_str("the completion queue of its send queue had no room"),
        Kind::RecvCqError => f.write_str("the completion queue of its receive queue had no room"),
        Kind::SrqError => f.write_str("its shared receive queue has failed"),
        Kind::QpCatastrophic { reason } => {
            write!(f, "this side has lost track of the queue pair: {reason}")
        }
        Kind::Failed { reason } => write!(f, "the RNIC has failed: {reason}"),
        // These events end no connection.
        Kind::CqFailed
        | Kind::SrqFailed
        | Kind::CqOverflow
        | Kind::SrqLimitReached
        | Kind::RqLimitReached
        | Kind::EventsLost { .. } => write!(f, "{event:?}"),
    }
}

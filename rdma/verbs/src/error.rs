//! Why a verb could not be done: the immediate errors (verbs draft §9.5.1), one type per group of verbs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xwarp_driver::{NicError, RegionAreaFull};
use xwarp_iwarp::mpa::{EnhancedData, PrivateDataTooLong, StartupError};

use crate::host::HostError;
use crate::memory::SpecError;
use crate::qp_state::QpState;

/// The RNIC behind a handle has been closed or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the RNIC is closed")]
pub struct RnicClosed;

/// Why an RNIC could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The interface.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A resource of the host, such as a thread or a file descriptor.
    #[error("the RNIC could not be set up: {0}")]
    System(#[from] std::io::Error),
}

/// More of something than the RNIC supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {wanted} is not possible: this RNIC supports {min} to {max}")]
pub struct Capability {
    /// The attribute.
    pub what: &'static str,
    /// What was asked for.
    pub wanted: usize,
    /// The smallest value.
    pub min: usize,
    /// The largest value.
    pub max: usize,
}

impl Capability {
    pub(crate) fn check(
        what: &'static str,
        wanted: usize,
        min: usize,
        max: usize,
    ) -> Result<(), Self> {
        if (min..=max).contains(&wanted) {
            return Ok(());
        }
        Err(Self {
            what,
            wanted,
            min,
            max,
        })
    }
}

/// Why a completion queue or queue pair could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// More of something than the RNIC supports.
    #[error(transparent)]
    Capability(#[from] Capability),
    /// No such completion event handler.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// A completion queue of another RNIC, or one that is gone.
    #[error("the completion queue belongs to another RNIC")]
    InvalidCq,
    /// A shared receive queue of another RNIC.
    #[error("the shared receive queue belongs to another RNIC")]
    InvalidSrq,
    /// A shared receive queue's limit exceeds its depth, so that it would always be reached.
    #[error("a limit of {limit} is out of range: the shared receive queue holds {depth}")]
    LimitOutOfRange {
        /// What was asked for.
        limit: usize,
        /// Work requests that it holds.
        depth: usize,
    },
    /// The peer-to-peer model without an RTR (R6581-9.2-1).
    #[error("a queue pair of the peer-to-peer model needs at least one RTR type (RFC 6581 §9.2)")]
    NoRtr,
    /// The peer-to-peer model is required, and the RNIC speaks MPA revision 1 only.
    #[error(
        "the peer-to-peer model needs MPA revision 2 (RFC 6581 §9.2), and this RNIC was opened with revision 1 as the highest"
    )]
    NeedsRevisionTwo,
    /// A resource of the host.
    #[error("the object could not be set up: {0}")]
    System(#[from] std::io::Error),
}

/// Why memory could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// Rights, list or Tagged Offsets that are not possible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The region area is used up.
    #[error(transparent)]
    Full(#[from] RegionAreaFull),
    /// All `STag`s are taken.
    #[error("there are 65535 regions and windows already; deallocate some")]
    TooManyStags,
    /// The region is not Valid, or shared where only one that is not will do.
    #[error("the region's STag is invalid, or that of a shared region")]
    InvalidStag,
    /// Windows are bound to the region.
    #[error("memory windows are still bound to the region")]
    WindowsBound,
    /// A protection domain of another RNIC.
    #[error("the protection domain belongs to another RNIC")]
    OtherRnic,
    /// The kernel gave no random octets for an `STag`.
    #[error("the system's random number source failed")]
    NoRandomness,
}

/// Why a region was not registered anew. With an error of the RNIC, the `STag` or its windows the region is as it was; any other has
/// deallocated it (verbs draft §7.3.2.3).
#[derive(Debug, thiserror::Error)]
#[error("{cause}{}", if region.is_some() { "; the region is as it was" } else { "; the region is deallocated" })]
pub struct ReregisterError<R> {
    /// The region, if it is as it was.
    pub region: Option<R>,
    /// What is wrong.
    pub cause: RegisterError,
}

/// Why an `STag` was not deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeallocateError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// No region or window has it.
    #[error("no region or window has this STag")]
    InvalidStag,
    /// Windows are bound to the region.
    #[error("memory windows are still bound to the region")]
    WindowsBound,
}

/// Why nothing is told of a region or window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// No object of that kind has it.
    #[error("no such region or window has this STag")]
    InvalidStag,
}

/// A verb that would end an object was refused: the object is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused<T, E> {
    /// The object.
    pub object: T,
    /// Why.
    pub error: E,
}

/// Why a queue was not resized. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// More than the RNIC supports.
    #[error(transparent)]
    Capability(#[from] Capability),
    /// What is in the queue does not fit.
    #[error("{present} elements are in the queue, so that it cannot be of {wanted}")]
    TooManyPresent {
        /// How many there are.
        present: usize,
        /// What was asked for.
        wanted: usize,
    },
}

/// Why a shared receive queue was not modified. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifySrqError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// Its depth.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The limit exceeds the depth.
    #[error("a limit of {limit} is out of range: the shared receive queue holds {depth}")]
    LimitOutOfRange {
        /// What was asked for.
        limit: usize,
        /// Work requests that it holds.
        depth: usize,
    },
    /// The depth would be less than a limit that is armed.
    #[error("a depth of {depth} is less than the armed limit of {limit}")]
    BelowLimit {
        /// What was asked for.
        depth: usize,
        /// The armed limit.
        limit: usize,
    },
}

/// Why nothing was done with a completion event handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// No such handler, or one that was cleared.
    #[error("there is no such completion event handler")]
    Unknown,
    /// The RNIC has as many as it can.
    #[error("there are {0} completion event handlers already; clear some")]
    TooMany(usize),
}

/// Why an object was not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestroyError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// Windows are bound to it.
    #[error("memory windows are still bound to the queue pair")]
    WindowsBound,
    /// Queue pairs use it.
    #[error("queue pairs still use it")]
    InUse,
}

/// Why a queue pair was not modified. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// There is no such transition, or the queue pair is in Closing or Terminate, where none can be asked for.
    #[error("a queue pair cannot be taken from {from:?} to {to:?}")]
    InvalidStateChange {
        /// The state that it is in.
        from: QpState,
        /// The state that was asked for.
        to: QpState,
    },
    /// An attribute does not go with the transition, or one that must is missing.
    #[error("{what} with a change from {from:?} to {to:?}")]
    InvalidModifier {
        /// What is there or is missing.
        what: &'static str,
        /// The state that the queue pair is in.
        from: QpState,
        /// The state that was asked for.
        to: QpState,
    },
    /// An attribute cannot be changed like this.
    #[error("{0} cannot be changed like this: it is settled when the queue pair is created")]
    CannotChange(&'static str),
    /// More of something than the RNIC supports.
    #[error(transparent)]
    Capability(#[from] Capability),
    /// The stream is one of another RNIC, or belongs to a queue pair, or is not able to send and to receive.
    #[error("the stream is not established, belongs to a queue pair already, or to another RNIC")]
    InvalidStream,
    /// A connection is being made for it by the connection manager.
    #[error("the queue pair is being connected")]
    Connecting,
}

/// Why a work request was not posted. Nothing of it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// The queue is full.
    #[error("too many work requests posted: the queue holds {0}; poll completions first")]
    TooManyWorkRequests(usize),
    /// The queue pair has left RTS.
    #[error("the queue pair is in state {0:?}, where nothing can be posted")]
    InvalidState(QpState),
    /// A message of 4 GiB or more.
    #[error("the message is longer than 2^32 - 1 octets (RFC 5041 §5.2)")]
    TooLong,
    /// `STag` 0 can be neither bound to, registered nor invalidated (verbs draft §7.2.1).
    #[error("STag 0 can be neither bound to, registered nor invalidated (verbs draft §7.2.1)")]
    StagZero,
    /// The queue pair takes its receive buffers from a shared receive queue.
    #[error("the queue pair has a shared receive queue: post receive buffers there")]
    SharedReceiveQueue,
    /// An operation of RFC 7306 on a queue pair that was made without.
    #[error("the queue pair was created without Immediate Data and Atomic Operations (RFC 7306)")]
    ExtensionsDisabled,
}

/// Why a list of work requests was not posted to its end (verbs draft §8.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{posted} work requests were posted, the next one was not: {error}")]
pub struct PostListError {
    /// Work requests that were posted, and stay so.
    pub posted: usize,
    /// Why the next one was not.
    pub error: PostError,
}

impl PostListError {
    /// Posts a list up to the first one that is refused; how many were posted.
    pub(crate) fn post<T>(
        requests: impl IntoIterator<Item = T>,
        mut post: impl FnMut(T) -> Result<(), PostError>,
    ) -> Result<usize, Self> {
        let mut posted = 0;
        for request in requests {
            post(request).map_err(|error| Self { posted, error })?;
            posted += 1;
        }
        Ok(posted)
    }
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// The host does not know the way, or the way leads elsewhere.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The queue pair has a connection already, or has failed.
    #[error("the queue pair is in state {0:?}; only an Idle one can be connected")]
    InvalidState(QpState),
    /// Private data has a limit (RFC 5044 §7.1.1): 512 octets, 4 of which revision 2 needs (RFC 6581 §6).
    #[error("private data of {len} octets is too long: at most {limit} fit into this MPA Request")]
    PrivateDataTooLong {
        /// Octets that were given.
        len: usize,
        /// Octets that fit.
        limit: usize,
    },
    /// No listener.
    #[error("connection refused: no program listens at {0}")]
    Refused(SocketAddr),
    /// No answer.
    #[error("{peer} did not complete the connection within {seconds:.1} s ({stage})", seconds = limit.as_secs_f64())]
    TimedOut {
        /// Whom.
        peer: SocketAddr,
        /// The limit that is over.
        limit: Duration,
        /// What was waited for.
        stage: &'static str,
    },
    /// The peer ended the connection during start-up.
    #[error(
        "{0} closed the connection during MPA start-up: it does not speak iWARP there, or refused it"
    )]
    PeerClosed(SocketAddr),
    /// The peer's answer is not a valid MPA Reply.
    #[error("{peer} does not speak iWARP: {source}")]
    NotIwarp {
        /// Whom.
        peer: SocketAddr,
        /// What is wrong with its answer.
        source: StartupError,
    },
    /// The peer's application said no.
    #[error("{peer} rejected the connection")]
    Rejected {
        /// Whom.
        peer: SocketAddr,
        /// What it said along with it.
        private_data: Vec<u8>,
        /// Its depths, if it speaks revision 2: its ORD may be the one that it would have needed (RFC 6581 §9.1).
        enhanced: Option<EnhancedData>,
    },
    /// The peer accepted on terms that cannot be met; a Terminate has told it so (RFC 6581 §8).
    #[error("{peer} accepted the connection, but its terms cannot be met: {source}")]
    Unacceptable {
        /// Whom.
        peer: SocketAddr,
        /// Which term.
        source: StartupError,
    },
    /// Connections are used up.
    #[error("no further connection is possible: {0}")]
    Resources(String),
}

/// Why a stream could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// The connection has ended, or a queue pair has it.
    #[error("the stream has ended, or belongs to a queue pair")]
    Gone,
    /// The peer has closed its side, and all that it sent has been read.
    #[error("the peer has closed the stream")]
    PeerClosed,
    /// It took longer than it may.
    #[error("the stream was not ready in time")]
    TimedOut,
}

/// Why a port could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// The address or the port.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An address of another interface.
    #[error("{address} is not an address of {interface}; it has {}", list(has))]
    NotOurs {
        /// What was asked for.
        address: IpAddr,
        /// The interface.
        interface: String,
        /// Its addresses.
        has: Vec<IpAddr>,
    },
    /// Listened on already.
    #[error("this RNIC listens on {0} already")]
    Taken(SocketAddr),
}

/// Why a connection request could not be accepted or rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// No RNIC.
    #[error(transparent)]
    Closed(#[from] RnicClosed),
    /// The peer has gone meanwhile.
    #[error("the peer has ended the connection meanwhile")]
    PeerGone,
    /// The queue pair has a connection already, or has failed.
    #[error("the queue pair is in state {0:?}; only an Idle one can accept")]
    InvalidState(QpState),
    /// Private data has a limit (RFC 5044 §7.1.1): 512 octets, 4 of which revision 2 needs (RFC 6581 §6).
    #[error("private data of {len} octets is too long: at most {limit} fit into this MPA Reply")]
    PrivateDataTooLong {
        /// Octets that were given.
        len: usize,
        /// Octets that fit.
        limit: usize,
    },
}

impl From<PrivateDataTooLong> for AcceptError {
    fn from(PrivateDataTooLong { len, limit }: PrivateDataTooLong) -> Self {
        Self::PrivateDataTooLong { len, limit }
    }
}

fn list(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

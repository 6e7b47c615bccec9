//! Errors: how each verb can fail, why a peer's message was refused, and Terminate codes.
//!
//! This file defines the errors that only handles return: of opening, ending, waiting and posting
//! lists.

use std::io;
use std::iter;
use std::time::Duration;

use xwarp_driver::lacking;
use xwarp_rnic::queues::WorkQueue;

pub use xwarp_driver::attach::{AttachError, ProgramError, User};
pub use xwarp_driver::net::{InterfaceError, NeighbourError, NetlinkError, PortError, RouteError};
pub use xwarp_driver::switch::{Refusal, SwitchError};
pub use xwarp_driver::{
    AtomicAccessError, BusyPollError, CaptureError, CopyError, NicError, NoSuchQueues,
    OpenQueueError, OutOfBounds, RawPartsError, RegionAreaFull, SteeringError, TapError, UmemError,
};
pub use xwarp_iwarp::TermCode;
pub use xwarp_iwarp::mpa::StartupError;
pub use xwarp_rnic::model::{
    AcceptError, CapabilityError, ConnectError, CreateError, DeallocateError, DestroyError,
    HandlerError, HostError, InboundError, ListenError, ModifyError, OutOfMemory, PostError,
    ProtectionError, QueryError, RegisterError, RemoteAddressError, ResizeError, RnicUnavailable,
    SpecError, StreamError,
};

/// Why an RNIC could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The interface cannot be used.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The software switch cannot be used.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A resource of the host, such as a thread or a file descriptor.
    #[error("the RNIC could not be set up{}", lacking(.0))]
    System(#[from] io::Error),
    /// An option is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// An invalid option of [`RnicConfig`](crate::RnicConfig).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `ack_delay` exceeds what TCP allows.
    #[error(
        "an acknowledgment cannot wait for {0:?} (ack_delay): 499 ms are the most (RFC 9293 §3.8.6.3)"
    )]
    AckDelay(Duration),
    /// `min_rto` exceeds one minute, TCP's limit here.
    #[error(
        "a retransmission cannot wait for {0:?} at least (min_rto): one minute is the most that any waits"
    )]
    MinRto(Duration),
    /// BBR ignores ECN marks.
    #[error(
        "ECN is not for BBR, which takes no marks: leave ECN out, or use CUBIC, NewReno or DCTCP"
    )]
    EcnWithBbr,
    /// An option that must not be zero: its name.
    #[error("{0} cannot be zero; leave it out for its default")]
    Zero(&'static str),
}

/// Why an RNIC returns no more events, requests or bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RnicEnded {
    /// The RNIC was closed, or its handler made the call, which cannot wait.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The RNIC has failed. [`AsyncEventKind::Failed`](crate::event::AsyncEventKind::Failed)
    /// reports the failure, too.
    #[error("the RNIC has failed: {0}")]
    Failed(String),
}

impl From<RnicEnded> for ConnectError {
    fn from(ended: RnicEnded) -> Self {
        match ended {
            RnicEnded::Unavailable(why) => Self::Unavailable(why),
            RnicEnded::Failed(reason) => Self::Failed(reason),
        }
    }
}

/// Error of a verb that ends an object. The object is returned unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RefusedError<T, E> {
    /// The object, boxed to keep the result of a successful verb small.
    pub object: Box<T>,
    /// Why it was refused.
    pub error: E,
}

impl<T, E> RefusedError<T, E> {
    pub(crate) fn new(object: T, error: E) -> Self {
        let object = Box::new(object);
        Self { object, error }
    }

    /// Returns the object if the verb failed.
    pub(crate) fn unless(ended: Result<(), E>, object: T) -> Result<(), Self> {
        ended.map_err(|error| Self::new(object, error))
    }
}

/// Why a reregistration failed. With an error of the RNIC, the `STag` or its windows the region is
/// unchanged; any other error has deallocated it (verbs draft §7.3.2.3).
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", if region.is_some() { "; the region is as it was" } else { "; the region is deallocated" })]
#[non_exhaustive]
pub struct ReregisterError<R> {
    /// The region, if it is unchanged.
    pub region: Option<R>,
    /// Why it was not registered.
    pub error: RegisterError,
}

/// Why a queue pair did not hand out its data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataPathError {
    /// Another holder has the data path.
    #[error("the queue pair's data path was taken: there is one only")]
    Taken,
    /// Work requests of the queue pair may access physical memory.
    #[error(
        "the queue pair is privileged: work that is posted to it reaches all physical memory of the RNIC (verbs draft §6.1.1)"
    )]
    Privileged,
}

/// Why a shared receive queue was not modified. The queue is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifySrqError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// The depth is not possible.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The limit exceeds the depth.
    #[error("a limit of {limit} is out of range: the shared receive queue holds {depth}")]
    LimitOutOfRange {
        /// The requested limit.
        limit: usize,
        /// Work requests that it holds.
        depth: usize,
    },
    /// The depth would be below the armed limit.
    #[error("a depth of {depth} is less than the armed limit of {limit}")]
    BelowLimit {
        /// The requested depth.
        depth: usize,
        /// The armed limit.
        limit: usize,
    },
}

/// Why a list of work requests was posted only in part (verbs draft §8.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{posted} work requests were posted, the next one was not: {error}")]
#[non_exhaustive]
pub struct PostListError {
    /// Number of posted work requests, which stay posted.
    pub posted: usize,
    /// Error of the first refused request.
    pub error: PostError,
}

impl PostListError {
    /// Posts a list up to the first refused request. Returns the number of posted requests.
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

    /// Posts a list to a queue, up to the first request that `check` refuses or that finds no room.
    /// Returns the number of posted requests. All requests that fit enter the queue by one store.
    #[inline]
    pub(crate) fn post_runs<T>(
        requests: impl IntoIterator<Item = T>,
        queue: &mut WorkQueue<T>,
        check: impl Fn(&T) -> Result<(), PostError>,
    ) -> Result<usize, Self> {
        let (mut requests, mut posted) = (requests.into_iter(), 0);
        loop {
            let room = queue.room();
            if room == 0 {
                let Some(next) = requests.next() else {
                    return Ok(posted);
                };
                let full = PostError::TooManyWorkRequests(queue.depth());
                let error = check(&next).err().unwrap_or(full);
                return Err(Self { posted, error });
            }
            let mut refused = None;
            let taken = iter::from_fn(|| {
                let request = requests.next()?;
                refused = check(&request).err();
                refused.is_none().then_some(request)
            });
            let run = queue.push_run(room, taken);
            posted += run;
            if let Some(error) = refused {
                return Err(Self { posted, error });
            }
            if run < room {
                return Ok(posted);
            }
        }
    }
}

impl From<PostError> for PostListError {
    /// Nothing was posted.
    fn from(error: PostError) -> Self {
        Self { posted: 0, error }
    }
}

/// Why a wait failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// A resource of the host.
    #[error("the wait for a completion failed")]
    System(#[from] std::io::Error),
}

/// Why a connection was not closed by both sides in time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DisconnectError {
    /// The timeout has expired. The close continues.
    #[error("the close was not over within the time")]
    TimedOut,
    /// The connection failed first. An asynchronous event or a completion has the cause.
    #[error("the connection failed before both sides had closed it")]
    Failed,
    /// The RNIC was closed, or its handler made the call.
    #[error(transparent)]
    Unavailable(#[from] RnicUnavailable),
    /// A resource of the host.
    #[error("the wait for the close failed")]
    System(#[from] std::io::Error),
}

impl From<WaitError> for DisconnectError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Unavailable(why) => Self::Unavailable(why),
            WaitError::System(error) => Self::System(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use nix::errno::Errno;
    use xwarp_iwarp::mpa::StartupError;
    use xwarp_rnic::model::CreateError;

    use super::*;

    #[test]
    fn missing_resource_is_named_with_its_limit() {
        let said = |errno: Errno| OpenError::System(errno.into()).to_string();
        for (errno, limit) in [
            (
                Errno::EAGAIN,
                "no thread is left: raise the limit of threads (`ulimit -u`",
            ),
            (Errno::EMFILE, "(`ulimit -n`)"),
            (Errno::ENFILE, "fs.file-max"),
            (Errno::ENOMEM, "`ulimit -v`"),
        ] {
            assert!(said(errno).contains(limit), "{}", said(errno));
        }
        assert_eq!(said(Errno::EINVAL), "the RNIC could not be set up");
    }

    /// A program that prints an error prints its causes after it.
    #[test]
    fn error_leaves_its_cause_to_the_cause() {
        let peer = ([10, 0, 0, 1], 7471).into();
        let source = StartupError::NotMpa;
        let system = || io::Error::from_raw_os_error(24);
        let errors: [Box<dyn Error>; 6] = [
            Box::new(ConnectError::NotIwarp { peer, source }),
            Box::new(ConnectError::Unacceptable { peer, source }),
            Box::new(OpenError::System(system())),
            Box::new(CreateError::System(system())),
            Box::new(WaitError::System(system())),
            Box::new(DisconnectError::System(system())),
        ];
        for error in errors {
            let cause = error.source().expect("a cause").to_string();
            assert!(!error.to_string().contains(&cause), "{error}: {cause}");
        }
    }
}

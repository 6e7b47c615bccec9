//! RNIC behind the C interface: objects with verbs, attributes in small structs, errors as error
//! numbers.
//!
//! `local` has the objects. No other module names a type of xwarp. Posting and polling go through
//! the ports of a queue, by one call for a list.

mod local;
pub(crate) mod single;

use std::sync::Arc;

use nix::errno::Errno;

use crate::abi::requests::{RecvList, SendList};
use crate::abi::verbs::ibv_wc;
use crate::entry::Result;

#[cfg(test)]
pub(crate) use local::POLL_TIME;
pub(crate) use local::connection_event;
#[cfg(any(test, feature = "testbed"))]
pub(crate) use local::testbed;
pub(crate) use local::{
    Backend, BackendRef, Cq, Mr, Mw, Pd, PeerRequest, Port, Qp, QpRequest, Srq, limits, open,
    times_are_wanted,
};

use single::Single;

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) qps: usize,
    pub(crate) depth: usize,
    pub(crate) sge: usize,
    pub(crate) inline: usize,
    pub(crate) cqs: usize,
    pub(crate) cq_entries: usize,
    /// Regions and windows together.
    pub(crate) stags: usize,
    pub(crate) pds: usize,
    pub(crate) srqs: usize,
    /// Reads that a queue pair may have outstanding, or answers at once.
    pub(crate) reads: usize,
}

/// Memory of this process that is to be registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// Tagged Offset of the first byte.
    pub(crate) offset: u64,
    /// It need not be writable.
    pub(crate) read_only: bool,
}

/// How a reregistration has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReregisterFailure {
    pub(crate) errno: Errno,
    /// The region is gone.
    pub(crate) is_lost: bool,
}

/// Rights of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a right of its own")]
pub(crate) struct Rights {
    pub(crate) local_write: bool,
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) remote_atomic: bool,
    pub(crate) bind_windows: bool,
}

/// How a shared receive queue is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqSizes {
    pub(crate) depth: usize,
    pub(crate) sge: usize,
    pub(crate) limit: usize,
}

/// What is changed of a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqChange {
    pub(crate) depth: Option<usize>,
    /// The limit to be armed.
    pub(crate) limit: Option<usize>,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpSizes {
    pub(crate) send_depth: usize,
    pub(crate) recv_depth: usize,
    pub(crate) send_sge: usize,
    pub(crate) recv_sge: usize,
    pub(crate) inline: usize,
}

/// What a queue pair is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpStatus {
    /// Without a connection.
    Idle,
    /// With one, which may be closing.
    Connected,
    /// Work is flushed.
    Error,
}

/// A queue pair as Query QP sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpView {
    pub(crate) status: QpStatus,
    /// Reads of the peer that are answered at once.
    pub(crate) ird: u16,
    /// Reads that may be outstanding.
    pub(crate) ord: u16,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// The connection of a queue pair was closed by both sides.
    Closed,
    /// The connection of a queue pair has ended by an error that a completion reports, or by a verb
    /// of this side.
    Ended,
    /// The connection of a queue pair is lost: the peer has reset it, or no longer answers.
    Lost,
    /// A queue pair has failed.
    QpFatal,
    /// The peer has violated its rights.
    QpAccess,
    /// The peer has sent what is not allowed.
    QpRequest,
    CqError,
    SrqError,
    /// A shared receive queue has fewer buffers than its limit.
    SrqLimit,
    /// The interface is up and has a carrier again.
    PortActive,
    /// It is down, or has no carrier.
    PortError,
    /// The RNIC has failed.
    DeviceFatal,
    /// The RNIC has failed, and the ends of its connections were reported. A thread that holds no
    /// lock reports this, so the target may take locks.
    DeviceGone,
}

/// Receives the asynchronous events of an object.
pub(crate) trait EventTarget: Send + Sync {
    /// It has happened. Called in the middle of a turn of the engine unless the device is gone, so
    /// it may only record it.
    fn notify(&self, happening: Happening);
}

/// Called when a completion queue has the completion that it was armed for, in the middle of a turn
/// of the engine.
pub(crate) type CompletionCallback = Arc<dyn Fn() + Send + Sync>;

/// How far a list was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostFailure {
    /// Requests before the one that was refused.
    pub(crate) posted: usize,
    pub(crate) errno: Errno,
}

/// Posts to a queue pair, from any thread.
pub(crate) trait QpPort: Send + Sync {
    fn post_send(&self, list: SendList<'_>) -> std::result::Result<(), PostFailure>;
    /// Posts a request that is whole.
    fn post_single(&self, request: &Single) -> Result<()>;
    /// Posts a list as a whole, or nothing of it.
    fn post_all(&self, list: SendList<'_>) -> Result<()>;
    fn post_recv(&self, list: RecvList<'_>) -> std::result::Result<(), PostFailure>;
}

/// Posts to a shared receive queue, from any thread.
pub(crate) trait SrqPort: Send + Sync {
    fn post_recv(&self, list: RecvList<'_>) -> std::result::Result<(), PostFailure>;
}

/// Polls a completion queue, from any thread.
pub(crate) trait CqPort: Send + Sync {
    /// Takes completions, up to as many as there are places, and returns their number.
    fn poll(&self, places: &mut [ibv_wc]) -> Result<u32>;
    /// Takes a completion, if there is one, and its time: nanoseconds by the NIC's clock, or 0.
    fn poll_timed(&self, place: &mut ibv_wc) -> Result<Option<u64>>;
    /// Asks for a notice of the next completion, or of the next solicited one.
    fn arm(&self, solicited_only: bool) -> Result<()>;
}

//! RNIC behind the C interface: objects with verbs, attributes in small structs, errors as error
//! numbers.
//!
//! Only `local` names types of xwarp; it has the objects. Programs post and poll through the ports
//! of a queue, with one call for a list.

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
    Backend, BackendRef, Cq, Mr, Mw, Pd, PeerRequest, Port, Qp, QpRequest, Srq, Timer, limits,
    open, say_what_was_carried, times_are_wanted,
};

use single::Single;

/// Capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) qps: usize,
    pub(crate) depth: usize,
    pub(crate) sge: usize,
    pub(crate) inline: usize,
    pub(crate) cqs: usize,
    pub(crate) cq_entries: usize,
    /// Regions and windows in total.
    pub(crate) stags: usize,
    pub(crate) pds: usize,
    pub(crate) srqs: usize,
    /// Reads that a queue pair may have outstanding (ORD), or answers at once (IRD).
    pub(crate) reads: usize,
}

/// Memory of this process to be registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// Tagged Offset of the first byte.
    pub(crate) offset: u64,
    /// Read-only memory is enough.
    pub(crate) read_only: bool,
}

/// Reasons for which a reregistration fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReregisterFailure {
    pub(crate) errno: Errno,
    /// The region is deregistered.
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

impl Rights {
    /// All that a peer may have.
    pub(crate) const REMOTE: Self = Self {
        local_write: false,
        remote_read: true,
        remote_write: true,
        remote_atomic: true,
        bind_windows: false,
    };
}

/// Attributes that a shared receive queue is created with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqSizes {
    pub(crate) depth: usize,
    pub(crate) sge: usize,
    pub(crate) limit: usize,
}

/// Changes to a shared receive queue.
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

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpStatus {
    /// Without a connection.
    Idle,
    /// With a connection, which may be closing.
    Connected,
    /// Work requests are flushed.
    Error,
}

/// Attributes that Query QP reports of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpView {
    pub(crate) status: QpStatus,
    /// Sends are posted that have not completed.
    pub(crate) has_sends: bool,
    /// Reads of the peer that are answered at once (IRD).
    pub(crate) ird: u16,
    /// Reads that may be outstanding (ORD).
    pub(crate) ord: u16,
}

/// Asynchronous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// Both sides have closed the connection of a queue pair.
    Closed,
    /// The connection of a queue pair has ended by an error that a completion reports, or by a verb
    /// of this side.
    Ended,
    /// The connection of a queue pair is lost: the peer has reset it, or no longer answers.
    Lost,
    /// A queue pair has failed.
    QpFatal,
    /// The peer has violated its access rights.
    QpAccess,
    /// The peer has sent an invalid request.
    QpRequest,
    CqError,
    SrqError,
    /// A shared receive queue has fewer buffers than its limit.
    SrqLimit,
    /// The interface is up and has a carrier again.
    PortActive,
    /// The interface is down, or has no carrier.
    PortError,
    /// The RNIC has failed.
    DeviceFatal,
    /// The RNIC has failed, and the ends of its connections have been reported. The reporting
    /// thread holds no lock, so the target may take locks.
    DeviceGone,
}

/// Receives the asynchronous events of an object.
pub(crate) trait EventTarget: Send + Sync {
    /// Reports an event. Called in the middle of a turn of the engine unless the device is gone, so
    /// it may only record the event.
    fn notify(&self, happening: Happening);
}

/// Called when a completion queue has the completion that it was armed for, in the middle of a turn
/// of the engine.
pub(crate) type CompletionCallback = Arc<dyn Fn() + Send + Sync>;

/// Result of posting a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostFailure {
    /// Requests that were posted before the refused one.
    pub(crate) posted: usize,
    pub(crate) errno: Errno,
}

/// Posts to a queue pair, from any thread.
pub(crate) trait QpPort: Send + Sync {
    fn post_send(&self, list: SendList<'_>) -> std::result::Result<(), PostFailure>;
    /// Posts a complete request.
    fn post_single(&self, request: &Single) -> Result<()>;
    /// Posts a whole list, or nothing of it.
    fn post_all(&self, list: SendList<'_>) -> Result<()>;
    fn post_recv(&self, list: RecvList<'_>) -> std::result::Result<(), PostFailure>;
}

/// Posts to a shared receive queue, from any thread.
pub(crate) trait SrqPort: Send + Sync {
    fn post_recv(&self, list: RecvList<'_>) -> std::result::Result<(), PostFailure>;
}

/// Polls a completion queue, from any thread.
pub(crate) trait CqPort: Send + Sync {
    /// Takes as many completions as there are places, at most, and returns their number.
    fn poll(&self, places: &mut [ibv_wc]) -> Result<u32>;
    /// Takes a completion, if there is one, and its time: nanoseconds by the NIC's clock, or 0.
    fn poll_timed(&self, place: &mut ibv_wc) -> Result<Option<u64>>;
    /// Arms the queue for the next completion, or for the next solicited one.
    fn arm(&self, solicited_only: bool) -> Result<()>;
}

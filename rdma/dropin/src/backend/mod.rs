//! RNIC behind the C interface, in plain data: handles are keys, attributes are small structs,
//! errors are error numbers.
//!
//! `local` has the RNIC in this process. A service process can stand behind the same trait later, so nothing here names a type of xwarp.
//! Posting and polling do not go through [`Backend`] but through the ports of a queue, by one call for a list.

pub(crate) mod connections;
mod local;
pub(crate) mod single;

use std::sync::{Arc, Weak};

use nix::errno::Errno;

use crate::abi::requests::{RecvList, SendList};
use crate::abi::verbs::ibv_wc;
use crate::entry::Result;

#[cfg(any(test, feature = "testbed"))]
pub(crate) use local::testbed;
pub(crate) use local::{limits, open, times_are_wanted};

use connections::Connections;
use single::Single;

/// Name of one object. No later object gets the same key, so a key that outlives its object finds
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// The handle that the object's struct shows to programs of C. No function takes it.
    pub(crate) fn shown(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// Keys of the objects of a backend, by their kinds.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident,)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) Key);
    )* };
}

pub(crate) use handles;

handles! {
    /// A protection domain.
    PdHandle,
    /// A memory region.
    MrHandle,
    /// A memory window.
    MwHandle,
    /// A completion queue.
    CqHandle,
    /// A shared receive queue.
    SrqHandle,
    /// A queue pair.
    QpHandle,
}

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
    /// There is no region any more.
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

/// How a queue pair is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpRequest {
    pub(crate) pd: PdHandle,
    pub(crate) send_cq: CqHandle,
    pub(crate) recv_cq: CqHandle,
    pub(crate) srq: Option<SrqHandle>,
    pub(crate) sizes: QpSizes,
    /// Each send completes, whether it asks for it or not.
    pub(crate) all_signaled: bool,
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

/// A queue pair that was made.
pub(crate) struct NewQp {
    pub(crate) handle: QpHandle,
    /// Its number of 24 bits.
    pub(crate) number: u32,
    pub(crate) port: Box<dyn QpPort>,
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

/// Whom an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Device,
    Cq(CqHandle),
    Srq(SrqHandle),
    Qp(QpHandle),
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
    /// Likewise, and connections were told. Said by a thread that holds no lock, so who is told may take some.
    DeviceGone,
}

/// Who is told of asynchronous events: in the middle of a turn of the engine, so it may only note them.
pub(crate) trait EventSink: Send + Sync {
    fn event(&self, source: Source, happening: Happening);
}

/// Who is told that a completion queue has the completion that it was armed for; likewise.
pub(crate) type Notice = Arc<dyn Fn() + Send + Sync>;

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

/// An RNIC.
pub(crate) trait Backend: Connections + Send + Sync {
    /// Ends it, whatever its objects are doing.
    fn close(&self);

    /// Whether completions have the NIC's times.
    fn has_times(&self) -> bool;

    fn alloc_pd(&self) -> Result<PdHandle>;
    fn dealloc_pd(&self, pd: PdHandle) -> Result<()>;

    /// Registers memory, and returns the `STag`, too.
    fn reg_mr(&self, pd: PdHandle, memory: Memory, rights: Rights) -> Result<(MrHandle, u32)>;
    /// Registers a region anew: in other domains, with other memory or rights. Returns the new `STag`.
    fn rereg_mr(
        &self,
        mr: MrHandle,
        pd: PdHandle,
        memory: Option<Memory>,
        rights: Rights,
    ) -> std::result::Result<u32, ReregisterFailure>;
    fn dereg_mr(&self, mr: MrHandle) -> Result<()>;

    /// Makes a window, and returns the `STag`, too.
    fn alloc_mw(&self, pd: PdHandle) -> Result<(MwHandle, u32)>;
    fn dealloc_mw(&self, mw: MwHandle) -> Result<()>;

    fn create_cq(
        &self,
        entries: usize,
        notice: Option<Notice>,
    ) -> Result<(CqHandle, Box<dyn CqPort>)>;
    fn resize_cq(&self, cq: CqHandle, entries: usize) -> Result<()>;
    fn destroy_cq(&self, cq: CqHandle) -> Result<()>;

    fn create_srq(&self, pd: PdHandle, sizes: SrqSizes) -> Result<(SrqHandle, Arc<dyn SrqPort>)>;
    /// Changes all that is asked for, or nothing.
    fn modify_srq(&self, srq: SrqHandle, change: SrqChange) -> Result<()>;
    fn query_srq(&self, srq: SrqHandle) -> Result<SrqSizes>;
    fn destroy_srq(&self, srq: SrqHandle) -> Result<()>;

    fn create_qp(&self, request: &QpRequest) -> Result<NewQp>;
    /// Sets how many Reads may be outstanding, each way.
    fn set_reads(&self, qp: QpHandle, ird: Option<u16>, ord: Option<u16>) -> Result<()>;
    fn query_qp(&self, qp: QpHandle) -> Result<QpView>;
    /// Ends the connection at once, and flushes all work.
    fn abort_qp(&self, qp: QpHandle) -> Result<()>;
    /// Makes a queue pair in Error fit for another connection.
    fn reset_qp(&self, qp: QpHandle) -> Result<()>;
    fn destroy_qp(&self, qp: QpHandle) -> Result<()>;
}

/// An RNIC as its objects know it. Its device alone keeps it: memory of destroyed objects, and objects that a program leaves, do not have one that
/// is closed keep its descriptors.
#[derive(Clone)]
pub(crate) struct BackendRef(Weak<dyn Backend>);

impl BackendRef {
    pub(crate) fn new(backend: &Arc<dyn Backend>) -> Self {
        Self(Arc::downgrade(backend))
    }

    /// The RNIC; EIO if it is closed.
    pub(crate) fn get(&self) -> Result<Arc<dyn Backend>> {
        self.0.upgrade().ok_or(Errno::EIO)
    }

    /// Ends an object by `verb`. One whose RNIC is closed has ended with it.
    pub(crate) fn end(&self, verb: impl FnOnce(&dyn Backend) -> Result<()>) -> Result<()> {
        let ended = self.0.upgrade().map(|backend| verb(&*backend));
        match ended {
            // Another thread is closing it.
            None | Some(Err(Errno::EIO)) => Ok(()),
            Some(ended) => ended,
        }
    }
}

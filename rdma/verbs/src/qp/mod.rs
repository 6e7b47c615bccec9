//! Queue pairs as an application holds them (verbs draft §6): creating and changing them, and the
//! posting handles of their work queues.

mod accept;
pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod data_path;
pub(crate) mod state_changes;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtrb::Producer;
use xwarp_driver::SharedBytes;
use xwarp_tcp::ConnLoad;

use crate::cm::connecting::{ConnectParams, Connecting};
use crate::cm::private_data::PrivateData;
use crate::cq::CompletionQueue;
use crate::error::{DataPathError, DisconnectError, PostListError, RefusedError, WaitError};
use crate::memory::region::MemoryRegion;
use crate::pd::ProtectionDomain;
use crate::runtime::control::Control;
use crate::srq::SharedReceiveQueue;
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::ModifyQp;
use xwarp_rnic::model::{
    Access, CapabilityError, ConnectError, ConnectionEnd, ConnectionInfo, CqId, CreateError,
    Depths, DestroyError, MAX_DEPTH, ModifyError, OutOfMemory, PdId, PostError, QpAccess, QpConfig,
    QpId, QpIdentity, QpInfo, QpState, RecvRequest, RegionMemory, RegionSpec, RegisterError,
    RnicUnavailable, SendRequest, SrqId, StagScope,
};
use xwarp_rnic::qp::{DoneWhen, NewQp, NewReceives, NotReady};
use xwarp_rnic::queues::{NewRings, QpShared, WorkQueue};

use change::QpChange;
use data_path::{DataPath, NewPosts, PostingEnd};
use state_changes::StateChanges;

/// A queue pair: one end of an RDMA connection. Dropping it ends the connection at once, and
/// invalidates the windows that were bound by it.
pub struct QueuePair {
    id: QpId,
    user: QpIdentity,
    /// `None` while another handle posts.
    data_path: Option<DataPath>,
    shared: Arc<QpShared>,
    /// Set once the queue pair was destroyed: dropping the handle then releases nothing.
    destroyed: bool,
    control: Arc<Control>,
}

impl ProtectionDomain {
    /// Create QP (verbs draft §9.2.5.1): a queue pair in state Idle whose sends and receives
    /// complete on the given queues, which may be the same.
    ///
    /// # Errors
    ///
    /// - [`CreateError::Capability`]: a value of `config` exceeds a limit of
    ///   [`Rnic::query`](crate::Rnic::query), or the RNIC has its maximum number of queue pairs
    ///   (verbs draft §9.5.1).
    /// - [`CreateError::InvalidCq`]: a completion queue belongs to another RNIC.
    /// - [`CreateError::LimitWithoutSrq`]: `config` has a limit of messages in progress (verbs
    ///   draft §6.3.8).
    /// - [`CreateError::NoRtr`], [`CreateError::NeedsRevisionTwo`]: the peer-to-peer model without
    ///   an RTR, or required where MPA revision 1 is the highest (RFC 6581 §9.2).
    /// - [`CreateError::Memory`]: the host has no memory for its queues.
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn create_qp(
        &self,
        config: &QpConfig,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> Result<QueuePair, CreateError> {
        let cqs = self.cq_ids([send_cq, recv_cq])?;
        QueuePair::create(self.control(), self.id(), config, cqs, None)
    }

    fn cq_ids(&self, cqs: [&CompletionQueue; 2]) -> Result<[CqId; 2], CreateError> {
        let ours = |cq: &&CompletionQueue| Arc::ptr_eq(cq.control(), self.control());
        if !cqs.iter().all(ours) {
            return Err(CreateError::InvalidCq);
        }
        Ok(cqs.map(CompletionQueue::id))
    }

    /// Create QP with a shared receive queue (verbs draft §9.2.5.1): the queue pair takes its
    /// receive buffers from the shared queue for its lifetime. `config.recv_depth` is ignored
    /// (§6.3.4).
    ///
    /// # Errors
    ///
    /// - [`CreateError::Capability`]: a value of `config` exceeds a limit of
    ///   [`Rnic::query`](crate::Rnic::query), or the RNIC has its maximum number of queue pairs
    ///   (verbs draft §9.5.1).
    /// - [`CreateError::InvalidCq`]: a completion queue belongs to another RNIC.
    /// - [`CreateError::InvalidSrq`]: the shared receive queue belongs to another RNIC.
    /// - [`CreateError::LimitOutOfRange`]: the limit of messages in progress exceeds its depth
    ///   (verbs draft §6.3.8).
    /// - [`CreateError::NoRtr`], [`CreateError::NeedsRevisionTwo`]: the peer-to-peer model without
    ///   an RTR, or required where MPA revision 1 is the highest (RFC 6581 §9.2).
    /// - [`CreateError::Memory`]: the host has no memory for its queues.
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn create_qp_with_srq(
        &self,
        config: &QpConfig,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
    ) -> Result<QueuePair, CreateError> {
        let cqs = self.cq_ids([send_cq, recv_cq])?;
        if !Arc::ptr_eq(srq.control(), self.control()) {
            return Err(CreateError::InvalidSrq);
        }
        QueuePair::create(self.control(), self.id(), config, cqs, Some(srq.id()))
    }
}

/// The ring that receive buffers are posted to, unless the queue is shared, and the queue that the
/// engine takes them from.
fn receives(
    config: &QpConfig,
    srq: Option<SrqId>,
) -> Result<(Option<Producer<RecvRequest>>, NewReceives), OutOfMemory> {
    if let Some(srq) = srq {
        return Ok((None, NewReceives::Shared(srq, config.rq_limit)));
    }
    let (recvs, rq) = WorkQueue::rings(config.recv_depth)?;
    Ok((Some(recvs), NewReceives::Own(rq)))
}

impl QueuePair {
    pub(crate) fn create(
        control: &Arc<Control>,
        pd: PdId,
        config: &QpConfig,
        [send_cq, recv_cq]: [CqId; 2],
        srq: Option<SrqId>,
    ) -> Result<Self, CreateError> {
        config.check(control.mpa().max_revision, srq.is_some())?;
        let (sends, sq) = WorkQueue::rings(config.send_depth)?;
        let (recvs, receives) = receives(config, srq)?;
        let engine = control.engine_for_qp();
        let shared = QpShared::new(config.start_up(), engine);
        let shared = Arc::new(shared.send_immediates(config.send_immediates));
        let new = NewQp {
            pd,
            access: config.access(),
            start_up: config.start_up(),
            extensions: config.rfc7306,
            report_ends: config.report_ends,
            quiet_end: config.quiet_end,
            not_ready: NotReady::new(config.await_receives),
            done_when: DoneWhen::new(config.confirm_sends),
            sge: config.payload_limits(),
            sq,
            send_cq,
            recv_cq,
            shared: Arc::clone(&shared),
            slots: Arc::clone(control.slots()),
        };
        let (id, user) =
            control.call_on(engine, move |engine| engine.create_qp(new, receives))??;
        let end = PostingEnd::new(id, config, &shared, srq.is_some(), control);
        Ok(Self {
            id,
            user,
            data_path: Some(DataPath::new(&end, sends, recvs, config.rfc7306)),
            shared,
            destroyed: false,
            control: end.control,
        })
    }

    /// The queue pair's identity in completions and events.
    pub fn id(&self) -> QpId {
        self.id
    }

    /// Snapshot of the queue pair's state (verbs draft §6.2).
    pub fn state(&self) -> QpState {
        self.shared.state()
    }

    /// Parameters that MPA start-up negotiated (RFC 5044 §7.1, RFC 6581 §9) for the current or last
    /// connection. `None` before the first connection.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.shared.connection()
    }

    /// Whether the current or last connection uses CRCs (RFC 5044 §7.1.1).
    pub fn crc(&self) -> bool {
        self.connection().is_some_and(|connection| connection.crc)
    }

    /// IRD of the current or last connection: Reads and Atomic Operations that the peer may have
    /// outstanding (RFC 6581 §9.1). Before the first connection, the requested value.
    pub fn ird(&self) -> u16 {
        self.connection()
            .map_or_else(|| self.shared.start_up().ird, |connection| connection.ird)
    }

    /// ORD of the current or last connection: Reads and Atomic Operations that this side may have
    /// outstanding. Before the first connection, the requested value.
    pub fn ord(&self) -> u16 {
        self.connection()
            .map_or_else(|| self.shared.start_up().ord, |connection| connection.ord)
    }

    /// Allocates a zeroed region of `len` bytes from the RNIC's region area and registers it for
    /// this queue pair alone (RFC 5041 §8.2).
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Full`]: the region area has no free piece of that length.
    /// - [`RegisterError::Spec`]: the rights are no valid set (verbs draft figure 18).
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, RegisterError> {
        let bytes = self.control.regions().allocate(len)?;
        self.register(bytes, access)
    }

    /// Registers the application's memory for this queue pair alone. The `STag` is associated with
    /// its stream (RFC 5041 §8.2): any other stream is refused, even one of the same protection
    /// domain. The peer of this queue pair may invalidate the region.
    ///
    /// The region belongs to the queue pair before it connects, so private data can carry its
    /// `STag` to the peer. The region stays with the queue pair across connections. After the queue
    /// pair is dropped, no peer can access the region.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Spec`]: rights, Tagged Offsets or list are invalid (verbs draft
    ///   §7.4, §7.6), or the memory can only be read.
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn register(
        &self,
        bytes: SharedBytes,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.register_with(bytes, &RegionSpec::new(access))
    }

    /// Registers memory for this queue pair alone (RFC 5041 §8.2), with all options of the verbs;
    /// see [`ProtectionDomain::register_with`](crate::ProtectionDomain::register_with).
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Spec`]: rights, Tagged Offsets or list are invalid (verbs draft
    ///   §7.4, §7.6), or the memory can only be read.
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn register_with<M>(
        &self,
        memory: M,
        spec: &RegionSpec,
    ) -> Result<MemoryRegion<M>, RegisterError>
    where
        M: Clone + Into<RegionMemory>,
    {
        MemoryRegion::register(&self.control, StagScope::QueuePair(self.user), memory, spec)
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Calls the queue pair's engine. Only this handle can move the queue pair to another engine.
    fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        self.control.call_on(self.shared.engine(), work)
    }

    /// Moves the queue pair to this engine if it is Idle and not connecting. Returns false if it
    /// stays on another engine.
    pub(crate) fn move_to(&mut self, engine: usize) -> Result<bool, RnicUnavailable> {
        self.control.move_qp(self.id, &self.shared, engine)
    }

    /// `PostSQ` (verbs draft §9.3.1.1): posts to the send queue. In Idle the work waits for the
    /// connection.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`](crate::work::SendQueue::post), and [`PostError::DataPathTaken`] while
    /// another handle posts.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.data_path()?.post_send(request)
    }

    /// `PostSQ` of a list (verbs draft §8.2.1), as [`DataPath::post_send_list`] does.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post_list`](crate::work::SendQueue::post_list), and
    /// [`PostError::DataPathTaken`] while another handle posts.
    pub fn post_send_list(
        &mut self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<usize, PostListError> {
        self.data_path()?.post_send_list(requests)
    }

    /// `PostRQ` (verbs draft §9.3.1.2): posts a buffer for one message from the peer. In Idle it
    /// waits for the connection.
    ///
    /// # Errors
    ///
    /// As [`DataPath::post_recv`], and [`PostError::DataPathTaken`] while another handle posts.
    pub fn post_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.data_path()?.post_recv(request)
    }

    /// `PostRQ` of a list (verbs draft §8.2.1), as [`DataPath::post_recv_list`] does.
    ///
    /// # Errors
    ///
    /// As [`DataPath::post_recv_list`], and [`PostError::DataPathTaken`] while another handle
    /// posts.
    pub fn post_recv_list(
        &mut self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<usize, PostListError> {
        self.data_path()?.post_recv_list(requests)
    }

    /// Hands out the posting handle, for a Non-Privileged Consumer (verbs draft §9.1). Until it is
    /// returned, this queue pair refuses posts and does not resize its work queues.
    ///
    /// Refused on a [privileged](QpConfig::privileged) queue pair: work that is posted there
    /// reaches all physical memory of the RNIC (verbs draft §6.1.1, §8.1.3.2.1).
    ///
    /// # Errors
    ///
    /// - [`DataPathError::Privileged`]: the queue pair is privileged.
    /// - [`DataPathError::Taken`]: the data path was taken before, and was not returned.
    pub fn take_data_path(&mut self) -> Result<DataPath, DataPathError> {
        // Decision record verbs/0004.
        if self.user.has(QpAccess::PHYSICAL) {
            return Err(DataPathError::Privileged);
        }
        self.data_path.take().ok_or(DataPathError::Taken)
    }

    /// Takes the posting handle back. A handle of another queue pair is refused and returned.
    ///
    /// # Errors
    ///
    /// The data path, if it belongs to another queue pair.
    pub fn return_data_path(&mut self, data_path: DataPath) -> Result<(), Box<DataPath>> {
        if !data_path.is_of(&self.shared) {
            return Err(Box::new(data_path));
        }
        self.data_path = Some(data_path);
        Ok(())
    }

    #[inline]
    pub(crate) fn data_path(&mut self) -> Result<&mut DataPath, PostError> {
        self.data_path.as_mut().ok_or(PostError::DataPathTaken)
    }

    /// Connects to a listener, as MPA initiator (RFC 5044 §7.1), within `timeout`, which a second
    /// try with MPA revision 1 does not extend. Returns the private data of the listener's answer.
    /// [`connection`](Self::connection) returns the other negotiated parameters.
    ///
    /// `private_data` has 508 bytes at most (RFC 6581 §6), 512 if the RNIC's highest revision is 1
    /// (RFC 5044 §7.1.1).
    ///
    /// # Errors
    ///
    /// The errors of [`begin_connect`](Self::begin_connect) and [`Connecting::wait`].
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<PrivateData, ConnectError> {
        self.begin_connect(remote, private_data, timeout)?.wait()
    }

    /// Begins to connect and returns at once. The engine continues without further calls, and
    /// [`Connecting`] returns the result later. `timeout` bounds the whole attempt: the search for
    /// the next hop's Ethernet address, TCP and MPA start-up.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::InvalidState`]: the queue pair is not in Idle. It is in Error once the
    ///   RNIC was closed.
    /// - [`ConnectError::PrivateDataTooLong`]: `private_data` does not fit into the Request (RFC
    ///   5044 §7.1.1, RFC 6581 §6).
    /// - [`ConnectError::Host`]: no route leads there over this interface, or no local port is
    ///   free.
    /// - [`ConnectError::Resources`]: the host has no file descriptor left, or TCP no connection.
    /// - [`ConnectError::Unavailable`]: the RNIC was closed in the meantime, or its handler made
    ///   the call.
    pub fn begin_connect(
        &mut self,
        remote: SocketAddr,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Connecting, ConnectError> {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        self.begin_connect_from(any, remote, private_data, timeout)
    }

    /// Begins to connect from a given address and port of this host, by which firewalls and servers
    /// may identify a client. For an unspecified address, the routes choose one. Port 0 selects any
    /// free port.
    ///
    /// The port may be one that this RNIC owns already, by [`Rnic::bind`](crate::Rnic::bind) for
    /// instance. A second connection to the same peer cannot use the same port. With several
    /// engines, neither can a connection that follows one in TIME-WAIT.
    ///
    /// # Errors
    ///
    /// As [`begin_connect`](Self::begin_connect), and:
    ///
    /// - [`ConnectError::Host`]: the port is in use or privileged, or the address is not one of the
    ///   interface. If the RNIC already has a connection from that port to that peer,
    ///   [`Connecting::wait`] returns this error.
    pub fn begin_connect_from(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Connecting, ConnectError> {
        if self.state() != QpState::Idle {
            return Err(ConnectError::InvalidState(self.state()));
        }
        self.control.check_no_handler()?;
        let (mpa, len) = (self.control.mpa(), private_data.len());
        let data_limit = mpa.private_data_limit();
        if len > data_limit {
            let limit = data_limit;
            return Err(ConnectError::PrivateDataTooLong { len, limit });
        }
        let params = ConnectParams {
            local,
            remote,
            params: mpa.params(Some(self.shared.start_up().offer())),
            private_data: private_data.to_vec(),
            timeout,
        };
        let place = (self.id, self.shared.engine());
        Connecting::begin(place, params, &self.control)
    }

    /// Why the last connection ended or is ending: the cause of completions that are
    /// [`Flushed`](crate::CompletionStatus::Flushed), available before these can be polled. `None`
    /// if no connection has ended, and again once the queue pair has a new connection.
    pub fn why_ended(&self) -> Option<ConnectionEnd> {
        self.shared.end()
    }

    /// Closes gracefully (RFC 5041 §6.2.1): all posted work is sent first, and the peer may
    /// continue to send until it closes, too. [`modify`](Self::modify) to Closing is the verbs
    /// draft's close, which ends in Error if work is outstanding. Waits up to `timeout` until both
    /// sides have closed. With `Progress::Manual` it does not wait.
    ///
    /// # Errors
    ///
    /// - [`DisconnectError::TimedOut`]: the timeout has expired. The close continues.
    /// - [`DisconnectError::Failed`]: the connection failed first, or the queue pair was in Error.
    /// - [`DisconnectError::Unavailable`]: the RNIC was closed, or its handler made the call.
    /// - [`DisconnectError::System`]: no file descriptor is left, or the kernel refuses the sleep.
    pub fn disconnect(&mut self, timeout: Duration) -> Result<(), DisconnectError> {
        let changes = self.state_changes()?;
        self.begin_disconnect()?;
        let ended = || matches!(changes.take(), QpState::Idle | QpState::Error).then_some(());
        let deadline = Instant::now().checked_add(timeout);
        self.control.wait_until(changes.signal(), deadline, ended)?;
        self.control.check_open()?;
        match self.state() {
            QpState::Idle => Ok(()),
            QpState::Rts | QpState::Closing => Err(DisconnectError::TimedOut),
            QpState::Terminate | QpState::Error => Err(DisconnectError::Failed),
        }
    }

    /// Returns a descriptor that reports every later state change of the queue pair.
    ///
    /// # Errors
    ///
    /// [`WaitError::System`]: no file descriptor is left.
    pub fn state_changes(&self) -> Result<StateChanges, WaitError> {
        Ok(StateChanges::new(&self.control, &self.shared)?)
    }

    /// Begins a graceful close (RFC 5041 §6.2.1) and returns at once.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn begin_disconnect(&mut self) -> Result<(), RnicUnavailable> {
        let id = self.id;
        self.call(move |engine| engine.disconnect(id))
    }

    /// Modify QP (verbs draft §9.2.5.3): changes attributes, then the state. When it returns, the
    /// state has changed, and later events may have changed it again. An error changes nothing.
    ///
    /// | from | to |
    /// |---|---|
    /// | Idle | Idle, RTS by [`QpChange::start`] or [`QpChange::start_with`], Error |
    /// | RTS | RTS, Closing, Terminate, Error |
    /// | Error | Idle |
    ///
    /// Returns the resulting depths. ORD and IRD are those of the current connection in RTS, else
    /// of the next one. Work queues can be resized under load, but not while their [`DataPath`] is
    /// taken.
    ///
    /// # Errors
    ///
    /// - [`ModifyError::InvalidStateChange`]: the table has no such change (verbs draft §6.2).
    /// - [`ModifyError::InvalidModifier`]: an attribute or a stream is not allowed with the change,
    ///   or a stream is missing.
    /// - [`ModifyError::Capability`]: a depth exceeds a limit of
    ///   [`Rnic::query`](crate::Rnic::query) (verbs draft §9.5.1).
    /// - [`ModifyError::CannotChange`]: an IRD for a queue pair that was created with an IRD of 0.
    /// - [`ModifyError::TooManyPresent`]: the outstanding work does not fit into the queue.
    /// - [`ModifyError::LimitOutOfRange`]: the limit exceeds the depth of the shared receive queue
    ///   (verbs draft §6.3.8).
    /// - [`ModifyError::InvalidStream`]: the stream is not established, belongs to a queue pair
    ///   already, or belongs to another RNIC.
    /// - [`ModifyError::Connecting`]: a connection is being made for the queue pair.
    /// - [`ModifyError::DataPathTaken`]: another handle posts to the queues that are to be resized.
    /// - [`ModifyError::Memory`]: the host has no memory for the queues.
    /// - [`ModifyError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn modify(&mut self, change: QpChange) -> Result<Depths, ModifyError> {
        let id = self.id;
        if !change.is_of(self.control.id()) {
            return Err(ModifyError::InvalidStream);
        }
        let change = change.modify;
        let (ends, rings) = self.other_rings(&change)?;
        if let Some(handover) = &change.handover {
            let to = handover.stream.engine();
            self.move_to(to)?;
        }
        let depths = self.call(move |engine| engine.modify_qp(id, change, rings))??;
        if let Some(path) = &mut self.data_path {
            path.resize(ends);
        }
        Ok(depths)
    }

    /// New rings for work queues that are resized: the application's ends, and the engine's.
    fn other_rings(&mut self, change: &ModifyQp) -> Result<(NewPosts, NewRings), ModifyError> {
        for (what, wanted) in [
            ("a send queue of depth", change.send_depth),
            ("a receive queue of depth", change.recv_depth),
        ] {
            CapabilityError::check(what, wanted.unwrap_or(1), 1, MAX_DEPTH)?;
        }
        match &mut self.data_path {
            Some(path) => Ok(path.other_rings(change.send_depth, change.recv_depth)?),
            None if change.resizes() => Err(ModifyError::DataPathTaken),
            None => Ok(Default::default()),
        }
    }

    /// Query QP (verbs draft §9.2.5.2).
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn query(&self) -> Result<QpInfo, RnicUnavailable> {
        let id = self.id;
        let info = self.call(move |engine| engine.query_qp(id))?;
        info.ok_or(RnicUnavailable::Closed)
    }

    /// Load that the peer has caused since the connection was made. `None` without a connection. A
    /// peer that sends many segments for few bytes, or many out of order, costs this host time
    /// without violating the protocol (RFC 5042 §6.4.4). [`modify`](Self::modify) to Error ends its
    /// connection.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn load(&self) -> Result<Option<ConnLoad>, RnicUnavailable> {
        let id = self.id;
        self.call(move |engine| engine.load_of(id))
    }

    /// Destroy QP (verbs draft §9.2.5.4): ends the connection at once. Refused while memory windows
    /// are bound to it. Dropping the queue pair invalidates them instead.
    ///
    /// # Errors
    ///
    /// - [`DestroyError::WindowsBound`]: windows are bound to it.
    /// - [`DestroyError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn destroy(mut self) -> Result<(), RefusedError<Self, DestroyError>> {
        let id = self.id;
        let ended = self.call(move |engine| engine.try_destroy_qp(id));
        let ended = ended.map_err(DestroyError::from).flatten();
        self.destroyed = ended.is_ok();
        RefusedError::unless(ended, self)
    }

    /// Ends the connection at once by a reset, in any state of the queue pair, as
    /// [`modify`](Self::modify) to Error does from Idle and RTS (verbs draft §6.2). Outstanding
    /// work is flushed.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn abort(&mut self) -> Result<(), RnicUnavailable> {
        let id = self.id;
        self.call(move |engine| engine.abort_qp(id))
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({}, {:?})", self.id, self.state())
    }
}

impl Drop for QueuePair {
    /// Invalidates windows that are bound to the queue pair, where `destroy` would refuse (decision
    /// record verbs/0002).
    fn drop(&mut self) {
        let id = self.id;
        if self.destroyed {
            return;
        }
        (self.control).release_on(self.shared.engine(), move |engine| engine.destroy_qp(id));
    }
}

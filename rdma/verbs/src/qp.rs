//! Queue pairs as an application holds them (verbs draft §6).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use xwarp_driver::SharedBytes;
use xwarp_iwarp::mpa::Initiator;
use xwarp_tcp::ConnLoad;

use crate::connecting::Connecting;
use crate::control::Control;
use crate::cq::CompletionQueue;
use crate::data_path::{DataPath, NewPosts, PostingEnd};
use crate::error::{DataPathError, PostListError, Refused, WaitError};
use crate::memory::MemoryRegion;
use crate::pd::ProtectionDomain;
use crate::qp_change::QpChange;
use crate::srq::SharedReceiveQueue;
use crate::state_changes::StateChanges;
use xwarp_rnic::model::ModifyQp;
use xwarp_rnic::model::{
    Ability, Access, Capability, ConnectError, ConnectionInfo, CqId, CreateError, Depths,
    DestroyError, MAX_DEPTH, ModifyError, PdId, PostError, QpConfig, QpId, QpInfo, QpState,
    RecvRequest, RegionMemory, RegionSpec, RegisterError, RnicUnavailable, Scope, SendRequest,
    SrqId, User, Wishes,
};
use xwarp_rnic::qp::{ConnectOrder, NewQp, NewReceives};
use xwarp_rnic::queues::{NewRings, QpShared, WorkQueue};

/// A queue pair: one end of an RDMA connection. Dropping it ends the connection at once, and takes away the windows that it has bound.
pub struct QueuePair {
    id: QpId,
    user: User,
    /// None while somebody else has it.
    data_path: Option<DataPath>,
    wishes: Wishes,
    shared: Arc<QpShared>,
    /// There is nothing left to destroy.
    destroyed: bool,
    control: Arc<Control>,
}

impl ProtectionDomain {
    /// Creates a queue pair in state Idle whose sends and receives complete on the given queues, which may be the same.
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

    /// The same, which takes its receive buffers from a shared queue for all its life; its receive depth is not looked at (verbs draft
    /// §6.3.4).
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

impl QueuePair {
    pub(crate) fn create(
        control: &Arc<Control>,
        pd: PdId,
        config: &QpConfig,
        [send_cq, recv_cq]: [CqId; 2],
        srq: Option<SrqId>,
    ) -> Result<Self, CreateError> {
        config.check(control.mpa().highest, srq.is_some())?;
        let wishes = config.wishes();
        let (sends, sq) = WorkQueue::rings(config.send_depth)?;
        let (recvs, receives) = if let Some(srq) = srq {
            (None, NewReceives::Shared(srq, config.rq_limit))
        } else {
            let (recvs, rq) = WorkQueue::rings(config.recv_depth)?;
            (Some(recvs), NewReceives::Own(rq))
        };
        let shared = Arc::new(QpShared::new());
        let new = NewQp {
            pd,
            ability: config.ability(),
            wishes,
            extensions: config.extensions,
            sge: config.payload_limits(),
            sq,
            receives,
            send_cq,
            recv_cq,
            shared: Arc::clone(&shared),
            slots: Arc::clone(control.slots()),
        };
        let (id, user) = control.call(move |engine| engine.create_qp(new))??;
        let [send_slots, recv_slots] = control.slots().pair(id);
        let end = PostingEnd {
            id,
            shared: Arc::clone(&shared),
            limits: config.payload_limits(),
            shares_receives: recvs.is_none(),
            control: Arc::clone(control),
        };
        let sends = WorkQueue::new(sends, control.slots(), send_slots);
        let recvs = recvs.map(|recvs| WorkQueue::new(recvs, control.slots(), recv_slots));
        let data_path = DataPath::new(&end, sends, recvs, config.extensions);
        Ok(Self {
            id,
            user,
            data_path: Some(data_path),
            wishes,
            shared,
            destroyed: false,
            control: Arc::clone(control),
        })
    }

    /// Its identity in completions and events.
    pub fn id(&self) -> QpId {
        self.id
    }

    /// Its state a moment ago.
    pub fn state(&self) -> QpState {
        self.shared.state()
    }

    /// What start-up has settled for its connection, the present or the last one. `None` before there was one.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.shared.connection()
    }

    /// Whether its connection, the present or the last one, carries CRCs that are checked (RFC 5044 §7.1.1).
    pub fn crc(&self) -> bool {
        self.connection().is_some_and(|connection| connection.crc)
    }

    /// Reads that the peer may have outstanding: as start-up has settled it for the present or the last connection, before one as it
    /// was asked for.
    pub fn ird(&self) -> u16 {
        self.connection()
            .map_or(self.wishes.ird, |connection| connection.ird)
    }

    /// Reads that we may have outstanding, likewise.
    pub fn ord(&self) -> u16 {
        self.connection()
            .map_or(self.wishes.ord, |connection| connection.ord)
    }

    /// Carves a zeroed region of `len` bytes out of the RNIC's region area and registers it for this queue pair alone.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, RegisterError> {
        let bytes = self.control.regions().allocate(len)?;
        self.register(bytes, access)
    }

    /// Registers memory that the application has already for this queue pair alone: it is the stream that the `STag` is associated
    /// with (RFC 5041 §8.2), and any other is refused, of the same protection domain, too. Its peer may invalidate the region.
    ///
    /// The region is the queue pair's before it is connected, so that the peer can be told of it in private data, and stays so
    /// if it is connected anew. Once the queue pair has been dropped nobody can use the region any more.
    pub fn register(
        &self,
        bytes: SharedBytes,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.register_with(bytes, &RegionSpec::new(access))
    }

    /// The same with all that the verbs let choose, as
    /// [`ProtectionDomain::register_with`](crate::ProtectionDomain::register_with) has it.
    pub fn register_with<M>(
        &self,
        memory: M,
        spec: &RegionSpec,
    ) -> Result<MemoryRegion<M>, RegisterError>
    where
        M: Clone + Into<RegionMemory>,
    {
        MemoryRegion::register(&self.control, Scope::QueuePair(self.user), memory, spec)
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Posts to the send queue. In Idle the work waits for the connection.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.data_path()?.post_send(request)
    }

    /// Posts a list to the send queue, as [`DataPath::post_send_list`] does.
    pub fn post_send_list(
        &mut self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<usize, PostListError> {
        self.data_path()?.post_send_list(requests)
    }

    /// Posts a buffer for one message of the peer. In Idle it waits for the connection.
    pub fn post_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.data_path()?.post_recv(request)
    }

    /// Posts a list of buffers, as [`DataPath::post_recv_list`] does.
    pub fn post_recv_list(
        &mut self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<usize, PostListError> {
        self.data_path()?.post_recv_list(requests)
    }

    /// Gives away what posts, to a Non-Privileged Consumer (verbs draft §9.1). Until it comes back nothing can be posted here, and the work
    /// queues cannot be resized.
    ///
    /// Refused on a queue pair that is [privileged](QpConfig::privileged): whoever posts there reaches all physical memory of the RNIC (verbs
    /// draft §6.1.1, §8.1.3.2.1).
    pub fn take_data_path(&mut self) -> Result<DataPath, DataPathError> {
        if self.user.can(Ability::PHYSICAL) {
            return Err(DataPathError::Privileged);
        }
        self.data_path.take().ok_or(DataPathError::Taken)
    }

    /// Takes back what posts. One of another queue pair is refused, and comes back.
    pub fn return_data_path(&mut self, data_path: DataPath) -> Result<(), Box<DataPath>> {
        if !data_path.is_of(&self.shared) {
            return Err(Box::new(data_path));
        }
        self.data_path = Some(data_path);
        Ok(())
    }

    pub(crate) fn data_path(&mut self) -> Result<&mut DataPath, PostError> {
        self.data_path.as_mut().ok_or(PostError::DataPathTaken)
    }

    /// Connects to a listener, as MPA initiator, within `limit`, which a second try with MPA revision 1 does not extend. Returns the
    /// private data of its answer; [`connection`](Self::connection) tells what was settled besides.
    ///
    /// `private_data` has 508 bytes at most, 512 if the RNIC's highest revision is 1.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, ConnectError> {
        self.begin_connect(remote, private_data, limit)?.wait()
    }

    /// Begins to connect; the result is asked for later. Waits only for the host to find the way.
    pub fn begin_connect(
        &mut self,
        remote: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<Connecting, ConnectError> {
        self.begin_connect_while(remote, private_data, limit, &|| true)
    }

    /// The same, and waits for the host only as long as `wanted` holds, which is asked every 50 ms.
    pub fn begin_connect_while(
        &mut self,
        remote: SocketAddr,
        private_data: &[u8],
        limit: Duration,
        wanted: &dyn Fn() -> bool,
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
        let params = mpa.params(Some(self.wishes.offer()));
        let start = Instant::now();
        let host = self.control.host();
        let (source, next_hop) = host.path_to(remote, limit, wanted)?;
        let port = self.control.open_port(source, 0)?;
        // The engine, which may have to try a second time, asks nothing of the host.
        let may_retry = Initiator::new(params).retry().is_some();
        let spare = may_retry.then(|| self.control.open_port(source, 0));
        let spare = spare.transpose()?;
        let no_signal = |error: io::Error| ConnectError::Resources(error.to_string());
        let outcome = self.control.inbox().map_err(no_signal)?;
        let order = ConnectOrder {
            qp: self.id,
            port,
            spare,
            remote,
            next_hop,
            params,
            private_data: private_data.to_vec(),
            limit: limit.saturating_sub(start.elapsed()),
            outcome: Arc::clone(&outcome),
        };
        self.control.call(move |engine| engine.connect(order))?;
        Ok(Connecting::new(outcome, Arc::clone(&self.control)))
    }

    /// Closes gracefully, as RFC 5041 §6.2.1 has it: everything posted is sent first, and the peer may go on sending until it closes,
    /// too. [`modify`](Self::modify) to Closing is the verbs draft's close, which ends badly if work is outstanding. Waits up to `timeout` for both sides to have closed; false when that
    /// took longer or the connection failed meanwhile.
    pub fn disconnect(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        let changes = self.state_changes()?;
        self.begin_disconnect()?;
        let ended = || matches!(changes.take(), QpState::Idle | QpState::Error).then_some(());
        let deadline = Instant::now().checked_add(timeout);
        self.control.wait_until(changes.signal(), deadline, ended)?;
        Ok(self.state() == QpState::Idle)
    }

    /// A descriptor that tells of the states that the queue pair comes into from now on.
    pub fn state_changes(&self) -> Result<StateChanges, WaitError> {
        Ok(StateChanges::new(&self.control, &self.shared)?)
    }

    /// Begins a graceful close and returns at once.
    pub fn begin_disconnect(&mut self) -> Result<(), RnicUnavailable> {
        let id = self.id;
        self.control.call(move |engine| engine.disconnect(id))
    }

    /// Modify QP (verbs draft §9.2.5.3): changes attributes, then the state. When it returns the state has changed, though the queue
    /// pair may have gone on from there by itself. After an error all is as it was.
    ///
    /// | from | to |
    /// |---|---|
    /// | Idle | Idle, RTS by [`QpChange::start`] or [`QpChange::start_with`], Error |
    /// | RTS | RTS, Closing, Terminate, Error |
    /// | Error | Idle |
    ///
    /// The depths that result are returned; ORD and IRD are those of the present connection in RTS, else of the next one. Work queues are
    /// resized under load, too, but not while their [`DataPath`] was taken.
    pub fn modify(&mut self, change: QpChange) -> Result<Depths, ModifyError> {
        let (id, from) = (self.id, self.state());
        if !change.is_of(self.control.id()) {
            return Err(ModifyError::InvalidStream);
        }
        let change = change.modify;
        let (ends, rings) = self.other_rings(&change)?;
        let depths = self
            .control
            .call(move |engine| engine.modify_qp(id, change, rings))??;
        if let Some(path) = &mut self.data_path {
            path.resize(ends);
        }
        if from != QpState::Rts {
            (self.wishes.ord, self.wishes.ird) = (depths.ord, depths.ird);
        }
        Ok(depths)
    }

    /// What the work queues that are to be resized go on with: this side's ends, and the engine's.
    fn other_rings(&mut self, change: &ModifyQp) -> Result<(NewPosts, NewRings), ModifyError> {
        for (what, wanted) in [
            ("a send queue of depth", change.send_depth),
            ("a receive queue of depth", change.recv_depth),
        ] {
            Capability::check(what, wanted.unwrap_or(1), 1, MAX_DEPTH)?;
        }
        match &mut self.data_path {
            Some(path) => Ok(path.other_rings(change.send_depth, change.recv_depth)?),
            None if change.resizes() => Err(ModifyError::DataPathTaken),
            None => Ok(Default::default()),
        }
    }

    /// Query QP (verbs draft §9.2.5.2).
    pub fn query(&self) -> Result<QpInfo, RnicUnavailable> {
        let id = self.id;
        let info = self.control.call(move |engine| engine.query_qp(id))?;
        info.ok_or(RnicUnavailable::Closed)
    }

    /// What the peer has the connection do, since it was made; `None` while there is none. A peer that sends many segments for few bytes, or many out of
    /// order, uses this host without breaking a rule (RFC 5042 §6.4.4): [`modify`](Self::modify) to Error ends its connection.
    pub fn load(&self) -> Result<Option<ConnLoad>, RnicUnavailable> {
        let id = self.id;
        self.control.call(move |engine| engine.load_of(id))
    }

    /// Destroy QP (verbs draft §9.2.5.4): ends the connection at once. Refused while memory windows are bound to it; dropping it takes
    /// them away instead.
    pub fn destroy(mut self) -> Result<(), Refused<Self, DestroyError>> {
        let id = self.id;
        let ended = self
            .control
            .attempt(move |engine| engine.try_destroy_qp(id));
        self.destroyed = ended.is_ok();
        Refused::unless(ended, self)
    }

    /// Ends the connection at once, by a reset, in whatever state the queue pair is: what [`modify`](Self::modify) to Error does
    /// from Idle and RTS (verbs draft §6.2). Outstanding work is flushed.
    pub fn abort(&mut self) -> Result<(), RnicUnavailable> {
        let id = self.id;
        self.control.call(move |engine| engine.abort_qp(id))
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({}, {:?})", self.id, self.state())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let id = self.id;
        if self.destroyed {
            return;
        }
        self.control.release(move |engine| engine.destroy_qp(id));
    }
}

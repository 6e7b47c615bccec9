//! Identifiers, by which programs connect and listen, and the channels of their events.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use nix::errno::Errno;

use super::address;
use super::backlog::{Backlog, Place};
use super::devices;
use super::numbers::EventKind;
use super::pending_request::PendingRequest;
use crate::abi::Zeroed;
use crate::abi::cm::{rdma_cm_id, rdma_event_channel};
use crate::abi::numbers::IBV_QPT_RC;
use crate::abi::verbs::{ibv_pd, ibv_qp_init_attr};
use crate::backend::connection_event::ReadDepths;
use crate::backend::{self, Backend, BackendRef, EventTarget, Happening, Qp};
use crate::cancellation::Sleep;
use crate::entry::{Result, lock};
use crate::event_pipe::EventPipe;
use crate::object::{Kind, Object};
use crate::verbs::context::Context;
use crate::verbs::device::Device;
use crate::verbs::event_queue::EventQueue;

/// An event, until a program takes it.
pub(super) struct PendingEvent {
    /// The identifier; for a connection request, the listening one.
    pub(super) id: Arc<Id>,
    pub(super) kind: EventKind,
    /// 0, or a negative error number.
    pub(super) status: c_int,
    pub(super) depths: ReadDepths,
    pub(super) private_data: Vec<u8>,
    /// The peer that requests a connection. It is rejected if the program does not take the event.
    pub(super) offered: Option<PendingRequest>,
    /// Its place in the listener's backlog, until the program takes the event.
    pub(super) place: Option<Place>,
}

impl PendingEvent {
    pub(super) fn new(id: &Arc<Id>, kind: EventKind) -> Self {
        Self {
            id: Arc::clone(id),
            kind,
            status: 0,
            depths: ReadDepths::default(),
            private_data: Vec::new(),
            offered: None,
            place: None,
        }
    }

    pub(super) fn failed(id: &Arc<Id>, kind: EventKind, errno: Errno) -> Self {
        let status = -(errno as c_int);
        Self {
            status,
            ..Self::new(id, kind)
        }
    }
}

/// An event channel.
pub(super) struct Channel {
    queue: EventQueue<PendingEvent>,
    takers: Mutex<Takers>,
    entered: Condvar,
}

/// Threads that take events of a channel.
#[derive(Default)]
struct Takers {
    inside: usize,
    /// The thread that has taken the last event.
    last: Option<ThreadId>,
    /// The thread that has destroyed the channel, and whether the program had set its descriptor to
    /// non-blocking mode.
    end: Option<(ThreadId, bool)>,
}

impl Takers {
    /// Whether a thread has called again on a channel that another thread destroyed between two of
    /// its events.
    fn is_late(&self, thread: ThreadId) -> bool {
        let by_another = |end: (ThreadId, bool)| end.0 != thread && !end.1;
        self.last == Some(thread) && self.end.is_some_and(by_another)
    }
}

/// A thread in a call that takes an event of a channel.
pub(super) struct Taker(Arc<Object<Channel>>);

impl Taker {
    fn enter(channel: &Arc<Object<Channel>>) -> Self {
        lock(&channel.body().takers).inside += 1;
        channel.body().entered.notify_all();
        Self(Arc::clone(channel))
    }

    /// Takes the oldest event, whose count was read. Returns `None` if the event was taken back.
    pub(super) fn take(&self) -> Option<PendingEvent> {
        let channel = self.0.body();
        let event = channel.queue.take_counted(begun)?;
        lock(&channel.takers).last = Some(thread::current().id());
        Some(event)
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        lock(&self.0.body().takers).inside -= 1;
    }
}

/// The program takes an event. From now on a thread that destroys the identifier waits until the
/// event is acknowledged.
fn begun(event: PendingEvent) -> PendingEvent {
    event.id.body().begin_event();
    event
}

/// How long destroying a channel waits for another thread to call for the next event. rping then
/// frees the memory from which that thread reads the channel's address.
const COMES_BACK: Duration = Duration::from_millis(200);

impl Kind for Channel {
    type Abi = rdma_event_channel;
    type C = rdma_event_channel;
    const NAME: &'static str = "rdma_event_channel";
    const DESCRIPTORS: usize = EventPipe::DESCRIPTORS;
    const TAG: u32 = 0x6368_6e31;
}

impl Channel {
    /// A channel that programs know by its handle.
    pub(super) fn create() -> Result<*mut rdma_event_channel> {
        let queue = EventQueue::new()?;
        let fd = queue.descriptor();
        Ok(Object::new(rdma_event_channel { fd }, Self::new(queue)).publish())
    }

    fn new(queue: EventQueue<PendingEvent>) -> Self {
        Self {
            queue,
            takers: Mutex::default(),
            entered: Condvar::new(),
        }
    }

    /// Waits for a thread that takes events and is between two of them.
    pub(super) fn await_taker(&self) {
        let takers = lock(&self.takers);
        let own = thread::current().id();
        let is_between =
            |it: &mut Takers| it.inside == 0 && it.last.is_some_and(|last| last != own);
        drop(
            self.entered
                .wait_timeout_while(takers, COMES_BACK, is_between),
        );
    }

    /// Takes the oldest event of a synchronous identifier. It waits already, or arrives without the
    /// peer's help.
    pub(super) fn take(&self) -> Result<PendingEvent> {
        self.queue.take(begun)
    }

    /// The sleep of a thread that takes an event. A thread that calls after the channel was
    /// destroyed sleeps until the process ends. A thread that called before does so, too, as a read
    /// of a descriptor continues when the descriptor is closed. If the call failed, rping would end
    /// the process with an error.
    pub(super) fn sleep(this: &Arc<Object<Self>>) -> Result<Sleep<Taker>> {
        let (body, taker) = (this.body(), Taker::enter(this));
        if let Ok(descriptor) = body.queue.opened() {
            return Ok(Sleep::on(descriptor, taker));
        }
        let is_late = lock(&body.takers).is_late(thread::current().id());
        if is_late {
            return Ok(Sleep::for_ever(taker));
        }
        Err(Errno::EINVAL)
    }

    /// Adds an event, unless its identifier is destroyed.
    pub(super) fn push(&self, event: PendingEvent) {
        self.queue
            .push_if(event, |event| !event.id.body().is_destroyed());
    }

    /// Destroys a channel. A thread that sleeps in `take` sleeps on.
    pub(super) fn destroy(this: &Arc<Object<Self>>) -> Result<()> {
        let body = this.body();
        // Recorded first: after `destroy`, a late thread checks it.
        let end = (thread::current().id(), body.queue.is_non_blocking());
        lock(&body.takers).end.get_or_insert(end);
        this.destroy()?;
        body.queue.end();
        // No program can take these connection requests now: their peers are rejected.
        drop(body.queue.take_back(|event| event.offered.is_some()));
        Ok(())
    }

    /// Takes back the events of an identifier.
    pub(super) fn take_back(&self, id: &Arc<Id>) -> Vec<PendingEvent> {
        self.queue.take_back(|event| Arc::ptr_eq(&event.id, id))
    }
}

/// Attributes of the queue pairs of a listening identifier's requests, as given to its endpoint.
#[derive(Clone, Copy)]
pub(super) struct QpTemplate {
    pub(super) pd: *mut ibv_pd,
    pub(super) attr: Option<ibv_qp_init_attr>,
}

// SAFETY: the pointers are handles of C, which any thread may use; none is followed without being
// looked up.
unsafe impl Send for QpTemplate {}

/// An identifier as an object.
pub(super) type Id = Object<CmId>;

/// The library's part of an identifier.
pub(super) struct CmId {
    state: Mutex<State>,
    outstanding: Mutex<Outstanding>,
    acknowledged: Condvar,
    queues: Mutex<()>,
}

/// Events that a program has taken and not acknowledged.
#[derive(Default)]
struct Outstanding {
    events: usize,
    destroyed: bool,
}

/// State of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Bound,
    Resolved,
    Routed,
    Listening,
    /// A connection request waits for an answer.
    Requested,
    Connecting,
    Connected,
    /// The connection has ended.
    Ended,
    /// The connection has ended, and a synchronous identifier has taken that event. No other event
    /// follows.
    Closed,
}

/// A port that an identifier is bound to.
pub(super) struct BoundPort {
    pub(super) device: Arc<Object<Device>>,
    pub(super) backend: BackendRef,
    pub(super) port: Arc<backend::Port>,
}

/// Any address and port.
pub(super) const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Mutable state of an identifier.
pub(super) struct State {
    channel: Arc<Object<Channel>>,
    /// Calls wait for their events; the identifier has a channel of its own.
    pub(super) synchronous: bool,
    pub(super) phase: Phase,
    pub(super) context: Option<Arc<Object<Context>>>,
    /// Receives the event that the device of that context was removed.
    removal: Option<Arc<dyn EventTarget>>,
    pub(super) source: Option<SocketAddr>,
    pub(super) destination: Option<SocketAddr>,
    /// Ports that the identifier is bound to, each at its RNIC.
    pub(super) ports: Vec<BoundPort>,
    /// Local address and port of connections, as far as the program names them. An unspecified
    /// address and port 0 stand for any.
    pub(super) wanted_source: SocketAddr,
    /// Other identifiers may be bound to its port.
    pub(super) reusable: bool,
    /// The identifier listens on IPv6 only.
    pub(super) one_family: bool,
    /// Connection requests whose events the program has not taken.
    pub(super) backlog: Backlog,
    /// The connection request to be answered.
    pub(super) offered: Option<PendingRequest>,
    /// Depths that the peer has asked for, from this side's point of view.
    pub(super) offered_depths: Option<ReadDepths>,
    /// The queue pair of the connection.
    pub(super) connection: Option<Arc<Qp>>,
    /// Attributes of the queue pairs of its connection requests.
    pub(super) template: Option<QpTemplate>,
    /// Which completion queues, the send queue's or the receive queue's, were made for the
    /// identifier.
    pub(super) own_queues: [bool; 2],
}

impl Kind for CmId {
    type Abi = rdma_cm_id;
    type C = rdma_cm_id;
    const NAME: &'static str = "rdma_cm_id";
    const TAG: u32 = 0x636d_6931;
}

/// Writes a field of the struct that programs read.
macro_rules! put {
    ($id:expr, $($field:ident).+, $value:expr) => {{
        let value = $value;
        // SAFETY: the struct lives as long as the object, and is only touched by one field at a
        // time.
        unsafe { (*$id.abi()).$($field).+ = value }
    }};
}

/// Reads a field.
macro_rules! get {
    ($id:expr, $($field:ident).+) => {{
        // SAFETY: as for `put`.
        unsafe { (*$id.abi()).$($field).+ }
    }};
}

pub(super) use {get, put};

impl CmId {
    /// Makes an identifier. Without a channel it is synchronous.
    pub(super) fn create(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        port_space: u32,
    ) -> Result<*mut rdma_cm_id> {
        let synchronous = channel.is_null();
        let channel = if synchronous {
            Channel::create()?
        } else {
            channel
        };
        let mut abi = rdma_cm_id::zeroed();
        (abi.channel, abi.context) = (channel, context);
        (abi.ps, abi.qp_type) = (port_space, IBV_QPT_RC);
        let body = Self {
            state: Mutex::new(State::new(Object::find(channel)?, synchronous)),
            outstanding: Mutex::default(),
            acknowledged: Condvar::new(),
            queues: Mutex::default(),
        };
        Ok(Object::new(abi, body).publish())
    }

    /// Makes the identifier of a connection request to a listening identifier.
    pub(super) fn of_request(
        listener: &Arc<Id>,
        offered: PendingRequest,
    ) -> Result<*mut rdma_cm_id> {
        let synchronous = listener.body().state().synchronous;
        let channel = if synchronous {
            ptr::null_mut()
        } else {
            get!(listener, channel)
        };
        let (context, space) = (get!(listener, context), get!(listener, ps));
        let handle = Self::create(channel, context, space)?;
        let id = Object::<Self>::find(handle)?;
        let request = offered.request().clone();
        let mut state = id.body().state();
        if let Err(errno) = state.bind(&id, offered.device()) {
            drop(state);
            id.destroy()?;
            return Err(errno);
        }
        state.set_source(&id, request.local);
        state.set_destination(&id, request.remote);
        state.phase = Phase::Requested;
        state.offered_depths = request.depths;
        state.offered = Some(offered);
        drop(state);
        Ok(handle)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The state, for a verb that changes it. EINVAL once a program has begun to destroy the
    /// identifier: resources that the verb adds then would never be released.
    pub(super) fn living(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if self.is_destroyed() {
            return Err(Errno::EINVAL);
        }
        Ok(state)
    }

    /// Lets one thread at a time make or destroy the queue pair and the completion queues, or
    /// destroy the identifier.
    pub(super) fn queues(&self) -> MutexGuard<'_, ()> {
        lock(&self.queues)
    }

    /// A program takes an event.
    fn begin_event(&self) {
        lock(&self.outstanding).events += 1;
    }

    fn is_destroyed(&self) -> bool {
        lock(&self.outstanding).destroyed
    }

    /// A program has acknowledged one.
    pub(super) fn end_event(&self) {
        let mut outstanding = lock(&self.outstanding);
        outstanding.events = outstanding.events.saturating_sub(1);
        drop(outstanding);
        self.acknowledged.notify_all();
    }

    /// Waits until all events are acknowledged.
    pub(super) fn await_acknowledged(&self) {
        let outstanding = lock(&self.outstanding);
        let acknowledged = self
            .acknowledged
            .wait_while(outstanding, |it| it.events > 0);
        drop(acknowledged.unwrap_or_else(PoisonError::into_inner));
    }

    /// Stops adding events to the identifier's channel.
    pub(super) fn end_events(&self) {
        lock(&self.outstanding).destroyed = true;
    }
}

impl State {
    fn new(channel: Arc<Object<Channel>>, synchronous: bool) -> Self {
        Self {
            channel,
            synchronous,
            phase: Phase::New,
            context: None,
            removal: None,
            source: None,
            destination: None,
            ports: Vec::new(),
            wanted_source: ANY,
            reusable: false,
            one_family: false,
            backlog: Backlog::of(0),
            offered: None,
            offered_depths: None,
            connection: None,
            template: None,
            own_queues: [false; 2],
        }
    }

    /// Binds an identifier to a device.
    pub(super) fn bind(&mut self, id: &Arc<Id>, device: &Arc<Object<Device>>) -> Result<()> {
        if self.context.is_some() {
            return Ok(());
        }
        let context = devices::context_of(device)?;
        put!(id, verbs, Object::handle(&context));
        put!(id, port_num, 1);
        self.context = Some(context);
        self.removal = Some(watch_removal(id, device));
        Ok(())
    }

    /// The RNIC of the device that the identifier is bound to.
    pub(super) fn backend(&self) -> Result<Arc<Backend>> {
        let context = self.context.as_ref().ok_or(Errno::EINVAL)?;
        context.body().backend()
    }

    /// An address as programs get it: a link-local one includes its interface.
    fn scoped(&self, address: SocketAddr) -> SocketAddr {
        address::scoped(address, || {
            let device = self.context.as_ref()?.body().device();
            Some(device.interface().ok()?.index)
        })
    }

    pub(super) fn set_source(&mut self, id: &Arc<Id>, source: SocketAddr) {
        let source = self.scoped(source);
        self.source = Some(source);
        put!(id, route.addr.src, address::storage(source));
    }

    pub(super) fn set_destination(&mut self, id: &Arc<Id>, destination: SocketAddr) {
        let destination = self.scoped(destination);
        self.destination = Some(destination);
        put!(id, route.addr.dst, address::storage(destination));
    }

    pub(super) fn push(&self, event: PendingEvent) {
        self.channel.body().push(event);
    }

    pub(super) fn channel(&self) -> &Arc<Object<Channel>> {
        &self.channel
    }

    /// Directs events to another channel from now on, and returns the previous one.
    pub(super) fn move_to(&mut self, channel: Arc<Object<Channel>>) -> Arc<Object<Channel>> {
        std::mem::replace(&mut self.channel, channel)
    }
}

/// An identifier that is bound to a device. As in the kernel, one of a wildcard address belongs to
/// no device, and gets no such event.
struct Bound(Weak<Id>);

impl EventTarget for Bound {
    fn notify(&self, happening: Happening) {
        // All other events are raised in the middle of the engine, where an identifier cannot be
        // locked.
        if happening != Happening::DeviceGone {
            return;
        }
        if let Some(id) = self.0.upgrade() {
            let state = id.body().state();
            state.push(PendingEvent::new(&id, EventKind::DeviceRemoval));
        }
    }
}

/// Reports to an identifier that its device is removed, for as long as it keeps the returned value.
fn watch_removal(id: &Arc<Id>, device: &Object<Device>) -> Arc<dyn EventTarget> {
    let bound: Arc<dyn EventTarget> = Arc::new(Bound(Arc::downgrade(id)));
    let targets = device.body().targets();
    targets.add(Arc::downgrade(&bound));
    bound
}

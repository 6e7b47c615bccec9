//! Connections of identifiers: listening, connecting, accepting and disconnecting.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::backlog::Backlog;
use super::events;
use super::id::{CmId, Id, PendingEvent, Phase, State, Taker, get, put};
use super::life::{self, completes, release_event};
use super::numbers::{EventKind, RDMA_MAX_DEPTH};
use super::pending_request::PendingRequest;
use super::qp;
use super::resolving::bind_if_new;
use crate::abi::cm::{rdma_cm_event, rdma_cm_id, rdma_conn_param};
use crate::abi::numbers::{IBV_QPS_ERR, IBV_QPS_RTS};
use crate::backend::connection_event::{
    ConnectRequest, ConnectionEvent, EventCallback, Failure, ReadDepths, Terms,
};
use crate::backend::{self, Backend, BackendRef, Qp, Rights, Timer};
use crate::cancellation::{Begun, Sleep, give, waits};
use crate::entry::{Result, sets_status};
use crate::object::Object;
use crate::verbs::device::{self, Device};
use crate::verbs::query;

/// Callback for the events of an identifier's connection, for as long as the identifier lives.
fn callback(id: &Arc<Id>) -> EventCallback {
    let id = Arc::downgrade(id);
    Arc::new(move |event| {
        if let Some(id) = Weak::upgrade(&id) {
            on_event(&id, event);
        }
    })
}

/// Callback for the connection requests to a listening identifier.
fn request_callback(
    id: &Arc<Id>,
    device: &Arc<Object<Device>>,
    backend: &BackendRef,
) -> EventCallback {
    let (id, device, backend) = (Arc::downgrade(id), Arc::clone(device), backend.clone());
    Arc::new(move |event| {
        let ConnectionEvent::Request(request) = event else {
            return;
        };
        // The peer is rejected if the identifier is gone.
        let offered = PendingRequest::new(request, &device, &backend);
        if let Some(id) = Weak::upgrade(&id) {
            announce(&id, offered);
        }
    })
}

/// Adds a connection request to the channel of a listening identifier, unless its backlog is full.
fn announce(id: &Arc<Id>, offered: PendingRequest) {
    let request = offered.request();
    let mut state = id.body().state();
    let Some(place) = state.backlog.take() else {
        log::info!("{} is rejected: the backlog is full", request.remote);
        return;
    };
    let event = PendingEvent {
        depths: request.depths.unwrap_or_default(),
        private_data: request.private_data.clone(),
        place: Some(place),
        ..PendingEvent::new(id, EventKind::ConnectRequest)
    };
    let offered = Some(offered);
    state.push(PendingEvent { offered, ..event });
}

/// How long after a connection's end InfiniBand's timewait state ends. The kernel's connection
/// manager takes about as long over RoCE.
const TIMEWAIT: Duration = Duration::from_secs(1);

/// Handles an event of an identifier's connection.
fn on_event(id: &Arc<Id>, event: ConnectionEvent) {
    let mut state = id.body().state();
    let event = match event {
        ConnectionEvent::Connected {
            local,
            private_data,
            depths,
        } => {
            state.phase = Phase::Connected;
            state.set_source(id, local);
            show_state(id, &state, IBV_QPS_RTS);
            PendingEvent {
                depths,
                private_data,
                ..PendingEvent::new(id, EventKind::Established)
            }
        }
        ConnectionEvent::NotConnected(failure) => {
            state.phase = Phase::Ended;
            state.connection = None;
            failed(id, failure)
        }
        ConnectionEvent::Disconnected => {
            state.phase = Phase::Ended;
            show_state(id, &state, IBV_QPS_ERR);
            PendingEvent::new(id, EventKind::Disconnected)
        }
        ConnectionEvent::Request(_) => return,
    };
    let has_ended = event.kind == EventKind::Disconnected;
    state.push(event);
    if has_ended && !state.synchronous && device::are_taken_for_infiniband() {
        end_timewait_later(id, &state);
    }
}

/// Writes a state into the struct of the connection's queue pair.
fn show_state(id: &Arc<Id>, state: &State, shown: u32) {
    if let Some(qp) = &state.connection {
        qp::show_state(id, qp, shown);
    }
}

/// InfiniBand's connection manager reports at last that no packet is in flight. Programs written
/// for InfiniBand wait for that event, and then free memory that completions of the queue pair
/// refer to: tgtd had not polled them all where the event followed the connection's end at once.
fn end_timewait_later(id: &Arc<Id>, state: &State) {
    let weak = Arc::downgrade(id);
    let end = move || {
        if let Some(id) = weak.upgrade() {
            let state = id.body().state();
            state.push(PendingEvent::new(&id, EventKind::TimewaitExit));
        }
    };
    let due = Instant::now() + TIMEWAIT;
    let backend = state.backend();
    let set = backend.and_then(|it| it.call_at(Timer::new(), due, end));
    if let Err(errno) = set {
        log::debug!("the timewait state ends with its RNIC: {errno}");
    }
}

fn failed(id: &Arc<Id>, failure: Failure) -> PendingEvent {
    match failure {
        Failure::Rejected {
            errno,
            private_data,
        } => PendingEvent {
            private_data,
            ..PendingEvent::failed(id, EventKind::Rejected, errno)
        },
        Failure::Unreachable(errno) => PendingEvent::failed(id, EventKind::Unreachable, errno),
        Failure::Failed(errno) => PendingEvent::failed(id, EventKind::ConnectError, errno),
    }
}

/// Bytes that C gives by address and length.
fn bytes(start: *const c_void, len: u8) -> Vec<u8> {
    if start.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: by the manual pages, `len` bytes are there.
    let bytes = unsafe { slice::from_raw_parts(start.cast::<u8>(), usize::from(len)) };
    bytes.to_vec()
}

/// A depth that a program asks for, at most the device's.
fn depth(wanted: u8) -> u16 {
    let most = u16::try_from(backend::limits().reads).unwrap_or(u16::MAX);
    match wanted {
        RDMA_MAX_DEPTH => most.min(u16::from(u8::MAX)),
        wanted => u16::from(wanted).min(most),
    }
}

/// Refuses depths that exceed the device's reported ones, as librdmacm does.
fn check(param: Option<&rdma_conn_param>) -> Result<()> {
    let is_possible =
        |depth: u8| depth == RDMA_MAX_DEPTH || usize::from(depth) <= query::max_reads();
    let are_possible = param.is_none_or(|param| {
        is_possible(param.responder_resources) && is_possible(param.initiator_depth)
    });
    are_possible.then_some(()).ok_or(Errno::EINVAL)
}

fn depths(param: &rdma_conn_param) -> ReadDepths {
    ReadDepths {
        ird: depth(param.responder_resources),
        ord: depth(param.initiator_depth),
    }
}

/// Whether the peer's messages wait for a late receive buffer. By `rdma_connect(3)` the parameter
/// says how often the peer sends again a message that found none; librdmacm passes 7, for ever, if
/// there are no parameters. An iWARP peer sends once, so here any number is for ever.
fn awaits_receives(param: Option<&rdma_conn_param>) -> bool {
    param.is_none_or(|param| param.rnr_retry_count != 0)
}

/// For how long an attempt is repeated where no peer listens yet.
const PATIENCE: Duration = Duration::from_millis(300);

/// The largest depths of the device.
const MOST: ReadDepths = ReadDepths {
    ird: RDMA_MAX_DEPTH as u16,
    ord: RDMA_MAX_DEPTH as u16,
};

fn at_most(wanted: ReadDepths) -> ReadDepths {
    let byte = |depth: u16| u8::try_from(depth).unwrap_or(RDMA_MAX_DEPTH);
    ReadDepths {
        ird: depth(byte(wanted.ird)),
        ord: depth(byte(wanted.ord)),
    }
}

/// The queue pair of an identifier, or the one that the program names by its number. Its peer gets
/// all rights, as from the kernel's connection manager: `rping -q` grants none in Init.
fn queue_pair(id: &Arc<Id>, backend: &Backend, param: Option<&rdma_conn_param>) -> Result<Arc<Qp>> {
    let qp = get!(id, qp);
    let qp = if qp.is_null() {
        let number = param.map(|param| param.qp_num).ok_or(Errno::EINVAL)?;
        backend.qp_by_number(number)?
    } else {
        qp::queue_pair(qp)?
    };
    qp.set_inbound(Rights::REMOTE)?;
    Ok(qp)
}

fn connect(id: &Arc<Id>, param: Option<&rdma_conn_param>) -> Result<()> {
    check(param)?;
    let mut state = id.body().living()?;
    if state.phase != Phase::Routed {
        return Err(Errno::EINVAL);
    }
    let remote = state.destination.ok_or(Errno::EINVAL)?;
    let backend = state.backend()?;
    let qp = queue_pair(id, &backend, param)?;
    let request = ConnectRequest {
        local: state.wanted_source,
        remote,
        terms: Terms {
            depths: param.map_or(at_most(MOST), depths),
            await_receives: awaits_receives(param),
        },
        private_data: param.map_or_else(Vec::new, |it| bytes(it.private_data, it.private_data_len)),
        patience: PATIENCE,
    };
    state.phase = Phase::Connecting;
    let begun = qp.connect(request, callback(id));
    match begun {
        Ok(local) => {
            state.set_source(id, local);
            state.connection = Some(qp);
            Ok(())
        }
        Err(errno) => {
            state.phase = Phase::Routed;
            Err(errno)
        }
    }
}

fn listen(id: &Arc<Id>, backlog: c_int) -> Result<()> {
    bind_if_new(id)?;
    let mut state = id.body().living()?;
    if state.phase != Phase::Bound {
        return Err(Errno::EINVAL);
    }
    state.backlog = Backlog::of(backlog);
    for port in &state.ports {
        let callback = request_callback(id, &port.device, &port.backend);
        port.port.listen(callback)?;
    }
    log::info!("listening on {:?}", state.source);
    state.phase = Phase::Listening;
    Ok(())
}

fn accept(id: &Arc<Id>, param: Option<&rdma_conn_param>) -> Result<()> {
    check(param)?;
    let mut state = id.body().living()?;
    if state.phase != Phase::Requested {
        return Err(Errno::EINVAL);
    }
    let backend = state.backend()?;
    let qp = queue_pair(id, &backend, param)?;
    let asked = at_most(state.offered_depths.unwrap_or(MOST));
    let terms = Terms {
        depths: param.map_or(asked, depths),
        await_receives: awaits_receives(param),
    };
    let private_data =
        param.map_or_else(Vec::new, |it| bytes(it.private_data, it.private_data_len));
    let offered = state.offered.take().ok_or(Errno::EINVAL)?;
    let (_rnic, peer) = offered.answer()?;
    qp.accept(&peer, terms, &private_data, callback(id))?;
    state.phase = Phase::Connected;
    qp::show_state(id, &qp, IBV_QPS_RTS);
    state.connection = Some(qp);
    let event = PendingEvent {
        depths: terms.depths,
        ..PendingEvent::new(id, EventKind::Established)
    };
    state.push(event);
    Ok(())
}

fn reject(id: &Arc<Id>, private_data: &[u8]) -> Result<()> {
    let mut state = id.body().living()?;
    let offered = state.offered.take().ok_or(Errno::EINVAL)?;
    state.phase = Phase::Ended;
    let (_rnic, peer) = offered.answer()?;
    peer.reject(private_data)
}

/// Begins to close the connection. It is no error if the peer has closed it first: the kernel's
/// iWARP also returns 0 then.
fn disconnect(id: &Arc<Id>) -> Result<()> {
    let (connection, was_connected) = {
        let state = id.body().state();
        let was_connected = matches!(state.phase, Phase::Connected | Phase::Ended);
        (state.connection.clone(), was_connected)
    };
    match connection.ok_or(Errno::EINVAL)?.disconnect() {
        Err(Errno::EINVAL) if was_connected => Ok(()),
        other => other,
    }
}

/// The sleep of a thread that takes the next connection request of a synchronous listener.
fn await_request(listener: *mut rdma_cm_id) -> Result<Sleep<(Arc<Id>, Taker)>> {
    let listener = Object::<CmId>::find(listener)?;
    if !listener.body().state().synchronous {
        return Err(Errno::EINVAL);
    }
    release_event(&listener);
    let sleep = events::sleep(get!(listener, channel))?;
    Ok(sleep.with(|taker| (listener, taker)))
}

/// Takes the next connection request of a synchronous listener, and makes its queue pair if the
/// listener was given attributes for one.
fn get_request(listener: &Arc<Id>, event: PendingEvent) -> Result<*mut rdma_cm_id> {
    let event = events::deliver(event)?;
    // SAFETY: it was made just now, and no other thread knows it.
    let (kind, peer) = unsafe { read(event) };
    if kind != EventKind::ConnectRequest as u32 {
        events::acknowledge(event)?;
        let is_gone = kind == EventKind::DeviceRemoval as u32;
        return Err(if is_gone {
            Errno::ENODEV
        } else {
            Errno::EINVAL
        });
    }
    let id = Object::<CmId>::find(peer)?;
    put!(id, event, event);
    if let Err(errno) = qp::create_from_template(listener, &id) {
        life::destroy(peer)?;
        return Err(errno);
    }
    Ok(peer)
}

/// Number and identifier of an event.
///
/// # Safety
///
/// The event is one that is not acknowledged.
unsafe fn read(event: *mut rdma_cm_event) -> (u32, *mut rdma_cm_id) {
    // SAFETY: as the caller vouches.
    let event = unsafe { &*event };
    (event.event, event.id)
}

/// `rdma_listen(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    sets_status(|| listen(&Object::<CmId>::find(id)?, backlog))
}

/// `rdma_get_request(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    mut id: Option<&mut *mut rdma_cm_id>,
) -> c_int {
    let is_given = id.is_some();
    let begin = || {
        if !is_given {
            return Err(Errno::EINVAL);
        }
        Ok(Begun::Waits(await_request(listener)?))
    };
    waits(begin, |(listener, taker): (Arc<Id>, Taker)| {
        let Some(event) = taker.take() else {
            return Ok(None);
        };
        let peer = get_request(&listener, event)?;
        give(&mut id, peer);
        Ok(Some(()))
    })
}

/// `rdma_connect(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: Option<&rdma_conn_param>,
) -> c_int {
    let begun = sets_status(|| connect(&Object::<CmId>::find(id)?, param));
    if begun == 0 { completes(id) } else { begun }
}

/// `rdma_accept(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: Option<&rdma_conn_param>,
) -> c_int {
    let begun = sets_status(|| accept(&Object::<CmId>::find(id)?, param));
    if begun == 0 { completes(id) } else { begun }
}

/// `rdma_reject(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    sets_status(|| {
        let id = Object::<CmId>::find(id)?;
        reject(&id, &bytes(data, len))?;
        release_event(&id);
        Ok(())
    })
}

/// `rdma_disconnect(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let begun = sets_status(|| disconnect(&Object::<CmId>::find(id)?));
    let done = if begun == 0 { completes(id) } else { begun };
    if done != 0 {
        return done;
    }
    sets_status(|| {
        let id = Object::<CmId>::find(id)?;
        let mut state = id.body().state();
        if state.synchronous {
            state.phase = Phase::Closed;
        }
        Ok(())
    })
}

/// `rdma_establish(3)`: sets errno. A connection of iWARP is established by the peer's answer. As
/// librdmacm's, it is for identifiers without a queue pair of their own.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    sets_status(|| {
        let id = Object::<CmId>::find(id)?;
        let is_its_own = get!(id, qp).is_null();
        is_its_own.then_some(()).ok_or(Errno::EINVAL)
    })
}

/// `rdma_notify(3)`: sets errno. It does nothing: connections begin without asynchronous events.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_notify(id: *mut rdma_cm_id, _event: u32) -> c_int {
    sets_status(|| Object::<CmId>::find(id).map(|_id| ()))
}

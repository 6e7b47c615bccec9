//! Life of identifiers: making, moving and destroying them, and the events that synchronous ones
//! wait for.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use nix::errno::Errno;

use super::events;
use super::id::{Channel, CmId, Id, Taker, get, put};
use super::numbers::{EventKind, RDMA_PS_IB, RDMA_PS_TCP};
use crate::abi::cm::{rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::cancellation::{Begun, waits};
use crate::entry::{Result, sets_status};
use crate::object::Object;

/// A synchronous identifier whose call waits for an event.
pub(super) struct Completion {
    id: Arc<Id>,
    taker: Taker,
}

/// The second part of a call, in which a synchronous identifier waits for an event. It sets errno
/// and returns -1 on failure, else 0. A cancellation point.
pub(super) fn completes(id: *mut rdma_cm_id) -> c_int {
    let begin = || {
        let id = Object::<CmId>::find(id)?;
        if !id.body().state().synchronous {
            return Ok(Begun::Done);
        }
        release_event(&id);
        Ok(Begun::Waits(
            events::sleep(get!(id, channel))?.with(|taker| Completion { id, taker }),
        ))
    };
    waits(begin, |Completion { id, taker }| {
        let Some(event) = taker.take() else {
            return Ok(None);
        };
        keep(&id, events::deliver(event)?).map(Some)
    })
}

/// Takes the event of a synchronous identifier that arrives without the peer's help.
pub(super) fn complete(id: &Arc<Id>) -> Result<()> {
    if !id.body().state().synchronous {
        return Ok(());
    }
    release_event(id);
    keep(id, events::take(get!(id, channel))?)
}

/// Hands the event that a call has waited for to its synchronous identifier. The call returns the
/// event's status.
fn keep(id: &Arc<Id>, event: *mut rdma_cm_event) -> Result<()> {
    put!(id, event, event);
    // SAFETY: it was made just now, and is acknowledged by this identifier's next call.
    let event = unsafe { &*event };
    if event.event == EventKind::DeviceRemoval as u32 {
        return Err(Errno::ENODEV);
    }
    if event.status == 0 {
        return Ok(());
    }
    Err(Errno::from_raw(event.status.saturating_abs()))
}

/// Acknowledges the event that an identifier keeps.
pub(super) fn release_event(id: &Arc<Id>) {
    let event: *mut rdma_cm_event = get!(id, event);
    put!(id, event, ptr::null_mut());
    if !event.is_null()
        && let Err(errno) = events::acknowledge(event)
    {
        log::debug!("an event was acknowledged already: {errno}");
    }
}

/// Destroys an identifier: its port is free when this returns. Of two threads that destroy an
/// identifier, one succeeds.
pub(super) fn destroy(handle: *mut rdma_cm_id) -> Result<()> {
    let id = Object::<CmId>::find(handle)?;
    let queues = id.body().queues();
    let mut state = id.body().living()?;
    id.body().end_events();
    drop(queues);
    let ports = std::mem::take(&mut state.ports);
    let (offered, connection) = (state.offered.take(), state.connection.take());
    let (channel, synchronous) = (Arc::clone(state.channel()), state.synchronous);
    drop(state);
    // Without the lock: all of these wait for threads that may need it.
    for port in ports {
        if let Err(errno) = port.port.unbind() {
            log::debug!("a port is gone already: {errno}");
        }
    }
    drop(offered);
    if let Some(qp) = connection {
        // There is nothing to close if the peer has closed, or if the queue pair is destroyed.
        let _ = qp.disconnect();
    }
    drop(channel.body().take_back(&id));
    release_event(&id);
    id.body().await_acknowledged();
    id.destroy()?;
    if synchronous {
        Channel::destroy(&channel)?;
    }
    Ok(())
}

/// Moves an identifier and its waiting events to another channel. Without a channel it becomes
/// synchronous. Waits until the program has acknowledged the events that it has taken.
fn migrate(handle: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> Result<()> {
    let id = Object::<CmId>::find(handle)?;
    drop(id.body().living()?);
    release_event(&id);
    id.body().await_acknowledged();
    if !channel.is_null() {
        return move_to(&id, &Object::<Channel>::find(channel)?, false);
    }
    let own = Object::<Channel>::find(Channel::create()?)?;
    let moved = move_to(&id, &own, true);
    moved.or_else(|errno| Channel::destroy(&own).and(Err(errno)))
}

fn move_to(id: &Arc<Id>, to: &Arc<Object<Channel>>, synchronous: bool) -> Result<()> {
    let mut state = id.body().living()?;
    let from = state.move_to(Arc::clone(to));
    let was_synchronous = std::mem::replace(&mut state.synchronous, synchronous);
    put!(id, channel, Object::handle(to));
    for event in from.body().take_back(id) {
        to.body().push(event);
    }
    drop(state);
    if was_synchronous {
        Channel::destroy(&from)?;
    }
    Ok(())
}

/// `rdma_create_id(3)`: sets errno. Datagram services are not supported.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: Option<&mut *mut rdma_cm_id>,
    context: *mut c_void,
    port_space: u32,
) -> c_int {
    sets_status(|| {
        let place = id.ok_or(Errno::EINVAL)?;
        if !matches!(port_space, RDMA_PS_TCP | RDMA_PS_IB) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        *place = CmId::create(channel, context, port_space)?;
        Ok(())
    })
}

/// `rdma_destroy_id(3)`: sets errno. Waits until its events are acknowledged.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    sets_status(|| destroy(id))
}

/// `rdma_migrate_id(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    sets_status(|| migrate(id, channel))
}

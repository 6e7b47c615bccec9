//! Events that programs take from channels, and acknowledge.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use nix::errno::Errno;

use super::id::{Channel, CmId, Id, PendingEvent, Taker};
use crate::abi::Zeroed;
use crate::abi::cm::{RdmaCmEventParam, rdma_cm_event, rdma_conn_param, rdma_event_channel};
use crate::backend::connection_event::ReadDepths;
use crate::cancellation::{Begun, Sleep, give, waits};
use crate::entry::{Result, always, sets, sets_status};
use crate::object::{Kind, Object};

/// An event that a program has taken and not acknowledged.
pub(super) struct Taken {
    id: Arc<Id>,
    /// The `rdma_cm_event` points here.
    _private_data: Vec<u8>,
}

impl Kind for Taken {
    type Abi = rdma_cm_event;
    type C = rdma_cm_event;
    const NAME: &'static str = "rdma_cm_event";
    const TAG: u32 = 0x6576_7431;
}

/// The sleep of a thread that takes an event of a channel. A destroyed channel decides how a thread
/// that calls again sleeps.
pub(super) fn sleep(channel: *mut rdma_event_channel) -> Result<Sleep<Taker>> {
    let living = Object::<Channel>::find(channel);
    let found = living.or_else(|errno| Object::<Channel>::destroyed(channel).ok_or(errno))?;
    Channel::sleep(&found)
}

/// Takes the next event of a synchronous identifier, which comes without the peer's help.
pub(super) fn take(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event> {
    deliver(Object::<Channel>::find(channel)?.body().take()?)
}

/// Makes the program's event of a queued one.
pub(super) fn deliver(pending: PendingEvent) -> Result<*mut rdma_cm_event> {
    let PendingEvent {
        id,
        kind,
        status,
        depths,
        private_data,
        offered,
        place,
    } = pending;
    // The request waits for the program's answer from now on, and has left the backlog.
    drop(place);
    let mut event = rdma_cm_event::zeroed();
    event.id = Object::handle(&id);
    if let Some(offered) = offered {
        event.listen_id = event.id;
        match CmId::of_request(&id, offered) {
            Ok(new) => event.id = new,
            Err(errno) => {
                id.body().end_event();
                return Err(errno);
            }
        }
    }
    (event.event, event.status) = (kind as u32, status);
    event.param = param(&private_data, depths);
    let taken = Taken {
        id,
        _private_data: private_data,
    };
    Ok(Object::new(event, taken).publish())
}

fn param(private_data: &[u8], depths: ReadDepths) -> RdmaCmEventParam {
    let byte = |reads: u16| u8::try_from(reads).unwrap_or(u8::MAX);
    let mut conn = rdma_conn_param::zeroed();
    if !private_data.is_empty() {
        conn.private_data = private_data.as_ptr().cast();
        conn.private_data_len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
    }
    conn.responder_resources = byte(depths.ird);
    conn.initiator_depth = byte(depths.ord);
    conn.flow_control = 1;
    (conn.retry_count, conn.rnr_retry_count) = (7, 7);
    RdmaCmEventParam { conn }
}

/// Acknowledges an event, and frees it.
pub(super) fn acknowledge(event: *mut rdma_cm_event) -> Result<()> {
    let taken = Object::<Taken>::find(event)?;
    taken.destroy()?;
    taken.body().id.body().end_event();
    Ok(())
}

/// `rdma_create_event_channel(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    sets(Channel::create)
}

/// `rdma_destroy_event_channel(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    always((), || {
        let channel = Object::<Channel>::find(channel)?;
        channel.body().await_taker();
        Channel::destroy(&channel)
    });
}

/// `rdma_get_cm_event(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    mut event: Option<&mut *mut rdma_cm_event>,
) -> c_int {
    let is_given = event.is_some();
    let begin = || {
        if !is_given {
            return Err(Errno::EINVAL);
        }
        Ok(Begun::Waits(sleep(channel)?))
    };
    waits(begin, |taker| {
        let Some(pending) = taker.take() else {
            return Ok(None);
        };
        let taken = deliver(pending)?;
        give(&mut event, taken);
        Ok(Some(()))
    })
}

/// `rdma_ack_cm_event(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    sets_status(|| acknowledge(event))
}

/// `rdma_event_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    const NAMES: [&CStr; 16] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let name = usize::try_from(event).ok().and_then(|at| NAMES.get(at));
    // Programs print it without looking.
    name.unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}

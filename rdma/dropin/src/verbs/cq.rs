//! Completion queues.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use nix::errno::Errno;

use super::channel::Channel;
use super::context::Context;
use super::turn::Turn;
use super::watched::Watched;
use crate::abi::Zeroed;
use crate::abi::verbs::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};
use crate::backend::{self, CompletionCallback, CqPort, limits};
use crate::entry::{Result, data_path, returns, sets};
use crate::object::{Kind, Object, next_handle};

/// A completion queue.
pub(crate) struct Cq {
    context: Arc<Object<Context>>,
    queue: Arc<backend::Cq>,
    port: Box<dyn CqPort>,
    channel: Option<Arc<Object<Channel>>>,
    watched: Arc<Watched>,
    /// The completion that `ibv_start_poll` or `ibv_next_poll` has taken, until `ibv_end_poll`.
    pub(super) current: Turn<Taken>,
}

/// A completion that is polled by one call for each of its fields.
pub(super) struct Taken {
    pub(super) completion: ibv_wc,
    /// When the NIC received the frame that raised it, in nanoseconds; 0 if that is unknown.
    pub(super) time: u64,
}

impl Kind for Cq {
    type Abi = ibv_cq_ex;
    type C = ibv_cq;
    const NAME: &'static str = "ibv_cq";
    const TAG: u32 = 0x6371_2031;
}

impl Cq {
    pub(super) fn context(&self) -> &Arc<Object<Context>> {
        &self.context
    }

    pub(crate) fn is_of(&self, context: &Arc<Object<Context>>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    pub(super) fn queue(&self) -> &Arc<backend::Cq> {
        &self.queue
    }

    pub(crate) fn watched(&self) -> &Arc<Watched> {
        &self.watched
    }

    #[inline]
    pub(super) fn port(&self) -> &dyn CqPort {
        &*self.port
    }
}

/// Makes a completion queue. It has the longer one of the two structs, whose functions `fill` sets.
pub(crate) fn create(
    context: *mut ibv_context,
    entries: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    fill: impl FnOnce(&mut ibv_cq_ex),
) -> Result<*mut ibv_cq> {
    let context = Object::<Context>::find(context)?;
    if !(1..=limits().cq_entries).contains(&(entries as usize)) {
        return Err(Errno::EINVAL);
    }
    let on = channel_of(&context, channel)?;
    let mut abi = ibv_cq_ex::zeroed();
    abi.cq.context = Object::handle(&context);
    (abi.cq.channel, abi.cq.cq_context) = (channel, cq_context);
    abi.cq.cqe = c_int::try_from(entries).map_err(|_too_many| Errno::EINVAL)?;
    fill(&mut abi);
    let backend = context.body().backend()?;
    let watched = Watched::new(context.body().events(), false);
    let callback = on.as_ref().map(|on| callback(on, &watched));
    let queue = backend.create_cq(entries as usize, callback)?;
    abi.cq.handle = next_handle();
    let body = Cq {
        context,
        port: queue.port(),
        queue,
        channel: on,
        watched,
        current: Turn::new(Taken {
            completion: ibv_wc::zeroed(),
            time: 0,
        }),
    };
    body.publish(&abi)
}

/// The channel of a new completion queue, if it gets one.
fn channel_of(
    context: &Arc<Object<Context>>,
    channel: *mut ibv_comp_channel,
) -> Result<Option<Arc<Object<Channel>>>> {
    if channel.is_null() {
        return Ok(None);
    }
    let channel = Object::<Channel>::find(channel)?;
    let is_ours = channel.body().is_of(context);
    is_ours.then_some(Some(channel)).ok_or(Errno::EINVAL)
}

impl Cq {
    /// Makes it an object that programs and events can refer to.
    fn publish(self, abi: &ibv_cq_ex) -> Result<*mut ibv_cq> {
        self.queue.report_events(self.watched.target())?;
        if let Some(channel) = &self.channel {
            channel.body().enter();
        }
        let watched = Arc::clone(&self.watched);
        let object = Object::new(*abi, self);
        watched.is_at(Object::handle(&object));
        Ok(object.publish())
    }
}

/// Adds a completion event to the channel.
fn callback(channel: &Arc<Object<Channel>>, watched: &Arc<Watched>) -> CompletionCallback {
    let (channel, watched) = (Arc::downgrade(channel), Arc::downgrade(watched));
    Arc::new(move || {
        if let (Some(channel), Some(watched)) = (channel.upgrade(), watched.upgrade()) {
            channel.body().notice(watched);
        }
    })
}

/// Destroys a completion queue; EBUSY while queue pairs complete on it. Waits until the program has
/// acknowledged its events.
pub(crate) fn destroy(cq: *mut ibv_cq) -> Result<()> {
    let cq = Object::<Cq>::find(cq)?;
    let body = cq.body();
    body.queue.destroy()?;
    if let Some(channel) = &body.channel {
        channel.body().leave(&body.watched);
    }
    body.watched.end();
    cq.destroy()?;
    // The thread whose turn it is can no longer end it. Waiting threads find the queue destroyed.
    body.current.end(|_taken| ());
    Ok(())
}

fn resize(cq: *mut ibv_cq, entries: c_int) -> Result<()> {
    let cq = Object::<Cq>::find(cq)?;
    let wanted = usize::try_from(entries).map_err(|_negative| Errno::EINVAL)?;
    cq.body().queue.resize(wanted)?;
    cq.with_abi(|abi| abi.cq.cqe = entries);
    Ok(())
}

/// `ibv_create_cq(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    sets(|| {
        let entries = u32::try_from(entries).map_err(|_negative| Errno::EINVAL)?;
        if vector != 0 {
            return Err(Errno::EINVAL);
        }
        create(context, entries, cq_context, channel, |_abi| {})
    })
}

/// `ibv_destroy_cq(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    returns(|| destroy(cq))
}

/// `ibv_resize_cq(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, entries: c_int) -> c_int {
    returns(|| resize(cq, entries))
}

/// `ibv_poll_cq(3)`: returns -1 on failure.
pub extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, places: *mut ibv_wc) -> c_int {
    data_path::always(-1, || {
        // SAFETY: inline functions of the header have found this function by the handle.
        let cq = unsafe { Object::<Cq>::living(cq) }?;
        let entries = usize::try_from(entries).map_err(|_negative| Errno::EINVAL)?;
        if entries == 0 || places.is_null() {
            return if entries == 0 {
                Ok(0)
            } else {
                Err(Errno::EINVAL)
            };
        }
        // SAFETY: by its manual page, the array has that many places, which are integers and the
        // program's to give.
        let places = unsafe { std::slice::from_raw_parts_mut(places, entries) };
        let taken = cq.body().port.poll(places)?;
        // The number is at most `entries`.
        Ok(taken.cast_signed())
    })
}

/// `ibv_req_notify_cq(3)`: returns the error number.
pub extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    data_path::returns(|| {
        // SAFETY: inline functions of the header have found this function by the handle.
        let cq = unsafe { Object::<Cq>::living(cq) }?;
        cq.body().port.arm(solicited_only != 0)
    })
}

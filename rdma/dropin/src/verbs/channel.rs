//! Completion channels: a descriptor for the completion events of several completion queues.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;

use super::context::Context;
use super::event_queue::EventQueue;
use super::watched::Watched;
use crate::abi::verbs::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::entry::{Result, returns, sets};
use crate::event_pipe::EventPipe;
use crate::object::{Kind, Object};

/// A completion channel.
pub(crate) struct Channel {
    context: Arc<Object<Context>>,
    /// Completion queues that have an event.
    events: EventQueue<Arc<Watched>>,
    /// Completion queues that use the channel.
    cqs: AtomicUsize,
}

impl Kind for Channel {
    type Abi = ibv_comp_channel;
    type C = ibv_comp_channel;
    const NAME: &'static str = "ibv_comp_channel";
    const DESCRIPTORS: usize = EventPipe::DESCRIPTORS;
    const TAG: u32 = 0x6368_6e31;
}

impl Channel {
    pub(crate) fn is_of(&self, context: &Arc<Object<Context>>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// Adds a completion queue to the channel.
    pub(crate) fn enter(&self) {
        self.cqs.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a destroyed completion queue, and its events.
    pub(crate) fn leave(&self, cq: &Arc<Watched>) {
        self.events.retain(|event| !Arc::ptr_eq(event, cq));
        self.cqs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Reports that a completion queue has the completion that it was armed for.
    pub(crate) fn notice(&self, cq: Arc<Watched>) {
        self.events.push(cq);
    }

    /// The descriptor that a thread sleeps on to take an event.
    pub(super) fn descriptor(&self) -> Result<Arc<EventPipe>> {
        self.events.opened()
    }

    /// Takes the address of the next completion queue with an event, whose count was read. `None`
    /// if the event was taken back.
    pub(super) fn take_counted(&self) -> Option<*mut ibv_cq> {
        let address = self.events.take_counted(|cq| {
            cq.unacknowledged().add();
            cq.element()
        })?;
        Some(std::ptr::with_exposed_provenance_mut(address))
    }
}

/// Makes a completion channel.
pub(crate) fn create(context: *mut ibv_context) -> Result<*mut ibv_comp_channel> {
    let context = Object::<Context>::find(context)?;
    let events = EventQueue::new()?;
    let abi = ibv_comp_channel {
        context: Object::handle(&context),
        fd: events.descriptor(),
        refcnt: 0,
    };
    let body = Channel {
        context,
        events,
        cqs: AtomicUsize::new(0),
    };
    Ok(Object::new(abi, body).publish())
}

/// Destroys a completion channel; EBUSY while completion queues use it.
pub(crate) fn destroy(channel: *mut ibv_comp_channel) -> Result<()> {
    let channel = Object::<Channel>::find(channel)?;
    if channel.body().cqs.load(Ordering::Relaxed) > 0 {
        return Err(Errno::EBUSY);
    }
    channel.destroy()?;
    channel.body().events.end();
    Ok(())
}

/// `ibv_create_comp_channel(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    sets(|| create(context))
}

/// `ibv_destroy_comp_channel(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    returns(|| destroy(channel))
}
